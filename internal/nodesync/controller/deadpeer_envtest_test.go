// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// keepAddress assigns an address next to one that the host has, and so in its block, as somebody else's.
func (s *stage) keepAddress(store Datastore, host, handle, node string, attributes map[string]string) {
	s.t.Helper()
	hosts, err := store.Hosts(s.t.Context(), 0, []string{host})
	if err != nil || len(hosts) != 1 || len(hosts[0].Affinities) == 0 {
		s.t.Fatalf("reading what %s holds: %+v, %v", host, hosts, err)
	}
	address := hosts[0].Affinities[0].CIDR.Addr()
	for range 50 {
		address = address.Next()
	}
	err = s.calico.Client().IPAM().AssignIP(s.t.Context(), ipam.AssignIPArgs{
		IP: cnet.MustParseIP(address.String()), Hostname: node, HandleID: &handle, Attrs: attributes,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// foreigners are the owners of addresses that stay in the blocks of dead machines, by the machine.
func (s *stage) foreigners() map[string]map[string]string {
	pod := func(node, name string) map[string]string {
		return map[string]string{"node": node, "namespace": "default", "pod": name}
	}
	vm := pod(s.name("8"), "virt-launcher-v")
	vm["vmi-name"] = "v"
	return map[string]map[string]string{
		"6": pod(s.name("1"), "borrower"), "7": {"service": "default/lb", "type": "loadBalancer"}, "8": vm, "9": {"node": s.name("1"), "later": "unknown"},
	}
}

// joinRenamed is join for a machine whose Calico Node has another name than its Kubernetes Node; it returns that name.
func (s *stage) joinRenamed(machine string) string {
	s.t.Helper()
	s.createNode(machine)
	host := caliconode.Host{
		Name: "calico-" + s.name(machine), KubernetesNode: s.name(machine), Address: netip.AddrFrom4([4]byte{172, 30, 0, machine[0]}), IPIP: true,
	}
	if _, err := s.calico.Start(s.t.Context(), host); err != nil {
		s.t.Fatal(err)
	}
	return host.Name
}

// expectHeldBlocks fails unless a block of each machine is held back, in words that are true of a machine without a Calico Node.
func (s *stage) expectHeldBlocks(r *Reconciler, hosts []string) {
	s.t.Helper()
	plan, err := r.Preview(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, host := range hosts {
		i := slices.IndexFunc(plan.Refusals, func(x nodesync.Refusal) bool { return x.Of.Host == host && x.Gate == nodesync.GateForeignAddress })
		if i < 0 || strings.Contains(plan.Refusals[i].Message, "Node stay") || !strings.Contains(plan.Refusals[i].Message, "the block and its affinity stay") {
			s.t.Errorf("what stays of %s is not said: %s", host, plan)
		}
	}
}

// A Calico Node of a machine that is gone is a BGP peer that never responds. It goes although somebody else has an address in a block of the machine. The
// block stays, and goes when it is empty, long after a restart, also where the machines' names differ.
func TestADeadPeerGoesAlthoughABlockStays(t *testing.T) {
	s := newStage(t, 3)
	s.joinRenamed("4")
	before := s.etcd.Dump(t)
	var hosts []string
	for machine, owner := range s.foreigners() {
		host := s.name(machine)
		if machine == "6" {
			host = s.joinRenamed(machine)
		} else {
			s.join(machine)
		}
		hosts = append(hosts, host)
		s.keepAddress(s.store, host, "foreign-"+machine, s.name("1"), owner)
	}
	// One block has lost the key of its affinity: a sweep finds it.
	s.drop("/calico/ipam/v2/host/"+s.name("7")+"/", "7")
	for machine := range s.foreigners() {
		s.leave(machine)
	}
	r := s.reconciler()
	s.settle(r)
	left := s.etcd.Dump(t)
	for key := range left {
		if _, was := before[key]; !was && !strings.HasPrefix(key, "/calico/ipam/v2/") {
			t.Errorf("%s is left", key)
		}
	}
	s.expectHeldBlocks(r, hosts)

	s.clock.Step(24 * time.Hour)
	r = s.reconciler()
	r.Config.MaxUnwitnessed, r.Config.MaxUnwitnessedPercent = 0, 0 // they have passed the mass guard
	s.settle(r)
	s.expectUnchanged(left)
	s.expectHeldBlocks(r, hosts)

	s.release("6", "7", "8", "9")
	s.settle(r)
	s.expectUnchanged(before)
	if len(r.strays) > 0 || len(r.memory.Absences) > 0 {
		t.Errorf("strays %v and absences %+v are remembered of machines that are cleaned up", r.strays, r.memory.Absences)
	}
}

// release frees the addresses that stayed.
func (s *stage) release(machines ...string) {
	s.t.Helper()
	for _, machine := range machines {
		if err := s.calico.Client().IPAM().ReleaseByHandle(s.t.Context(), "foreign-"+machine); err != nil {
			s.t.Fatal(err)
		}
	}
}

// A machine that joins again finds the block that stayed, and nothing more goes.
func TestAMachineThatJoinsAgainKeepsTheBlockThatStayed(t *testing.T) {
	s := newStage(t, 3)
	s.join("9")
	s.keepAddress(s.store, s.name("9"), "foreign-9", s.name("1"), s.foreigners()["9"])
	s.leave("9")
	r := s.reconciler()
	s.settle(r)
	if got := s.gone("9"); got != "9" {
		t.Fatal("the Calico Node is not removed")
	}
	s.createNode("9")
	s.startCalicoNode("9")
	if _, err := s.agents["9"].PodNetwork().Add(t.Context(), podOn(s.name("9"), "again")); err != nil {
		t.Fatal(err)
	}
	want := s.etcd.Dump(t)
	s.release("9")
	maps.DeleteFunc(want, func(key, _ string) bool { return strings.HasPrefix(key, "/calico/ipam/") })
	s.settle(r)
	got := s.etcd.Dump(t)
	maps.DeleteFunc(got, func(key, _ string) bool { return strings.HasPrefix(key, "/calico/ipam/") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("something of the machine that is back has changed:\n%s", diff)
	}
}

// The same without Calico Nodes of its own: what stays is said, and goes when it is empty, long after a restart.
func TestABlockThatStaysInTheKubernetesDatastore(t *testing.T) {
	s := newStage(t, 0)
	store := s.openKubernetesDatastore()
	for _, machine := range []string{"1", "2"} {
		s.createNode(machine)
		s.startCalicoNode(machine)
	}
	r := s.reconciler()
	r.Datastore = store
	s.settle(r) // what other tests left goes first: the datastore is theirs, too
	before := s.custom()
	s.createNode("6")
	s.startCalicoNode("6")
	hosts := []string{s.name("6")}
	s.keepAddress(store, hosts[0], "foreign-6", s.name("1"), s.foreigners()["6"])
	s.leave("6")
	s.passTime(r, 8)
	s.expectHeldBlocks(r, hosts)
	left := s.custom()

	s.clock.Step(24 * time.Hour)
	r = s.reconciler()
	r.Datastore = store
	s.passTime(r, 4)
	if diff := cmp.Diff(left, s.custom()); diff != "" {
		t.Errorf("what stays has changed (-want +got):\n%s", diff)
	}
	s.expectHeldBlocks(r, hosts)
	s.release("6")
	s.passTime(r, 4)
	if diff := cmp.Diff(before, s.custom()); diff != "" {
		t.Errorf("IPAM is not as it was before the machine (-want +got):\n%s", diff)
	}
}
