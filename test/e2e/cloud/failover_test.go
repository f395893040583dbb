// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// acquired is what a replica's log says when it begins to lead (client-go).
const acquired = "uccessfully acquired lease"

// The leader of two replicas ends, by a roll-out (SIGTERM) or as a machine dies (kill -9), at the moment in which a Service and a machine are new.
// The other one takes over: each Service has one load balancer, which was made once, no change is sent twice, and the Lease has moved. How long it
// took until the Service had its address and the Node was initialized is printed, with the release's election (15 s, 10 s, 2 s), and not asserted.
func TestFailover(t *testing.T) {
	t.Parallel()
	trials := 30
	if testing.Short() {
		trials = 2
	}
	w := newMoved(t)
	w.install(false)
	w.initialize(w.join("node-1"))
	w.runFromPage("## Two replicas, fewer rights and probes", ourImage)
	f := &failover{moved: w, leader: w.startPod()}
	w.leader(f.leader)
	f.other = w.startPod()
	f.waits()
	for _, way := range []struct {
		name string
		end  func(*pod)
	}{
		{"SIGTERM", func(p *pod) { p.Signal(syscall.SIGTERM) }},
		{"kill -9", func(p *pod) { p.Signal(syscall.SIGKILL) }},
	} {
		var leads, addresses, initializations []time.Duration
		for i := range trials {
			m := f.trial(fmt.Sprintf("%s-%d", strings.ToLower(strings.Fields(way.name)[0]), i), i%2 == 0, way.end)
			leads, addresses, initializations = append(leads, m.leads), append(addresses, m.address), append(initializations, m.initialized)
		}
		t.Logf("%s, %d trials: the other leads after %s; a new Service has its address after %s; a new Node is initialized after %s",
			way.name, trials, spread(leads), spread(addresses), spread(initializations))
	}
}

// spread is the least, the middle and the most.
func spread(all []time.Duration) string {
	all = slices.Sorted(slices.Values(all))
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	return fmt.Sprintf("%s/%s/%s", round(all[0]), round(all[len(all)/2]), round(all[len(all)-1]))
}

// failover is a cluster with two replicas.
type failover struct {
	*moved

	leader, other *pod
}

// measured is how long what took, from the end of the leader on.
type measured struct{ leads, address, initialized time.Duration }

// lease is that of the election.
func (f *failover) lease() coordinationv1.LeaseSpec {
	f.t.Helper()
	l, err := f.cluster.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(f.t.Context(), account, metav1.GetOptions{})
	f.must(err)
	return l.Spec
}

// waits until the other replica is there and wants the Lease.
func (f *failover) waits() {
	f.t.Helper()
	testkit.Eventually(f.t, "the other replica to want the Lease", func() string {
		if !strings.Contains(f.other.Output(), "ttempting to acquire leader lease") {
			return f.other.Output()
		}
		return ""
	})
}

// trial ends the leader. What is to be done comes right before, so that the leader may have begun with it, or right after.
func (f *failover) trial(name string, before bool, end func(*pod)) measured {
	f.t.Helper()
	mark, old := f.cloud.Mark(), f.lease()
	work := func() {
		f.create(balanced{service: written(name, nil, 80), request: network})
		f.join(name)
	}
	if before {
		work()
	}
	began := time.Now()
	end(f.leader)
	if !before {
		work()
	}
	var m measured
	note := func(d *time.Duration, lack string) bool {
		if *d == 0 && lack == "" {
			*d = time.Since(began)
		}
		return *d != 0
	}
	testkit.Eventually(f.t, "the other replica to do the work", func() string {
		address, initialized, lead := f.served(name), f.ready(name), f.leads(old)
		done := note(&m.address, address)
		done = note(&m.initialized, initialized) && done
		if done = note(&m.leads, lead) && done; !done {
			return address + "; " + initialized + "; " + lead
		}
		return ""
	})
	<-f.leader.Done()
	now := f.lease()
	if *now.HolderIdentity == *old.HolderIdentity || *now.LeaseTransitions <= *old.LeaseTransitions {
		f.t.Errorf("%s: the Lease has not moved: it was %+v and is %+v", name, old, now)
	}
	f.targeted()
	f.once(mark, name)
	f.leader, f.other = f.other, f.startPod()
	f.waits()
	f.cleanUp(name)
	return m
}

