// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// place is a namespace in which somebody may write Services.
type place struct {
	*world

	namespace string
}

// places runs an attack on a Service of the world's own namespace from the same one, and from another.
func places(t *testing.T, attack func(t *testing.T, w *world, from place)) {
	t.Helper()
	for _, another := range []bool{false, true} {
		t.Run(map[bool]string{false: "same namespace", true: "another namespace"}[another], func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				from := place{w, w.Name}
				if another {
					from.namespace = w.Name + "-b"
					_, err := w.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: from.namespace}}, metav1.CreateOptions{})
					must.Do(w.T, err)
				}
				attack(t, w, from)
			})
		})
	}
}

// create makes a Service in the place.
func (p place) create(name string, pairs ...string) {
	p.T.Helper()
	p.createIn(p.namespace, name, pairs...)
}

// patch writes annotations.
func (p place) annotate(name string, pairs ...string) {
	p.T.Helper()
	parts := make([]string, 0, len(pairs)/2)
	for k, v := range annotations(pairs) {
		parts = append(parts, fmt.Sprintf("%q:%q", k, v))
	}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, strings.Join(parts, ","))
	_, err := p.Client.CoreV1().Services(p.namespace).Patch(p.T.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	must.Do(p.T, err)
}

// allows is an administrator who lets the place's Services take load balancers over.
func (p place) allows(ids string) {
	p.T.Helper()
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, loadbalancer.TakeOverAnnotation, ids)
	_, err := p.Client.CoreV1().Namespaces().Patch(p.T.Context(), p.namespace, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	must.Do(p.T, err)
}

// refused waits until a Service is told why it does not get a load balancer: by an event and by its condition.
func (p place) refused(name string, parts ...string) {
	p.T.Helper()
	testkit.Eventually(p.T, "a refusal of service "+name, func() string {
		s := must.Get(p.Client.CoreV1().Services(p.namespace).Get(p.T.Context(), name, metav1.GetOptions{})).Or(p.T)
		c := meta.FindStatusCondition(s.Status.Conditions, loadbalancer.ConditionOwned)
		list := must.Get(p.Client.CoreV1().Events(p.namespace).List(p.T.Context(), metav1.ListOptions{})).Or(p.T)
		for _, e := range list.Items {
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "LoadBalancerForeign" || e.InvolvedObject.Name != name || e.Reason != c.Reason || e.Message != c.Message {
				continue
			}
			missing := false
			for _, part := range parts {
				missing = missing || !strings.Contains(c.Message, part)
			}
			if !missing {
				return ""
			}
		}
		return fmt.Sprintf("condition %+v; %s", c, p.Story())
	})
}

// remove deletes a Service and waits until it is gone.
func (p place) remove(name string) {
	p.T.Helper()
	must.Do(p.T, p.Client.CoreV1().Services(p.namespace).Delete(p.T.Context(), name, *deleteNow()))
	testkit.Eventually(p.T, "service "+name+" to go", func() string {
		if _, err := p.Client.CoreV1().Services(p.namespace).Get(p.T.Context(), name, metav1.GetOptions{}); err == nil {
			return p.Story()
		}
		return ""
	})
}

// untouched fails if anything was written to DigitalOcean since a mark.
func (p place) untouched(mark uint64, id string) {
	p.T.Helper()
	p.resyncs()
	if got := p.Writes(mark); len(got) != 0 {
		p.T.Errorf("writes %v, want none; %s", got, p.Story())
	}
	if _, err := p.Account.LoadBalancer(id); err != nil {
		p.T.Errorf("the load balancer is gone: %v", err)
	}
}

// Naming the ID of a load balancer that another cluster or a person has made takes nothing over, whatever else the Service says.
func TestAnIDTakesNothingThatIsNotTheClusters(t *testing.T) {
	for owner, tags := range map[string][]string{"another cluster": {"k8s:another"}, "a person": {"by-hand"}} {
		t.Run(owner, func(t *testing.T) {
			places(t, func(_ *testing.T, w *world, from place) {
				var droplets []int
				for _, d := range w.Account.Droplets() {
					droplets = append(droplets, d.ID)
				}
				theirs, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "edge", Tags: tags, DropletIDs: droplets})
				must.Do(w.T, err)
				w.run()
				w.create("bystander")
				w.balancer("bystander")
				mark := w.Sim.Mark()
				from.create("thief", "name", "edge", annotation.LoadBalancerID, theirs.ID)
				from.refused("thief", "edge", "it is left alone", "kubectl annotate namespace "+from.namespace+" "+loadbalancer.TakeOverAnnotation+"="+theirs.ID)
				from.untouched(mark, theirs.ID)
				from.remove("thief")
				from.untouched(mark, theirs.ID)
			})
		})
	}
}

