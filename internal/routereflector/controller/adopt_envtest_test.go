// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// A topology that came back from a backup without its finalizer has reflectors although there is nothing to do. It is held all the same, or its
// deletion would leave them without an owner and the mesh off.
func TestHeldWithoutAStep(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	p := s.start()
	s.create("main", "{redundancy: 2}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	p.stop()
	s.patch("main", `{"metadata":{"finalizers":null}}`)
	s.start()
	testkit.Eventually(t, "the finalizer", func() string {
		if f := s.topology("main").Finalizers; !slices.Contains(f, Finalizer) {
			return fmt.Sprint(f)
		}
		return ""
	})
	if err := s.client.Delete(t.Context(), s.topology("main")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of the topology", func() string {
		err := s.client.Get(t.Context(), client.ObjectKey{Name: "main"}, &v1alpha1.RouteReflectorTopology{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint("it is there; ", err)
	})
	if got := s.reflectors(); len(got) > 0 || !s.mesh() {
		t.Errorf("the reflectors are %v, mesh %v; want none, and the mesh on", got, s.mesh())
	}
}
