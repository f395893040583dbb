// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package clustertag_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// write is a step that says which client it uses.
type write string

func (w write) String() string { return string(w) }

// A controller that writes what it has not declared fails, and nothing is sent, through the clients that all
// controllers have.
func TestUndeclaredWritesAreNotSent(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.service("one")
		was := w.Service("one")
		var refused []error
		controller := reconcile.New(reconcile.Options[int, reconcile.None, write, reconcile.None]{
			LoopOptions: reconcile.LoopOptions{Name: "test", Clock: clock.RealClock{}},
			Log:         logr.Discard(),
			Writes: []outputs.Write{
				{System: outputs.Kubernetes, Kind: "services/status", Verbs: []string{"patch"}},
				{System: outputs.DigitalOcean, Kind: "v2/firewalls", Verbs: []string{"POST"}},
			},
			Observe: func(context.Context, string) (int, error) { return 0, nil },
			Plan: func(int) reconcile.Plan[reconcile.None, write, reconcile.None] {
				return reconcile.Plan[reconcile.None, write, reconcile.None]{Steps: []write{"kubernetes", "digitalocean"}}
			},
			Subject: func(s write) string { return string(s) },
			Apply: func(ctx context.Context, _ int, s write) (err error) {
				if s == "digitalocean" {
					err = w.program.DigitalOcean.CreateTag(ctx, "mine")
				} else {
					body := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/mine":"x"}}}`)
					_, err = w.program.Client.CoreV1().Services(was.Namespace).Patch(ctx, was.Name, types.MergePatchType, body, metav1.PatchOptions{})
				}
				refused = append(refused, err)
				return err
			},
		})
		ended, end := context.WithCancel(t.Context())
		defer controller.Run(ended)
		defer end()
		controller.Once(t.Context(), reconcile.Only)
		if len(refused) != 2 || !errors.Is(refused[0], outputs.ErrUndeclared) || !errors.Is(refused[1], outputs.ErrUndeclared) {
			t.Errorf("errors %v, want two refusals", refused)
		}
		if is := w.Service("one"); is.ResourceVersion != was.ResourceVersion || len(w.Writes(0)) > 0 {
			t.Errorf("Service %s instead of %s, writes %v", is.ResourceVersion, was.ResourceVersion, w.Writes(0))
		}
	})
}
