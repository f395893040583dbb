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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
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
			w := newWorld(t)
			from := place{w, w.name}
			if another {
				from.namespace = w.name + "-b"
				_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: from.namespace}}, metav1.CreateOptions{})
				w.must(err)
			}
			attack(t, w, from)
		})
	}
}

// create makes a Service in the place.
func (p place) create(name string, pairs ...string) {
	p.t.Helper()
	_, err := p.client.CoreV1().Services(p.namespace).Create(p.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.namespace, Labels: map[string]string{own: p.name}, Annotations: annotations(pairs)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	p.must(err)
}

// patch writes annotations.
func (p place) annotate(name string, pairs ...string) {
	p.t.Helper()
	parts := make([]string, 0, len(pairs)/2)
	for k, v := range annotations(pairs) {
		parts = append(parts, fmt.Sprintf("%q:%q", k, v))
	}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%s}}}`, strings.Join(parts, ","))
	_, err := p.client.CoreV1().Services(p.namespace).Patch(p.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	p.must(err)
}

// refused waits until a Service is told why it does not get a load balancer: by an event and by its condition.
func (p place) refused(name string, parts ...string) {
	p.t.Helper()
	testkit.Eventually(p.t, "a refusal of service "+name, func() string {
		s, err := p.client.CoreV1().Services(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{})
		p.must(err)
		c := meta.FindStatusCondition(s.Status.Conditions, loadbalancer.ConditionOwned)
		list, err := p.client.CoreV1().Events(p.namespace).List(p.t.Context(), metav1.ListOptions{})
		p.must(err)
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
		return fmt.Sprintf("condition %+v; %s", c, p.story())
	})
}

// remove deletes a Service and waits until it is gone.
func (p place) remove(name string) {
	p.t.Helper()
	p.must(p.client.CoreV1().Services(p.namespace).Delete(p.t.Context(), name, *deleteNow()))
	testkit.Eventually(p.t, "service "+name+" to go", func() string {
		if _, err := p.client.CoreV1().Services(p.namespace).Get(p.t.Context(), name, metav1.GetOptions{}); err == nil {
			return p.story()
		}
		return ""
	})
}

// untouched fails if anything was written to DigitalOcean since a mark.
func (p place) untouched(mark uint64, id string) {
	p.t.Helper()
	p.looked()
	if got := p.writes(mark); len(got) != 0 {
		p.t.Errorf("writes %v, want none; %s", got, p.story())
	}
	if _, err := p.account.LoadBalancer(id); err != nil {
		p.t.Errorf("the load balancer is gone: %v", err)
	}
}

// Naming the ID of a load balancer that another cluster or a person has made takes nothing over, whatever else the Service says.
func TestAnIDTakesNothingThatIsNotTheClusters(t *testing.T) {
	for owner, tags := range map[string][]string{"another cluster": {"k8s:another"}, "a person": {"by-hand"}} {
		t.Run(owner, func(t *testing.T) {
			places(t, func(_ *testing.T, w *world, from place) {
				var droplets []int
				for _, d := range w.account.Droplets() {
					droplets = append(droplets, d.ID)
				}
				theirs, err := w.account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "edge", Tags: tags, DropletIDs: droplets})
				w.must(err)
				w.run()
				w.create("bystander")
				w.balancer("bystander")
				mark := w.sim.Mark()
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
func TestAnOlderServiceDoesNotTakeAYoungerOnes(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		from.create("thief", annotation.Disown, "true")
		w.run()
		w.create("victim", "name", "edge")
		lb := w.balancer("victim")
		mark := w.sim.Mark()
		from.annotate("thief", annotation.LoadBalancerID, lb.ID, annotation.Disown, "false")
		from.refused("thief", `service `+w.name+`/victim, which has precedence`)
		from.untouched(mark, lb.ID)
		w.stop() // nothing of it is a matter of memory
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
func TestAHostnameInTheStatusProvesNothing(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		var droplets []int
		for _, d := range w.account.Droplets() {
			droplets = append(droplets, d.ID)
		}
		byHand, err := w.account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "by-hand", Tags: []string{"by-hand"}, DropletIDs: droplets})
		w.must(err)
		w.run()
		from.create("thief", "hostname", "thief.example", "name", "bait")
		testkit.Eventually(t, "the hostname in the thief's status", func() string {
			s, err := w.client.CoreV1().Services(from.namespace).Get(t.Context(), "thief", metav1.GetOptions{})
			w.must(err)
			return map[bool]string{true: w.story()}[published(s) != "thief.example"]
		})
		w.create("victim", "name", "edge")
		lb := w.balancer("victim")
		w.stop() // nothing of it is a matter of memory
		w.run()
		mark := w.sim.Mark()
		from.annotate("thief", "name", "edge", annotation.LoadBalancerID, lb.ID)
		from.refused("thief", "it belongs to service "+w.name+"/victim")
		from.annotate("thief", "name", "by-hand", annotation.LoadBalancerID, byHand.ID)
		from.refused("thief", "by-hand", "does not replace it by another one")
		from.untouched(mark, lb.ID)
		from.untouched(mark, byHand.ID)
	})
}

// A Service that loses its annotations, as by a tool that writes it as a whole, keeps its load balancer, though another one names that meanwhile.
func TestAServiceThatLosesItsAnnotationsKeepsItsLoadBalancer(t *testing.T) { //nolint:tparallel // likewise
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		from.create("thief", annotation.Disown, "true")
		w.run()
		w.create("victim", "name", "edge")
		lb := w.balancer("victim")
		w.stop()
		w.patch("victim", map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation.LoadBalancerID: nil}}})
		from.annotate("thief", annotation.LoadBalancerID, lb.ID, annotation.Disown, "false")
		mark := w.sim.Mark()
		w.run()
		from.refused("thief", "it belongs to service "+w.name+"/victim")
		if got := w.balancer("victim"); got.ID != lb.ID {
			t.Errorf("the victim has %s, had %s", got.ID, lb.ID)
		}
		from.remove("thief")
		from.untouched(mark, lb.ID)
	})
}

// A Service that has handed its load balancer over does not get it back by changing its mind, although it is older and its status shows the address
// still: who held it last has it.
func TestWhatWasHandedOverIsNotTakenBack(t *testing.T) { //nolint:tparallel // likewise
	places(t, func(t *testing.T, w *world, from place) {
		t.Helper()
		w.run()
		from.create("before", "name", "edge")
		var lb digitalocean.LoadBalancer
		testkit.Eventually(t, "a load balancer", func() string {
			s, err := w.client.CoreV1().Services(from.namespace).Get(t.Context(), "before", metav1.GetOptions{})
			w.must(err)
			lb, err = w.account.LoadBalancer(s.Annotations[annotation.LoadBalancerID])
			return map[bool]string{true: w.story()}[err != nil || published(s) == "" || published(s) != lb.IP]
		})
		from.annotate("before", annotation.Disown, "true")
		w.create("after", "name", "edge", annotation.LoadBalancerID, lb.ID)
		if got := w.balancer("after"); got.ID != lb.ID {
			t.Fatalf("it was handed %s, want %s", got.ID, lb.ID)
		}
		w.stop() // nothing of it is a matter of memory
		w.run()
		w.balancer("after")
		mark := w.sim.Mark()
		from.annotate("before", annotation.Disown, "false")
		from.refused("before", "it belongs to service "+w.name+"/after")
		from.remove("before")
		from.untouched(mark, lb.ID)
		if got := w.balancer("after"); got.ID != lb.ID {
			t.Errorf("it has %s, want %s", got.ID, lb.ID)
		}
	})
}

// A Service that has a load balancer does not change it for one that is free, and the name of one that was let go takes nothing either.
func TestWhatAServiceHasIsNotChangedForAnother(t *testing.T) { //nolint:tparallel // likewise
	places(t, func(_ *testing.T, w *world, from place) {
		w.run()
		w.create("kept", "name", "edge")
		free := w.balancer("kept")
		w.annotate("kept", annotation.Disown, "true")
		from.create("greedy")
		has := place{w, from.namespace}
		testkit.Eventually(w.t, "an address", func() string {
			s, err := has.client.CoreV1().Services(has.namespace).Get(w.t.Context(), "greedy", metav1.GetOptions{})
			w.must(err)
			return map[bool]string{true: w.story()}[published(s) == ""]
		})
		mark := w.sim.Mark()
		from.annotate("greedy", annotation.LoadBalancerID, free.ID)
		from.refused("greedy", "does not replace it by another one")
		from.create("namesake", "name", "edge")
		from.refused("namesake", "it belongs to service "+w.name+"/kept")
		from.untouched(mark, free.ID)
	})
}

// The documented ways to hand a load balancer over: within a cluster by letting go and naming the ID, and between clusters with an administrator's word. What
// was handed over stays when its new Service goes, unless that says otherwise.
func TestHandOver(t *testing.T) {
	for name, c := range map[string]struct {
		allow func(w *world, from place, id string)
		tags  []string
	}{
		"within the cluster": {allow: func(*world, place, string) {}},
		"by an annotation of the namespace": {tags: []string{"k8s:another"}, allow: func(w *world, from place, id string) {
			body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, loadbalancer.TakeOverAnnotation, "x, "+id)
			_, err := w.client.CoreV1().Namespaces().Patch(w.t.Context(), from.namespace, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			w.must(err)
		}},
		"by a flag": {tags: []string{"k8s:another"}, allow: func(w *world, _ place, _ string) { w.takeOver = true }},
	} {
		t.Run(name, func(t *testing.T) {
			places(t, func(t *testing.T, w *world, from place) {
				t.Helper()
				var lb digitalocean.LoadBalancer
				if c.tags != nil {
					var err error
					lb, err = w.account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "edge", Tags: c.tags})
					w.must(err)
					c.allow(w, from, lb.ID)
					w.run()
				} else {
					w.run()
					w.create("before", "name", "edge")
					lb = w.balancer("before")
					w.annotate("before", annotation.Disown, "true")
				}
				from.create("after", "name", "edge", annotation.LoadBalancerID, lb.ID)
				testkit.Eventually(t, "the hand-over", func() string {
					s, err := w.client.CoreV1().Services(from.namespace).Get(t.Context(), "after", metav1.GetOptions{})
					w.must(err)
					if now, err := w.account.LoadBalancer(lb.ID); err == nil && published(s) == now.IP && now.IP != "" && s.Annotations[loadbalancer.HandedOverAnnotation] == lb.ID &&
						len(now.Tags) == 1 && now.Tags[0] == "k8s:"+w.name {
						return ""
					}
					return fmt.Sprintf("%v; %s", s.Annotations, w.story())
				})
				from.remove("after")
				if _, err := w.account.LoadBalancer(lb.ID); err != nil {
					t.Errorf("it was deleted with the Service that it was handed over to: %v", err)
				}
			})
		})
	}
}
