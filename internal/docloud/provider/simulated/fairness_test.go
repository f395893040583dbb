// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// edited is a Service of the hostile author's.
func edited(i int) string { return fmt.Sprintf("edited-%d", i) }

// The names of the load balancers that another author's Services get, of one that is made meanwhile and of one that goes.
const making, leaving = "auidmaking", "auidleaving"

// waits are how long others wait for what they do, by what it is.
type waits map[string]time.Duration

// othersTimes are how long others wait, in a cluster in which an author edits ten Services nine times a second, or does
// not.
func othersTimes(t *testing.T, hostile bool) (waited waits, calls int) {
	t.Helper()
	waited = waits{}
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, likeDigitalOcean())
		b.extras = everything
		for i := range 5 {
			b.member(fmt.Sprintf("node-%d", i))
		}
		for i := range 10 {
			b.serve(edited(i), int32(100+i)) //nolint:gosec // there are few
		}
		others := func(s *corev1.Service) { s.Namespace = "others" }
		b.serve("others", 1, others)
		b.serve("leaving", 2, others)
		b.start(death{})
		defer b.stop()
		elapse(30 * time.Minute)
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := 0; hostile; n++ {
				for i := range 10 {
					b.set("default", edited(i), fmt.Sprint(2+n%8))
				}
				select {
				case <-stop:
					return
				case <-time.After(110 * time.Millisecond):
				}
			}
		}()
		spent := b.spent(func() {
			elapse(time.Duration(cases.Number(t, 1, 4, 4)) * 30 * time.Second)
			begun := time.Now()
			b.boot("new")
			b.join("new")
			b.set("others", "others", "7")
			b.serve("making", 3, others)
			b.remove("others", "leaving")
			// A change is tried for as long as others wait, CI for half a minute more, the night for five minutes.
			for all := cases.Number(t, 1, 60, 600); all > 0 || len(waited) < 4 && time.Since(begun) < 5*time.Minute; all-- {
				for what, done := range b.done() {
					if _, before := waited[what]; done && !before {
						waited[what] = time.Since(begun)
					}
				}
				elapse(time.Second / 2)
			}
		})
		calls = spent.Total
		if hostile && !slices.ContainsFunc(b.events(), func(e corev1.Event) bool {
			return e.InvolvedObject.Name == edited(0) && e.Reason == loadbalancer.ReasonHeldBack
		}) {
			t.Error("the author is not told that changes are held back")
		}
		close(stop)
		<-done
		elapse(2 * time.Minute)
		if wanted, has := b.settings("default", edited(0)); hostile && has != wanted {
			t.Errorf("the last settings are not sent: %s, want %s", has, wanted)
		}
	})
	return waited, calls
}

// set changes a setting of a Service, as kubectl annotate does.
func (b *bubble) set(namespace, name, value string) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation.Prefix+"healthcheck-healthy-threshold", value)
	services := b.store.CoreV1().Services(namespace)
	if _, err := services.Patch(b.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.t.Error(err)
	}
}

// remove deletes a Service, as kubectl delete does.
func (b *bubble) remove(namespace, name string) {
	services := b.store.CoreV1().Services(namespace)
	s, err := services.Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Error(err)
		return
	}
	s.DeletionTimestamp = new(metav1.Now())
	// Whoever writes it at the same moment takes it away.
	if _, err := services.Update(b.t.Context(), s, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		b.t.Error(err)
	}
}

// done reports what of the others' deeds is done: the Node that joined is a target of all, the setting of the other author
// is in place, the new Service has its address, and the load balancer of the deleted one is gone with it.
func (b *bubble) done() map[string]bool {
	all := b.cloud.Account("").LoadBalancers()
	lacks := slices.ContainsFunc(all, func(lb sim.LoadBalancer) bool {
		return len(lb.DropletIDs) != 6 && lb.Name != making && lb.Name != leaving
	})
	_, has := b.settings("others", "others")
	addresses := b.addresses()
	_, there := addresses["leaving"]
	return map[string]bool{
		"a Node joins": !lacks, "an edit": has == "7", "a new Service": addresses["making"] != "",
		"a deletion": !there && !slices.ContainsFunc(all, func(lb sim.LoadBalancer) bool { return lb.Name == leaving }),
	}
}

// settings are what a Service asks for, and what its load balancer has.
func (b *bubble) settings(namespace, name string) (wanted, has string) {
	s, err := b.store.CoreV1().Services(namespace).Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Error(err)
		return "", ""
	}
	for _, lb := range b.cloud.Account("").LoadBalancers() {
		if lb.ID == s.Annotations[annotation.LoadBalancerID] {
			has = fmt.Sprint(lb.HealthCheck.HealthyThreshold)
		}
	}
	return s.Annotations[annotation.Prefix+"healthcheck-healthy-threshold"], has
}

// One author who edits without end delays no Node that joins and no edit, Service or deletion of another namespace, and is
// told; calls to DigitalOcean stay far below its limits.
func TestAHostileAuthorDelaysNobody(t *testing.T) {
	t.Parallel()
	alone, calls := othersTimes(t, false)
	beside, callsBeside := othersTimes(t, true)
	t.Logf("alone: %v, %d calls; with the author: %v, %d calls", alone, calls, beside, callsBeside)
	if len(alone) != 4 || len(beside) != 4 {
		t.Fatal("something did not happen at all")
	}
	for what, took := range beside {
		most := 2 * alone[what]
		if what == "an edit" || what == "a deletion" {
			most = max(most, 2*time.Second) // alone they take less than is measured
		}
		if took > most {
			t.Errorf("%s takes %s with the author, %s without: more than twice as long", what, took, alone[what])
		}
	}
	if callsBeside > 600 {
		t.Errorf("%d calls", callsBeside)
	}
}