// An older Service does not get the load balancer of a younger one, whose name tells nothing, and its deletion does not take that along.
func TestAnOlderServiceDoesNotTakeAYoungerOnes(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		from.create("thief", annotation.Disown, "true")
		w.run()
		w.create("victim", "name", "edge")
		lb := w.balancer("victim")
		mark := w.Sim.Mark()
		from.annotate("thief", annotation.LoadBalancerID, lb.ID, annotation.Disown, "false")
		from.refused("thief", `service `+w.Name+`/victim, which has precedence`)
		from.untouched(mark, lb.ID)
		w.Stop() // nothing of it is a matter of memory
		w.run()
		from.untouched(mark, lb.ID)
		from.remove("thief")
		from.untouched(mark, lb.ID)
		if got := w.balancer("victim"); got.ID != lb.ID {
			t.Errorf("the victim has %s, had %s", got.ID, lb.ID)
		}
	})
}

// A Service that asks for a hostname has that in its status, which proves nothing: it gets neither the load balancer of a younger Service by that one's
// name and ID, nor one that a person has made for the cluster's machines.
func TestAHostnameInTheStatusProvesNothing(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		var droplets []int
		for _, d := range w.Account.Droplets() {
			droplets = append(droplets, d.ID)
		}
		byHand, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "by-hand", Tags: []string{"by-hand"}, DropletIDs: droplets})
		must.Do(w.T, err)
		w.run()
		from.create("thief", "hostname", "thief.example", "name", "bait")
		testkit.Eventually(t, "the hostname in the thief's status", func() string {
			s := must.Get(w.Client.CoreV1().Services(from.namespace).Get(t.Context(), "thief", metav1.GetOptions{})).Or(w.T)
			return map[bool]string{true: w.Story()}[published(s) != "thief.example"]
		})
		w.create("victim", "name", "edge")
		lb := w.balancer("victim")
		w.Stop() // nothing of it is a matter of memory
		w.run()
		mark := w.Sim.Mark()
		from.annotate("thief", "name", "edge", annotation.LoadBalancerID, lb.ID)
		from.refused("thief", "it belongs to service "+w.Name+"/victim")
		from.annotate("thief", "name", "by-hand", annotation.LoadBalancerID, byHand.ID)
		from.refused("thief", "by-hand", "does not replace it by another one")
		from.untouched(mark, lb.ID)
		from.untouched(mark, byHand.ID)
	})
}

// A Service that loses its annotations, as by a tool that writes it as a whole, keeps its load balancer, though another one names that meanwhile.
func TestAServiceThatLosesItsAnnotationsKeepsItsLoadBalancer(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		from.create("thief", annotation.Disown, "true")
		w.run()
		w.create("victim", "name", "edge")
		lb := w.balancer("victim")
		w.Stop()
		w.PatchService("victim", map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation.LoadBalancerID: nil}}})
		from.annotate("thief", annotation.LoadBalancerID, lb.ID, annotation.Disown, "false")
		mark := w.Sim.Mark()
		w.run()
		from.refused("thief", "it belongs to service "+w.Name+"/victim")
		if got := w.balancer("victim"); got.ID != lb.ID {
			t.Errorf("the victim has %s, had %s", got.ID, lb.ID)
		}
		from.remove("thief")
		from.untouched(mark, lb.ID)
	})
}

// A Service that has handed its load balancer over does not get it back by changing its mind, although it is older and its status shows the address
// still: who held it last has it.
func TestWhatWasHandedOverIsNotTakenBack(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		w.run()
		from.create("before", "name", "edge")
		var lb digitalocean.LoadBalancer
		testkit.Eventually(t, "a load balancer", func() string {
			s, err := w.Client.CoreV1().Services(from.namespace).Get(t.Context(), "before", metav1.GetOptions{})
			must.Do(w.T, err)
			lb, err = w.Account.LoadBalancer(s.Annotations[annotation.LoadBalancerID])
			return map[bool]string{true: w.Story()}[err != nil || published(s) == "" || published(s) != lb.IP]
		})
		from.annotate("before", annotation.Disown, "true")
		if from.namespace != w.Name {
			place{w, w.Name}.allows(lb.ID)
		}
		w.create("after", "name", "edge", annotation.LoadBalancerID, lb.ID)
		if got := w.balancer("after"); got.ID != lb.ID {
			t.Fatalf("it was handed %s, want %s", got.ID, lb.ID)
		}
		w.Stop() // nothing of it is a matter of memory
		w.run()
		w.balancer("after")
		mark := w.Sim.Mark()
		from.annotate("before", annotation.Disown, "false")
		from.refused("before", "it belongs to service "+w.Name+"/after")
		from.remove("before")
		from.untouched(mark, lb.ID)
		if got := w.balancer("after"); got.ID != lb.ID {
			t.Errorf("it has %s, want %s", got.ID, lb.ID)
		}
	})
}