// leads reports that nobody else has the Lease yet.
func (f *failover) leads(old coordinationv1.LeaseSpec) string {
	if holder := ptr.Deref(f.lease().HolderIdentity, ""); holder == "" || holder == *old.HolderIdentity {
		return fmt.Sprintf("the Lease is %q's", holder)
	}
	return ""
}

// served says what the Service lacks.
func (f *failover) served(name string) string {
	s, err := f.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil || len(s.Status.LoadBalancer.Ingress) == 0 {
		return fmt.Sprintf("the Service has no address (%v)", err)
	}
	return ""
}

// ready says what the Node lacks.
func (f *failover) ready(name string) string {
	n, err := f.cluster.Client.CoreV1().Nodes().Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil || uninitialized(n) {
		return fmt.Sprintf("the Node is not initialized (%v)", err)
	}
	return ""
}

// targeted waits until all load balancers serve all machines.
func (f *failover) targeted() {
	f.t.Helper()
	testkit.Eventually(f.t, "the new machine to be a target", func() string {
		for _, lb := range f.outside.LoadBalancers() {
			if !slices.Equal(lb.DropletIDs, f.droplets) {
				return fmt.Sprintf("%s has the targets %v, want %v", lb.Name, lb.DropletIDs, f.droplets)
			}
		}
		return ""
	})
}

// once fails unless there is one load balancer for the Service, which one POST has made, and no change was sent twice.
func (f *failover) once(mark uint64, name string) {
	f.t.Helper()
	s, err := f.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Get(f.t.Context(), name, metav1.GetOptions{})
	f.must(err)
	if all := f.outside.LoadBalancers(); len(all) != len(f.balanced) || s.Annotations[annotation.LoadBalancerID] != all[len(all)-1].ID {
		f.t.Errorf("%s: load balancers %+v for %d Services; the annotation is %q", name, all, len(f.balanced), s.Annotations[annotation.LoadBalancerID])
	}
	posts, sent := 0, map[string]bool{}
	for _, e := range f.writesSince(mark) {
		what := e.Method + " " + e.URL + " " + string(e.Body)
		if sent[what] {
			f.t.Errorf("%s: sent twice: %s", name, what)
		}
		sent[what] = true
		if e.Route == "POST /v2/load_balancers" {
			posts++
		}
		if e.Method == http.MethodPut || e.Method == http.MethodDelete {
			f.t.Errorf("%s: nothing asks for %s", name, what)
		}
	}
	if posts != 1 {
		f.t.Errorf("%s: %d POSTs, want one", name, posts)
	}
}

// cleanUp removes the Service and the machine, and waits until the new leader has done its part of it.
func (f *failover) cleanUp(name string) {
	f.t.Helper()
	services, nodes := f.cluster.Client.CoreV1().Services(metav1.NamespaceDefault), f.cluster.Client.CoreV1().Nodes()
	f.must(services.Delete(f.t.Context(), name, metav1.DeleteOptions{}))
	testkit.Eventually(f.t, "the Service and its load balancer to go", func() string {
		_, err := services.Get(f.t.Context(), name, metav1.GetOptions{})
		if count := len(f.outside.LoadBalancers()); !apierrors.IsNotFound(err) || count != 0 {
			return fmt.Sprintf("%d load balancers (%v)", count, err)
		}
		return ""
	})
	delete(f.balanced, name)
	f.must(nodes.Delete(f.t.Context(), name, metav1.DeleteOptions{}))
	f.must(f.outside.DeleteDroplet(name))
	f.droplets = f.droplets[:1]
}
