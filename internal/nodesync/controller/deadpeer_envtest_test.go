// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// keepAddress assigns an address next to one that the host has, and so in its block, to a pod of another machine, under the handle "foreign".
func (s *stage) keepAddress(store Datastore, host, machine string) {
	s.t.Helper()
	hosts, err := store.Hosts(s.t.Context(), 0, []string{host})
	if err != nil || len(hosts) != 1 || len(hosts[0].Affinities) == 0 {
		s.t.Fatalf("reading what %s holds: %+v, %v", host, hosts, err)
	}
	address := hosts[0].Affinities[0].CIDR.Addr()
	for range 50 {
		address = address.Next()
	}
	handle, node := "foreign", s.name(machine)
	must.Do(s.t, s.calico.Client().IPAM().AssignIP(s.t.Context(), ipam.AssignIPArgs{
		IP: cnet.MustParseIP(address.String()), Hostname: node, HandleID: &handle,
		Attrs: map[string]string{"node": node, "namespace": "default", "pod": "borrower"},
	}))
}

// expectHeldBlock fails unless a block of the machine is held back, in words that are true of a machine without a Calico Node.
func (s *stage) expectHeldBlock(r *Reconciler, host string) {
	s.t.Helper()
	plan := must.Get(r.Preview(s.t.Context())).Or(s.t)
	i := slices.IndexFunc(plan.Refusals, func(x nodesync.Refusal) bool { return x.Of.Host == host && x.Gate == nodesync.GateForeignAddress })
	if i < 0 || strings.Contains(plan.Refusals[i].Message, "Node stay") || !strings.Contains(plan.Refusals[i].Message, "the block and its affinity stay") {
		s.t.Errorf("what stays of %s is not said: %s", host, plan)
	}
}

// A block in which somebody else has an address stays when its machine is gone. That is said, and the block goes when it is empty, long after a restart.
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
	s.keepAddress(store, s.name("6"), "1")
	s.leave("6")
	s.passTime(r, 8)
	s.expectHeldBlock(r, s.name("6"))
	left := s.custom()

	s.clock.Step(24 * time.Hour)
	r = s.reconciler()
	r.Datastore = store
	s.passTime(r, 4)
	if diff := cmp.Diff(left, s.custom()); diff != "" {
		t.Errorf("what stays has changed (-want +got):\n%s", diff)
	}
	s.expectHeldBlock(r, s.name("6"))
	must.Do(t, s.calico.Client().IPAM().ReleaseByHandle(t.Context(), "foreign"))
	s.passTime(r, 4)
	if diff := cmp.Diff(before, s.custom()); diff != "" {
		t.Errorf("IPAM is not as it was before the machine (-want +got):\n%s", diff)
	}
}