// A Service that has a load balancer does not change it for one that is free, and the name of one that was let go takes nothing either.
func TestWhatAServiceHasIsNotChangedForAnother(t *testing.T) {
	t.Parallel()
	places(t, func(_ *testing.T, w *world, from place) {
		w.run()
		w.create("kept", "name", "edge")
		free := w.balancer("kept")
		w.annotate("kept", annotation.Disown, "true")
		from.create("greedy")
		has := place{w, from.namespace}
		testkit.Eventually(w.T, "an address", func() string {
			s := must.Get(has.Client.CoreV1().Services(has.namespace).Get(w.T.Context(), "greedy", metav1.GetOptions{})).Or(w.T)
			return map[bool]string{true: w.Story()}[published(s) == ""]
		})
		mark := w.Sim.Mark()
		from.annotate("greedy", annotation.LoadBalancerID, free.ID)
		from.refused("greedy", "does not replace it by another one")
		from.create("namesake", "name", "edge")
		from.refused("namesake", "it belongs to service "+w.Name+"/kept")
		from.untouched(mark, free.ID)
	})
}

// The documented ways to hand a load balancer over: within a namespace by letting go and naming the ID, and between namespaces and clusters with an
// administrator's word. What was handed over stays when its new Service goes, unless that says otherwise.
func TestHandOver(t *testing.T) {
	for name, c := range map[string]struct {
		allow func(w *world, from place, id string)
		tags  []string
	}{
		"within the cluster":                {allow: func(*world, place, string) {}},
		"by an annotation of the namespace": {tags: []string{"k8s:another"}, allow: func(_ *world, from place, id string) { from.allows("x, " + id) }},
		"by a flag":                         {tags: []string{"k8s:another"}, allow: func(w *world, _ place, _ string) { w.takeOver = true }},
	} {
		t.Run(name, func(t *testing.T) {
			places(t, func(t *testing.T, w *world, from place) {
				t.Helper()
				var lb digitalocean.LoadBalancer
				if c.tags != nil {
					var err error
					lb, err = w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "edge", Tags: c.tags})
					must.Do(w.T, err)
					c.allow(w, from, lb.ID)
					w.run()
				} else {
					w.run()
					w.create("before", "name", "edge")
					lb = w.balancer("before")
					w.annotate("before", annotation.Disown, "true")
					if from.namespace != w.Name { // what a Service lets go is free in its own namespace
						from.create("too-early", annotation.LoadBalancerID, lb.ID)
						from.refused("too-early", "it was released by service "+w.Name+"/before, for services of that namespace")
						from.remove("too-early")
						from.allows(lb.ID)
					}
				}
				from.create("after", "name", "edge", annotation.LoadBalancerID, lb.ID)
				testkit.Eventually(t, "the hand-over", func() string {
					s := must.Get(w.Client.CoreV1().Services(from.namespace).Get(t.Context(), "after", metav1.GetOptions{})).Or(w.T)
					held := meta.FindStatusCondition(s.Status.Conditions, loadbalancer.ConditionHeld)
					if now, err := w.Account.LoadBalancer(lb.ID); err == nil && published(s) == now.IP && now.IP != "" &&
						held != nil && held.Message == lb.ID && held.Reason == loadbalancer.RecordTakenOver && len(now.Tags) == 1 && now.Tags[0] == "k8s:"+w.Name {
						return ""
					}
					return fmt.Sprintf("%v; %s", s.Annotations, w.Story())
				})
				from.remove("after")
				if _, err := w.Account.LoadBalancer(lb.ID); err != nil {
					t.Errorf("it was deleted with the Service that it was handed over to: %v", err)
				}
			})
		})
	}
}
