// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// coldBlock is a block of n1 as Calico 3.33 writes it: .0 is a pod's, .1 was released at 12:00:00 and .2 at 12:09:00, .3 belongs to a virtual machine, .4 to
// one that moves to n2, and .7, .6 and .5 have been free the longest, in that order.
const coldBlock = `{"cidr":"10.0.0.0/29","affinity":"host:n1","allocations":[0,1,2,3,4,null,null,null],"unallocated":[7,6,5],"attributes":[` +
	`{"handle_id":"net.pod","secondary":{"namespace":"ns","node":"n1","pod":"p"}},` +
	`{"releasedAt":"2026-01-01T12:00:00Z"},{"releasedAt":"2026-01-01T12:09:00Z"},` +
	`{"handle_id":"net.vms-v","secondary":{"namespace":"vms","node":"n1","pod":"virt-launcher-v","vmi-name":"v","vmi-uid":"1","vm-uid":"2"}},` +
	`{"handle_id":"net.vms-w","secondary":{"namespace":"vms","node":"n1","pod":"virt-launcher-w"},"alternateOwnerAttrs":{"node":"n2","pod":"target"}}],` +
	`"sequenceNumber":40,"sequenceNumberForAllocation":{"0":5,"1":20,"2":30,"3":6,"4":7},"deleted":false}`

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func cold(t *testing.T) *storedBlock {
	t.Helper()
	block := must.Get(decodeBlock(blockModelKey(netip.MustParsePrefix("10.0.0.0/29")), []byte(coldBlock))).Or(t)
	return block
}

func at(address string) netip.Addr { return netip.MustParseAddr(address) }

func TestAddressesInCooldownAndOfVirtualMachinesAreRead(t *testing.T) {
	t.Parallel()
	block := must.Get(translateBlock(cold(t))).Or(t)
	type seen struct {
		Released             time.Time
		Machine, Alternate   string
		Host, Handle, Beyond string
	}
	got := map[string]seen{}
	for _, a := range block.Allocations {
		got[a.Address.String()] = seen{a.ReleasedAt, a.VirtualMachine, a.AlternateHost, a.Host, a.Handle, a.Unknown}
	}
	want := map[string]seen{
		"10.0.0.0": {Host: "n1", Handle: "net.pod"},
		"10.0.0.1": {Released: noon},
		"10.0.0.2": {Released: noon.Add(9 * time.Minute)},
		"10.0.0.3": {Host: "n1", Handle: "net.vms-v", Machine: "vms/v"},
		"10.0.0.4": {Host: "n1", Handle: "net.vms-w", Alternate: "n2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allocations (-want +got):\n%s", diff)
	}
	if _, err := decodeBlock(blockModelKey(netip.MustParsePrefix("10.0.0.0/29")), []byte(strings.Replace(coldBlock, "2026-01-01T12:00:00Z", "noon", 1))); err == nil {
		t.Error("a time that is none was read: the address would count as assigned, or as free")
	}
}

