// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// counting is a DigitalOcean where all droplets are off, and which counts what it was asked.
type counting map[int]int

// Droplet implements API.
func (c counting) Droplet(_ context.Context, id int) (instance.Droplet, error) {
	c[id]++
	return instance.Droplet{ID: id, Status: instance.StatusOff}, nil
}

// Epoch implements API.
func (counting) Epoch() uint64 { return 0 }

// offAtOnce is a controller that has seen so many machines go off, by a clock of the test.
func offAtOnce(n int) (*Controller, *testingclock.FakeClock, counting, *fake.Clientset) {
	clock, api, client := testingclock.NewFakeClock(time.Now()), counting{}, fake.NewClientset()
	c := New(Options{API: api, Clock: clock, Log: logr.Discard(), Enabled: true, Config: outofservice.DefaultConfig()})
	c.client = client
	for i := range n {
		name := fmt.Sprintf("n%04d", i)
		c.seen[types.UID(name)] = &sighting{Machine: outofservice.Machine{Node: name, UID: name, Droplet: i + 1, State: outofservice.StateOff, NotReadySince: clock.Now()}}
	}
	return c, clock, api, client
}

// addLeases gives all machines a Lease that was renewed now.
func addLeases(t *testing.T, c *Controller, client *fake.Clientset) {
	t.Helper()
	for _, s := range c.seen {
		now := metav1.NewMicroTime(c.Clock.Now())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: s.Node}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
		must.Do(t, client.Tracker().Add(lease))
	}
}

// However many machines there are, their Leases are one request, and not more often than they are renewed.
func TestLeasesAreOneList(t *testing.T) {
	t.Parallel()
	c, clock, _, client := offAtOnce(2500)
	addLeases(t, c, client)
	for range 4 {
		c.readLeases(t.Context())
		clock.Step(5 * time.Second)
	}
	if n := len(client.Actions()); n != 2 {
		t.Errorf("%d requests in 15 seconds", n)
	}
	for _, s := range c.seen {
		if silent := s.Lease.ReadAt.Sub(s.Lease.SilentSince); silent != 10*time.Second {
			t.Fatalf("%s is silent for %s", s.Node, silent)
		}
	}
}

// While Leases could not be read, kubelets may have renewed them: what was silent before counts from then on.
func TestNobodyIsSilentUnread(t *testing.T) {
	t.Parallel()
	c, clock, _, client := offAtOnce(3)
	addLeases(t, c, client)
	c.readLeases(t.Context())
	clock.Step(time.Minute)
	c.readLeases(t.Context())
	for _, s := range c.seen {
		if !s.Lease.SilentSince.Equal(clock.Now()) || s.MissedRenewal(clock.Now(), c.Config) {
			t.Errorf("%s is silent since %s", s.Node, s.Lease.SilentSince)
		}
	}
}

// askAll does what a round does with what a plan needs.
func askAll(t *testing.T, c *Controller, p outofservice.Plan) {
	t.Helper()
	for _, n := range needs(p) {
		if learn, err := c.ask(t.Context(), &scene{}, n); err != nil {
			t.Fatal(err)
		} else if learn != nil {
			learn()
		}
	}
}

// Six hundred Nodes of active droplets that are not ready do not keep a droplet that is off from being proven.
func TestActiveOnesTakeNoTurn(t *testing.T) {
	t.Parallel()
	c, clock, api, _ := offAtOnce(601)
	var p outofservice.Plan
	p.Ask = []int{601}
	for id := range 600 {
		p.AskLater = append(p.AskLater, id+1)
	}
	for range 12 {
		askAll(t, c, p)
		clock.Step(5 * time.Second)
	}
	if api[601] < 8 {
		t.Errorf("it was read %d times in a minute", api[601])
	}
	total := 0
	for _, n := range api {
		total += n
	}
	if total < 20 || total > 30+12 {
		t.Errorf("%d GETs in a minute", total)
	}
}

