// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// byHand makes a load balancer that looks in every way as if it were made for the world's Services, which have one port.
func (w *world) byHand(name string, tags []string) digitalocean.LoadBalancer {
	w.T.Helper()
	like := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	return w.upstream(like, annotation.TypeRegionalNetwork, func(b map[string]any) {
		b["name"] = name
		if b["tags"] = tags; tags == nil {
			delete(b, "tags")
		}
	})
}

// A load balancer that no Service of the cluster was recorded with is nobody's: neither its name, nor its ID, nor the cluster's tag, nor the
// very rules and machines of a Service make it that Service's, also where there are no tags to tell by. It is not changed, and not deleted.
func TestWhatIsNotRecordedIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		cluster bool // has an ID
		tagged  bool // with it
	}{
		"no cluster ID":               {},
		"made by hand":                {cluster: true},
		"left with the cluster's tag": {cluster: true, tagged: true},
	} {
		t.Run(name, func(t *testing.T) {
			places(t, func(t *testing.T, w *world, from place) {
				t.Helper()
				var tags []string
				if c.tagged {
					tags = []string{"k8s:" + w.Name}
				}
				if !c.cluster {
					w.cluster.ID = ""
				}
				w.cluster.DefaultType = annotation.TypeRegionalNetwork
				w.run()
				w.create("bystander")
				w.balancer("bystander")
				hand := w.byHand("kube-api", tags)
				mark := w.Sim.Mark()
				from.create("named", "name", "kube-api")
				from.refused("named", "kube-api", "it is left alone")
				from.create("asked", annotation.LoadBalancerID, hand.ID)
				from.refused("asked", "kube-api", "it is left alone")
				from.create("both", "name", "kube-api", annotation.LoadBalancerID, hand.ID)
				from.refused("both", "kube-api")
				from.untouched(mark, hand.ID)
				w.Stop() // nothing of it is a matter of memory
				w.run()
				from.untouched(mark, hand.ID)
				for _, name := range []string{"named", "asked", "both"} {
					from.remove(name)
				}
				from.untouched(mark, hand.ID)
			})
		})
	}
}

// What is recorded is found, whatever became of the annotations: a Service that lost them keeps its load balancer and its address, and one that is
// deleted takes its load balancer along, although its annotation names another's, one that is gone, or nothing at all.
func TestWhatIsRecordedIsFoundWithoutAnnotations(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		theirs, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "theirs", Tags: []string{"k8s:another"}})
		must.Do(w.T, err)
		gone := "00000000-0000-4000-8000-000000000000"
		ids := map[string]string{"foreign": theirs.ID, "gone": gone, "malformed": "no ID", "dots": ".."}
		w.run()
		for name := range ids {
			w.create(name, "name", w.Name+name)
		}
		mine := map[string]digitalocean.LoadBalancer{}
		for name := range ids {
			mine[name] = w.balancer(name)
		}
		w.Stop()
		for name := range ids {
			w.PatchService(name, map[string]any{"metadata": map[string]any{"annotations": nil}})
		}
		mark := w.Sim.Mark()
		w.run()
		for name := range ids {
			if lb := w.balancer(name); lb.ID != mine[name].ID {
				t.Errorf("service %s has %s, had %s", name, lb.ID, mine[name].ID)
			}
		}
		if got := w.Writes(mark); got[createRoute] != 0 {
			t.Errorf("writes %v, want none that makes one", got)
		}
		for name, id := range ids {
			w.annotate(name, annotation.LoadBalancerID, id)
		}
		w.resyncs()
		for name := range ids {
			must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), name, *deleteNow()))
		}
		for name := range ids {
			w.gone(name)
		}
		if left := w.Account.LoadBalancers(); len(left) != 1 || left[0].ID != theirs.ID {
			t.Errorf("left: %+v, want another cluster's alone", left)
		}
	})
}

// One that names what it may not have is no hindrance to one that may: an administrator's word is for the namespace that it names.
func TestASquatterDoesNotStopAHandOver(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		theirs, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "edge", Tags: []string{"k8s:another"}})
		must.Do(w.T, err)
		squatters := place{w, w.Name + "-b"}
		_, err = w.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: squatters.namespace}}, metav1.CreateOptions{})
		must.Do(w.T, err)
		w.run()
		squatters.create("older", annotation.LoadBalancerID, theirs.ID)
		squatters.refused("older", "it is left alone")
		w.ages()
		heirs := place{w, w.Name}
		heirs.allows(theirs.ID)
		w.create("heir", annotation.LoadBalancerID, theirs.ID)
		if lb := w.balancer("heir"); lb.ID != theirs.ID {
			t.Errorf("the heir has %s, want %s", lb.ID, theirs.ID)
		}
		squatters.refused("older", "it belongs to service "+w.Name+"/heir")
	})
}