// What a release writes, byte for byte but for the order of fields: with a cooldown the address is stamped and stays in its place; without one it is free at
// once. Either way what has cooled down is freed with it, last in the queue, and whatever else is there stays.
func TestAReleaseRespectsTheCooldown(t *testing.T) {
	t.Parallel()
	pod := []Assignment{{Address: at("10.0.0.0"), Handle: "net.pod", Sequence: 5}}
	const rest = `{"handle_id":"net.vms-v","secondary":{"namespace":"vms","node":"n1","pod":"virt-launcher-v","vmi-name":"v","vmi-uid":"1","vm-uid":"2"}},` +
		`{"handle_id":"net.vms-w","secondary":{"namespace":"vms","node":"n1","pod":"virt-launcher-w"},"alternateOwnerAttrs":{"node":"n2","pod":"target"}}`
	for name, test := range map[string]struct {
		cool                                          cooldown
		allocations, unallocated, attributes, numbers string
	}{
		"ten minutes, one of which has cooled down": {
			cooldown{now: noon.Add(10*time.Minute + time.Second), period: 10 * time.Minute},
			"[3,null,0,1,2,null,null,null]", "[7,6,5,1]", `{"releasedAt":"2026-01-01T12:09:00Z"},` + rest + `,{"releasedAt":"2026-01-01T12:10:01Z"}`,
			`{"0":40,"2":30,"3":6,"4":7}`,
		},
		"twenty minutes, neither has": {
			cooldown{now: noon.Add(10 * time.Minute), period: 20 * time.Minute},
			"[4,0,1,2,3,null,null,null]", "[7,6,5]",
			`{"releasedAt":"2026-01-01T12:00:00Z"},{"releasedAt":"2026-01-01T12:09:00Z"},` + rest + `,{"releasedAt":"2026-01-01T12:10:00Z"}`,
			`{"0":40,"1":20,"2":30,"3":6,"4":7}`,
		},
		"none": {
			cooldown{now: noon.Add(10 * time.Minute)},
			"[null,null,null,0,1,null,null,null]", "[7,6,5,0,1,2]", rest, `{"3":6,"4":7}`,
		},
		"a release in the future, by another machine's clock": {
			cooldown{now: noon.Add(-time.Hour)},
			"[null,0,1,2,3,null,null,null]", "[7,6,5,0]", `{"releasedAt":"2026-01-01T12:00:00Z"},{"releasedAt":"2026-01-01T12:09:00Z"},` + rest,
			`{"1":20,"2":30,"3":6,"4":7}`,
		},
	} {
		block := cold(t)
		lost, err := releaseFromBlock(block, "n1", pod, test.cool)
		if err != nil || lost["net.pod"] != 1 {
			t.Errorf("%s: got %v, %v, want one address lost", name, lost, err)
			continue
		}
		got := must.Get(block.encode()).Or(t)
		want := `{"cidr":"10.0.0.0/29","affinity":"host:n1","allocations":` + test.allocations + `,"unallocated":` + test.unallocated + `,"attributes":[` +
			test.attributes + `],"sequenceNumber":41,"sequenceNumberForAllocation":` + test.numbers + `,"deleted":false}`
		if diff := cmp.Diff(exactly(t, []byte(want)), exactly(t, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhatHasNoOwnerOrTwoIsNotReleased(t *testing.T) {
	t.Parallel()
	for want, assignment := range map[string]Assignment{
		"was released at 2026-01-01T12:00:00Z": {Address: at("10.0.0.1"), Sequence: 20},
		"belongs to virtual machine vms/v":     {Address: at("10.0.0.3"), Handle: "net.vms-v", Sequence: 6},
		"is also that of n2":                   {Address: at("10.0.0.4"), Handle: "net.vms-w", Sequence: 7},
	} {
		block := cold(t)
		if _, err := releaseFromBlock(block, "n1", []Assignment{assignment}, cooldown{now: noon}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("releasing %s: got %v, want an error with %q", assignment.Address, err, want)
		}
	}
}

// A block goes when nothing is in it but addresses that have cooled down.
func TestABlockIsInUseUntilItsAddressesHaveCooledDown(t *testing.T) {
	t.Parallel()
	value := `{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,null,1,2],"unallocated":[1],"attributes":[{"releasedAt":"2026-01-01T12:00:00Z"},` +
		`{"releasedAt":"2026-01-01T12:09:00Z"},{"handle_id":"windows-reserved-ipam-handle"}]}`
	block := must.Get(decodeBlock(blockModelKey(netip.MustParsePrefix("10.0.0.0/30")), []byte(value))).Or(t)
	for after, want := range map[time.Duration]string{
		18 * time.Minute:             "an address of it is in cooldown until 2026-01-01T12:19:00Z",
		19 * time.Minute:             "an address of it is in cooldown until 2026-01-01T12:19:00Z",
		19*time.Minute + time.Second: "",
	} {
		if got := block.usage(cooldown{now: noon.Add(after), period: 10 * time.Minute}); got != want {
			t.Errorf("after %s: got %q, want %q", after, got, want)
		}
	}
	if got := cold(t).usage(cooldown{now: noon.Add(time.Hour)}); got != "it is in use" {
		t.Errorf("a block with a pod's address: got %q", got)
	}
}

func TestTheCooldownIsReadAsCalicoStoresIt(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		`{"strict_affinity":false,"auto_allocate_blocks":true}`: 0,
		`{"strictAffinity":true,"ipCooldownSeconds":600}`:       10 * time.Minute,
		`{"ipCooldownSeconds":-1}`:                              0,
	} {
		if got, err := parseCooldown([]byte(value)); err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", value, got, err, want)
		}
	}
	for _, value := range []string{``, `[]`, `{"ipCooldownSeconds":"600"}`} {
		if got, err := parseCooldown([]byte(value)); err == nil {
			t.Errorf("%q: got %s, want an error", value, got)
		}
	}
}

// The same on a real etcd: the clean-up of a block that has all shapes, and back again.
func TestEtcdRespectsTheCooldown(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 0)
	cidr := netip.MustParsePrefix("10.0.0.0/29")
	key := must.Get(blockKey(cidr)).Or(t)
	put := func(key, value string) {
		t.Helper()
		must.Get(w.etcd.Client.Put(t.Context(), key, value)).Or(t)
	}
	put(key, coldBlock)
	put("/calico/ipam/v2/handle/net.pod", `{"block":{"10.0.0.0/29":1},"deleted":false}`)
	put(ipamConfigKey, `{"strict_affinity":false,"auto_allocate_blocks":true,"ipCooldownSeconds":600}`)
	now := clocktesting.NewFakePassiveClock(noon.Add(10*time.Minute + time.Second))
	w.store.clock = now
	seen := w.read(t, "n1")
	if seen.host.IPCooldown != 10*time.Minute {
		t.Errorf("the cooldown is %s, want 10 minutes", seen.host.IPCooldown)
	}
	guard := seen.guard()
	pod := HeldAddress{Block: cidr, Address: at("10.0.0.0"), Handle: "net.pod", Sequence: 5, Attributes: map[string]string{"namespace": "ns", "node": "n1", "pod": "p"}}
	must.Do(t, w.store.ReleaseAddresses(t.Context(), guard, cidr, []Assignment{{Address: pod.Address, Handle: pod.Handle, Sequence: 5}}))
	if err := w.store.DeleteAffinity(t.Context(), guard, cidr, 0, true); !errors.Is(err, ErrConflict) {
		t.Errorf("deleting a block in use: got %v, want a conflict", err)
	}
	if _, left := w.etcd.Dump(t)["/calico/ipam/v2/handle/net.pod"]; left {
		t.Error("the handle is left of an address that nobody has")
	}
	// The address comes back to its owner alone, whether it has cooled down or not.
	must.Do(t, w.store.RestoreAddress(t.Context(), "n1", pod, false))
	var block struct {
		Allocations []*int
		Unallocated []int
		Attributes  []map[string]any
	}
	must.Do(t, json.Unmarshal([]byte(w.etcd.Dump(t)[key]), &block))
	if index := block.Allocations[0]; index == nil || block.Attributes[*index]["handle_id"] != "net.pod" {
		t.Errorf("after a restore the block is %s", w.etcd.Dump(t)[key])
	}
	if diff := cmp.Diff([]int{7, 6, 5, 1}, block.Unallocated); diff != "" {
		t.Errorf("the queue of free addresses (-want +got):\n%s", diff)
	}
	for _, kept := range []string{`"vm-uid":"2"`, `"alternateOwnerAttrs":{"node":"n2","pod":"target"}`, `"releasedAt":"2026-01-01T12:09:00Z"`} {
		if !strings.Contains(w.etcd.Dump(t)[key], kept) {
			t.Errorf("%s is lost: %s", kept, w.etcd.Dump(t)[key])
		}
	}
	put(key, `{"cidr":"10.0.0.0/29","affinity":"host:n1","allocations":[null,0],"unallocated":[0,2,3,4,5,6,7],"attributes":[{"releasedAt":"2026-01-01T12:00:01Z"}]}`)
	if err := w.store.DeleteAffinity(t.Context(), guard, cidr, 0, true); !errors.Is(err, ErrConflict) {
		t.Errorf("deleting a block whose address is in cooldown: got %v, want a conflict", err)
	}
	now.SetTime(now.Now().Add(time.Second))
	if err := w.store.DeleteAffinity(t.Context(), guard, cidr, 0, true); err != nil {
		t.Errorf("deleting a block whose addresses have cooled down: %v", err)
	}
}

// TestARestoreOverWhatIsMarkedDeleted: what Calico is about to remove carries a mark, and is absent for its readers. A restore that kept the mark would put an
// address where nobody sees it.
func TestARestoreOverWhatIsMarkedDeleted(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 0)
	cidr := netip.MustParsePrefix("10.0.0.0/29")
	block := must.Get(blockKey(cidr)).Or(t)
	claim := must.Get(affinityKey("n1", cidr)).Or(t)
	put := func(key, value string) {
		t.Helper()
		must.Get(w.etcd.Client.Put(t.Context(), key, value)).Or(t)
	}
	const handle = "/calico/ipam/v2/handle/net.pod"
	put(poolPrefix+"pool", `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pool"},"spec":{"cidr":"10.0.0.0/24","blockSize":29}}`)
	put(block, `{"cidr":"10.0.0.0/29","affinity":"host:n1","allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],`+
		`"attributes":[],"deleted":true}`)
	put(claim, `{"state":"pendingDeletion","deleted":true,"more":1}`)
	put(handle, `{"block":{"10.0.0.0/29":3},"deleted":true,"more":2}`)
	pod := HeldAddress{Block: cidr, Address: at("10.0.0.0"), Handle: "net.pod", Sequence: 5, Attributes: map[string]string{"node": "n1"}}
	before := w.etcd.Dump(t)
	if err := w.store.RestoreAddress(t.Context(), "n1", pod, false); !errors.Is(err, ErrNotRestored) || !strings.Contains(err.Error(), "is marked as deleted") {
		t.Errorf("into a block with the mark: got %v, want a refusal", err)
	}
	if diff := cmp.Diff(before, w.etcd.Dump(t)); diff != "" {
		t.Errorf("a refusal has written (-before +after):\n%s", diff)
	}
	must.Get(w.etcd.Client.Delete(t.Context(), block)).Or(t)
	must.Do(t, w.store.RestoreAddress(t.Context(), "n1", pod, false))
	w.holds(t, claim, `{"state":"confirmed","deleted":false,"more":1}`)
	w.holds(t, handle, `{"block":{"10.0.0.0/29":1},"deleted":false,"more":2}`)
}
