// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"net/netip"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestCalicosIPAMGoesOnWithABlockThatWeWrote(t *testing.T) {
	w := newWorld(t)
	agent := machine(t, w.calico, "n1", 1, 2)
	s := w.read(t, "n1")
	must.Do(t, w.store.DeleteEndpoints(t.Context(), s.guard(), s.endpoints()))
	for _, b := range s.host.Blocks {
		must.Do(t, w.store.ReleaseAddresses(t.Context(), s.guard(), b.CIDR, s.assignments(b)))
	}
	for i := range 2 {
		if _, err := agent.PodNetwork().Add(t.Context(), pod("n1", i)); err != nil {
			t.Fatalf("connecting a pod after the release: %v", err)
		}
		if err := agent.PodNetwork().Del(t.Context(), pod("n1", i)); err != nil {
			t.Fatalf("disconnecting it: %v", err)
		}
	}
	for key := range w.etcd.Dump(t) {
		if _, ok := (model.IPAMHandleListOptions{}).KeyFromDefaultPath(key).(model.IPAMHandleKey); ok {
			t.Errorf("handle %s is left over", key)
		}
	}
}

// indexOf is the attribute of an allocation that was read from the block.
func indexOf(b *storedBlock, a Allocation) int {
	ordinal, _ := b.IPToOrdinal(cnet.IP{IP: a.Address.AsSlice()})
	return *b.Allocations[ordinal]
}

func FuzzBlock(f *testing.F) {
	f.Add([]byte(`{"cidr":"10.0.0.0/26","affinity":"host:n1","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"h","secondary":{"node":"n1"}}],"sequenceNumberForAllocation":{"0":7}}`))
	f.Add([]byte(`{"cidr":"10.0.0.0/26","allocations":[5],"attributes":[]}`))
	f.Add([]byte(`{"cidr":"10.0.0.0/26","allocations":[0,1],"attributes":[{"releasedAt":"2026-01-01T00:00:00Z"},{"handle_id":"v","secondary":{"node":"a"},"alternateOwnerAttrs":{"node":"b"}}]}`))
	f.Add([]byte(`{`))
	key := model.BlockKey{CIDR: cnet.MustParseCIDR("10.0.0.0/26")}
	f.Fuzz(func(t *testing.T, value []byte) {
		block, err := parseBlock(key, value)
		if err != nil {
			return
		}
		stored, err := decodeBlock(key, value)
		if err != nil {
			t.Fatalf("parseBlock takes what decodeBlock refuses: %v", err)
		}
		all := map[string][]Assignment{}
		for _, a := range block.Allocations {
			if stored, err := decodeBlock(key, value); err != nil || a.ReleasedAt.IsZero() && stored.outlivesHost(indexOf(stored, a)) == "" {
				all[a.Host] = append(all[a.Host], Assignment{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence})
			}
		}
		total := len(block.Allocations)
		for host, assignments := range all {
			lost, err := releaseFromBlock(stored, host, assignments, cooldown{})
			if err != nil {
				t.Fatalf("what was just read cannot be released: %v", err)
			}
			for _, n := range lost {
				total -= n
			}
		}
		for _, index := range stored.Allocations {
			if index == nil {
				continue
			}
			if total--; stored.outlivesHost(*index) == "" && stored.releasedAt(*index).IsZero() {
				t.Fatalf("%+v is not released; left: %+v", stored.Attributes[*index], stored)
			}
		}
		if total != 0 {
			t.Fatalf("%d allocations are neither released nor left of %+v", total, block)
		}
	})
}

