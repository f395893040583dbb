// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The framework deletes Nodes by their names. What has another UID by then, or has changed since it was given up, stays.
func TestOnlyTheNodeThatWasGivenUpIsDeleted(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, node *corev1.Node){
		"its name is another machine's": func(w *world, node *corev1.Node) {
			w.DeleteNode(node.Name)
			next := w.Droplet(sim.DropletSpec{Name: node.Name})
			w.join(node.Name, true, cloud.RunsOn(next), func(n *corev1.Node) { n.Spec.Taints = nil })
		},
		"its kubelet is back": func(w *world, node *corev1.Node) { w.SetReady(node.Name, true) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, sim.Options{Seed: 31}, func(t *testing.T, w *world) {
				fleet := w.fleet(3)
				node := must.Get(w.node(fleet[1].Name)).Or(t)
				at := nodesPath + node.Name
				refused := make(chan struct{})
				change := sync.OnceFunc(func() { meanwhile(w, node) })
				over := sync.OnceFunc(func() { close(refused) })
				w.Kube.Set(func(r *http.Request, served bool) error {
					switch {
					case r.Method != http.MethodDelete || r.URL.Path != at:
					case served:
						over()
					default:
						change()
					}
					return nil
				})
				w.SetReady(node.Name, false)
				w.DeleteDroplet(fleet[1].ID)
				<-refused
				w.Kube.Set(nil)
				w.asked(3)
				if _, err := w.node(node.Name); err != nil {
					t.Fatalf("a living Node was deleted: %v", err)
				}
				// One that is lost after all goes.
				w.SetReady(fleet[2].Name, false)
				w.DeleteDroplet(fleet[2].ID)
				var busy atomic.Bool
				w.Kube.Set(func(r *http.Request, _ bool) error {
					if r.Method == http.MethodDelete && !busy.Swap(true) {
						return cloud.StatusError(http.StatusTooManyRequests)
					}
					return nil
				})
				testkit.Eventually(t, "the other Node to go", func() string { return w.gone(fleet[2].Name) })
			})
		})
	}
}

// A Node that is lost and has changed in the moment of its deletion goes with the next decision, and one behind a proxy's path
// is bound like any other.
func TestAChangeOnlyDelaysADeletion(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 33}, func(t *testing.T, w *world) {
		lost := w.fleet(2)[1]
		var conflicts atomic.Int64
		w.Kube.Set(func(r *http.Request, served bool) error {
			if r.Method == http.MethodDelete && !served && conflicts.Add(1) == 1 {
				w.PatchNode(lost.Name, `{"metadata":{"annotations":{"example.com/touched":"yes"}}}`)
			}
			return nil
		})
		w.SetReady(lost.Name, false)
		w.DeleteDroplet(lost.ID)
		testkit.Eventually(t, "the Node to go", func() string { return w.gone(lost.Name) })
		if n := conflicts.Load(); n != 2 {
			t.Errorf("%d deletions were sent, want 2", n)
		}
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://proxy.example/k8s/c-1/api/v1/nodes/x", nil)).Or(t)
		response, err := w.machines.Deletions(http.NewFileTransport(http.Dir(t.TempDir()))).RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "node x is not deleted") {
			t.Errorf("the error is %v", err)
		}
	})
}

// A deletion that nobody has judged is not sent.
func TestADeletionThatNobodyJudgedIsNotSent(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 32}, func(t *testing.T, w *world) {
		fleet := w.fleet(1)
		err := w.program.CoreV1().Nodes().Delete(t.Context(), fleet[0].Name, metav1.DeleteOptions{})
		if err == nil || !strings.Contains(err.Error(), "its machine was not found to be gone") {
			t.Errorf("the error is %v", err)
		}
		if _, err := w.node(fleet[0].Name); err != nil {
			t.Error(err)
		}
		if _, is := w.machines.isGivenUp(fleet[0].Name); is {
			t.Error("the Node is given up")
		}
	})
}
