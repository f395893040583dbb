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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

// edited is a Service of the hostile author's.
func edited(i int) string { return fmt.Sprintf("edited-%d", i) }

// othersTimes are how long others wait, in a cluster in which an author edits ten Services nine times a second for five
// minutes, or does not.
func othersTimes(t *testing.T, hostile bool) (join, edit time.Duration, calls int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, likeDigitalOcean())
		b.extras = everything
		for i := range 5 {
			b.member(fmt.Sprintf("node-%d", i))
		}
		for i := range 10 {
			b.serve(edited(i), int32(100+i)) //nolint:gosec // there are few
		}
		b.serve("others", 1, func(s *corev1.Service) { s.Namespace = "others" })
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
			elapse(2 * time.Minute)
			begun := time.Now()
			b.boot("new")
			b.join("new")
			b.set("others", "others", "7")
			for range 600 {
				targets, settings := b.arrived()
				if targets && join == 0 {
					join = time.Since(begun)
				}
				if settings && edit == 0 {
					edit = time.Since(begun)
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
	return join, edit, calls
}

// set changes a setting of a Service, as kubectl annotate does.
func (b *bubble) set(namespace, name, value string) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation.Prefix+"healthcheck-healthy-threshold", value)
	services := b.store.CoreV1().Services(namespace)
	if _, err := services.Patch(b.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		b.t.Error(err)
	}
}

// arrived reports whether the Node that joined is a target of all, and whether the setting of the other author is in place.
func (b *bubble) arrived() (targets, settings bool) {
	all := b.cloud.Account("").LoadBalancers()
	lacks := slices.ContainsFunc(all, func(lb sim.LoadBalancer) bool { return len(lb.DropletIDs) != 6 })
	_, has := b.settings("others", "others")
	return len(all) == 11 && !lacks, has == "7"
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

// One author who edits without end delays no Node that joins and no edit of another namespace, and is told; calls to
// DigitalOcean stay far below its limits.
func TestAHostileAuthorDelaysNobody(t *testing.T) {
	t.Parallel()
	join, edit, calls := othersTimes(t, false)
	joinBeside, editBeside, callsBeside := othersTimes(t, true)
	t.Logf("alone: a Node is a target of all after %s, an edit is in place after %s, %d calls; with the author: %s, %s, %d calls in %s",
		join, edit, calls, joinBeside, editBeside, callsBeside, 7*time.Minute)
	if join == 0 || edit == 0 || joinBeside == 0 || editBeside == 0 {
		t.Fatal("something did not happen at all")
	}
	if joinBeside > 2*join || editBeside > max(2*edit, 2*time.Second) {
		t.Errorf("others wait longer than twice their time")
	}
	if callsBeside > 600 {
		t.Errorf("%d calls in seven minutes", callsBeside)
	}
}