// A handle may hold addresses of several blocks, as a pod with an IPv4 and an IPv6 address does: releasing one block's leaves the other's.
func TestAHandleOverTwoBlocksKeepsTheOther(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 0)
	handle := "k8s-pod-network.dual"
	v4, v6, err := w.calico.Client().IPAM().AutoAssign(t.Context(), ipam.AutoAssignArgs{
		Num4: 1, Num6: 1, HandleID: &handle, Hostname: "n1", Attrs: map[string]string{"node": "n1"}, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
	})
	if err != nil || len(v4.IPs) != 1 || len(v6.IPs) != 1 {
		t.Fatalf("assigning two addresses: %v %v %v", v4, v6, err)
	}
	s := w.read(t, "n1")
	for _, b := range s.host.Blocks {
		for _, a := range s.assignments(b) {
			if a.Handle == handle && a.Address.Is4() {
				must.Do(t, w.store.ReleaseAddresses(t.Context(), s.guard(), b.CIDR, []Assignment{a}))
			}
		}
	}
	left, err := w.calico.Client().IPAM().IPsByHandle(t.Context(), handle)
	if err != nil || len(left) != 1 || left[0].To4() != nil {
		t.Errorf("addresses of the handle: got %v (%v), want the IPv6 one alone", left, err)
	}
}

// Later assignments take the block's sequence number, by which ours is told from them: a release must move it.
func TestAReleaseMovesTheSequenceNumber(t *testing.T) {
	t.Parallel()
	handle, zero := "h", 0
	block := &model.AllocationBlock{
		CIDR: cnet.MustParseCIDR("10.0.0.0/30"), Allocations: []*int{&zero, nil, nil, nil}, Unallocated: []int{1, 2, 3}, SequenceNumber: 7,
		Attributes:                  []model.AllocationAttribute{{AttrPrimary: &handle, AttrSecondary: map[string]string{"node": "n1"}}},
		SequenceNumberForAllocation: map[string]uint64{"0": 7},
	}
	lost, err := releaseFromBlock(stored(t, block), "n1", []Assignment{{Address: netip.MustParseAddr("10.0.0.0"), Handle: "h", Sequence: 7}}, cooldown{})
	if err != nil || lost["h"] != 1 || block.SequenceNumber != 8 || stored(t, block).usage(cooldown{}) != "" {
		t.Errorf("got %v, %v and block %+v, want one lost, sequence number 8 and an empty block", lost, err, block)
	}
}

// What Calico reserves for Windows hosts, in whatever case, does not keep a block in use.
func TestABlockOfReservationsIsEmpty(t *testing.T) {
	t.Parallel()
	reserved, zero := "Windows-Reserved-IPAM-Handle", 0
	block := &model.AllocationBlock{
		CIDR: cnet.MustParseCIDR("10.0.0.0/30"), Allocations: []*int{&zero, nil, nil, &zero},
		Attributes: []model.AllocationAttribute{{AttrPrimary: &reserved}},
	}
	if stored(t, block).usage(cooldown{}) != "" {
		t.Error("the block counts as in use")
	}
	pod := "k8s-pod-network.x"
	block.Attributes[0].AttrPrimary = &pod
	if stored(t, block).usage(cooldown{}) == "" {
		t.Error("a block with a pod's address counts as empty")
	}
}

// A handle that holds nothing readable is not a reason to hold up its machine for ever: it goes with the address.
func TestAHandleWithoutCountsGoes(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{}`, `{"block":null}`, `null`} {
		if op, err := lowerHandle(model.IPAMHandleKey{HandleID: "h"}, "/calico/ipam/v2/handle/h", []byte(value), "10.0.0.0/26", 1); err != nil || !op.IsDelete() {
			t.Errorf("%s: got %+v, %v, want that it is deleted", value, op, err)
		}
	}
}

func FuzzHandle(f *testing.F) {
	for _, seed := range []string{`{}`, `{"block":null}`, `null`, `{"block":{"10.0.0.0/26":2}}`, `{"block":{"10.0.0.0/26":-1}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		op, err := lowerHandle(model.IPAMHandleKey{HandleID: "h"}, "/calico/ipam/v2/handle/h", value, "10.0.0.0/26", 1)
		if err == nil && op.IsPut() && !json.Valid(op.ValueBytes()) {
			t.Fatalf("wrote %s, which is not JSON", op.ValueBytes())
		}
	})
}
