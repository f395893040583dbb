// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// drop deletes the keys of a host below a prefix, as somebody who cleans up by hand does.
func (s *stage) drop(prefix, machine string) {
	s.t.Helper()
	for key := range s.etcd.Dump(s.t) {
		if strings.HasPrefix(key, prefix) && strings.Contains(key, s.name(machine)) {
			if _, err := s.etcd.Client.Delete(s.t.Context(), key); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

// Without a Node and without an affinity nothing leads to what a machine left; a sweep finds it all the same.
func TestASweepFindsWhatNothingLeadsTo(t *testing.T) {
	s := newStage(t, 3)
	before := s.etcd.Dump(t)
	s.join("9")
	s.leave("9")
	s.drop("/calico/resources/v3/projectcalico.org/nodes/", "9")
	s.drop("/calico/ipam/v2/host/", "9")
	left := s.etcd.Dump(t)
	if len(left) <= len(before) {
		t.Fatal("the machine left nothing")
	}

	blind := s.reconciler()
	blind.Config.SweepPeriod = 0
	s.settle(blind)
	s.expectUnchanged(left)

	r := s.reconciler()
	s.settle(r)
	s.expectUnchanged(before)
	if len(r.strays) > 0 {
		t.Errorf("%v are still taken for strays", r.strays)
	}
}

// Users' objects of a machine whose Calico Node somebody else removed are reported, and go by name with the kinds that are named; a block
// that has lost its affinity key goes as it would have with it.
func TestWhatIsLeftAfterSomebodyElseRemovedTheNode(t *testing.T) {
	s := newStage(t, 3)
	before := s.etcd.Dump(t)
	s.join("9")
	host := s.name("9")
	peer := "/calico/resources/v3/projectcalico.org/bgppeers/of-9"
	object := `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"of-9"},"spec":{"node":"` + host + `","peerIP":"192.0.2.1","asNumber":64512}}`
	if _, err := s.etcd.Client.Put(t.Context(), peer, object); err != nil {
		t.Fatal(err)
	}
	s.leave("9")
	for _, prefix := range []string{"resources/v3/projectcalico.org/nodes/", "ipam/v2/host/", "resources/v3/projectcalico.org/workloadendpoints/"} {
		s.drop("/calico/"+prefix, "9")
	}
	r := s.reconciler()
	s.settle(r)
	want := maps.Clone(before)
	want[peer] = object
	s.expectUnchanged(want)
	r = s.reconciler()
	s.settle(r)
	s.expectUnchanged(want)
	// That it was a Kubernetes Node is known, since its deletion was watched.
	if refusal := (nodesync.Refusal{Of: nodesync.Subject{Host: host, KubernetesNode: host}, Gate: nodesync.GateUserConfiguration}); !r.refused[refusal] {
		t.Errorf("the object of %s is not reported: %v", host, r.refused)
	}
	// That is not remembered for ever, and what is left is reported as it is.
	s.clock.Step(sightingLife + time.Minute)
	s.settle(r)
	if len(r.memory.Absences) > 0 || !r.refused[nodesync.Refusal{Of: nodesync.Subject{Host: host}, Gate: nodesync.GateOrphanedConfiguration}] {
		t.Errorf("after the sighting: remembered %+v, reported %v", r.memory.Absences, r.refused)
	}
	s.expectUnchanged(want)

	r = s.reconciler()
	r.Config.Named, r.Config.AlsoRemove = []string{host}, []nodesync.ResourceKind{nodesync.KindBGPPeer}
	s.settle(r)
	s.expectUnchanged(before)
}

// A stray whose machine joins again is not a stray any more, wherever in its clean-up that happens.
func TestAStrayThatJoinsAgain(t *testing.T) {
	s := newStage(t, 3)
	s.join("9")
	s.leave("9")
	s.drop("/calico/resources/v3/projectcalico.org/nodes/", "9")
	s.drop("/calico/ipam/v2/host/", "9")
	r := s.reconciler()
	if _, err := r.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !r.strays[s.name("9")] {
		t.Fatalf("the strays are %v, want %s among them", r.strays, s.name("9"))
	}
	s.startCalicoNode("9")
	s.createNode("9")
	want := s.etcd.Dump(t)
	s.clock.Step(s.config.Grace)
	s.settle(r)
	s.expectUnchanged(want)
}

func TestOrphanedHandlesGoOnRequest(t *testing.T) {
	s := newStage(t, 3)
	want := s.etcd.Dump(t)
	handle, err := s.agents["1"].LeaveOrphanedHandle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	with := s.etcd.Dump(t)
	r := s.reconciler()
	s.settle(r)
	s.expectUnchanged(with)
	if !r.refused[nodesync.Refusal{Of: nodesync.Subject{Host: "IPAM handles"}, Gate: nodesync.GateOrphanedHandle}] {
		t.Error("the orphaned handle is not reported")
	}

	r = s.reconciler()
	r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindIPAMHandle}
	for range 30 {
		next, err := r.pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.clock.Step(next)
	}
	s.expectUnchanged(want)
	if len(r.memory.Handles) > 0 {
		t.Errorf("%s is still remembered", handle)
	}
}

// A handle that an assignment takes up between two sweeps, or between a sweep and the write, stays.
func TestAHandleThatIsTakenUpStays(t *testing.T) {
	s := newStage(t, 3)
	handle, err := s.agents["1"].LeaveOrphanedHandle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := "/calico/ipam/v2/handle/" + handle
	r := s.reconciler()
	r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindIPAMHandle}
	takeUp := func() {
		kv, err := s.etcd.Client.Get(t.Context(), key)
		if err != nil || len(kv.Kvs) != 1 {
			t.Fatalf("reading %s: %v", key, err)
		}
		if _, err := s.etcd.Client.Put(t.Context(), key, string(kv.Kvs[0].Value), clientv3.WithPrevKV()); err != nil {
			t.Fatal(err)
		}
	}
	r.Datastore = &interrupted{Datastore: s.store, before: func(int) error {
		takeUp()
		return nil
	}}
	for range 30 {
		next, err := r.pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.clock.Step(next)
	}
	if _, there := s.etcd.Dump(t)[key]; !there {
		t.Error("a handle that was written again was removed")
	}
}