// While no droplet is called active, all calls are for those that are off.
func TestAllTurnsAreForThoseThatAreOff(t *testing.T) {
	t.Parallel()
	c, clock, api, _ := offAtOnce(600)
	var p outofservice.Plan
	for id := range 600 {
		p.Ask = append(p.Ask, id+1)
	}
	for range 12 {
		askAll(t, c, p)
		clock.Step(5 * time.Second)
	}
	total := 0
	for _, n := range api {
		total += n
	}
	if total < 30+8 || total > 30+12 {
		t.Errorf("%d GETs in a minute", total)
	}
}

// What a kubelet renewed before its machine went off says nothing about whether the machine is back.
func TestRenewalsOfBeforeDoNotCount(t *testing.T) {
	t.Parallel()
	c, clock, _, client := offAtOnce(2)
	addLeases(t, c, client)
	c.readLeases(t.Context())
	clock.Step(10 * time.Second)
	for _, s := range c.seen {
		s.Ours, s.Lease.RenewedSince = true, clock.Now()
	}
	c.seen["n0001"].State = outofservice.StateActive
	c.readLeases(t.Context())
	if at := c.seen["n0001"].Lease.RenewedSince; at.IsZero() {
		t.Error("a machine that is back is forgotten")
	}
	if at := c.seen["n0000"].Lease.RenewedSince; !at.IsZero() {
		t.Errorf("a machine that is off has renewed its Lease since %s", at)
	}
}

// A machine that was rebuilt: its kubelet reports, and its network does not start while the Node has the taint. It goes when the machine has been heard for a
// while and has no volume attached.
func TestRebuiltMachine(t *testing.T) {
	both(t, 4, func(t *testing.T, w *world) {
		w.run()
		w.switchOff(1)
		w.until(1)
		node := w.droplets[1].Name
		status := func(body string) {
			t.Helper()
			must.Get(w.Client.CoreV1().Nodes().PatchStatus(t.Context(), node, []byte(body))).Or(w.T)
		}
		status(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"cni plugin not initialized"}],
		"volumesAttached":[{"name":"kubernetes.io/csi/dobs.csi.digitalocean.com^a","devicePath":"csi-a"}]}}`)
		w.switchOn(1)
		ctx, cancel := context.WithCancel(t.Context())
		var kubelet sync.WaitGroup
		kubelet.Go(func() {
			for pause := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; { // it is not to take the machine from the others
				select {
				case <-pause.C:
					w.renew(node)
				case <-ctx.Done():
				}
			}
		})
		defer kubelet.Wait()
		defer cancel()
		w.stands(1, outofservice.ReasonReturning)
		w.reconciles(20)
		if got := w.tainted(); len(got) != 1 {
			t.Fatalf("%v have the taint while a volume is attached", got)
		}
		status(`{"status":{"volumesAttached":[]}}`)
		w.until()
		w.Reported(node, EventTaintRemoved, "active and the kubelet reports again")
	})
}

// A Node whose machine is gone does not stay for ever when its volumes are not detached.
func TestDepartureEnds(t *testing.T) {
	t.Parallel()
	c, clock, _, _ := offAtOnce(0)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}, Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{{Name: "v"}}}}
	if err := c.Departing(node); err == nil {
		t.Fatal("it goes at once")
	}
	clock.Step(2*time.Minute - time.Second)
	if err := c.Departing(node); err == nil {
		t.Fatal("it goes before its time")
	}
	clock.Step(time.Second)
	if err := c.Departing(node); err != nil {
		t.Fatalf("after two minutes: %v", err)
	}
	clock.Step(time.Hour)
	other := node.DeepCopy()
	other.UID = "another"
	if err := c.Departing(other); err == nil || len(c.leaving) != 1 {
		t.Errorf("another one: %v, and %d are remembered", err, len(c.leaving))
	}
}
