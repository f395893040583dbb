// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// newerBlock is a block as a Calico writes it that is newer than the library of this program: fields of the block and of its attributes are unknown here, and
// numbers are beyond what a float64 holds. Address 10.0.0.2 has a second owner, on n2.
const newerBlock = `{"cidr":"10.0.0.0/30","affinity":"host:n1","affinityClaimTime":"2026-01-01T00:00:00Z","allocations":[0,1,2,null],"unallocated":[3],` +
	`"attributes":[{"handle_id":"a","secondary":{"node":"n1"}},` +
	`{"handle_id":"b","secondary":{"node":"n1"},"alternate":{},"since":9007199254740993,"more":[1.0,{"x":"<&>"}]},` +
	`{"handle_id":"c","secondary":{"node":"n1"},"alternate":{"node":"n2","pod":"target"}}],` +
	`"sequenceNumber":9007199254740993,"sequenceNumberForAllocation":{"0":1,"1":9007199254740991,"2":3},"deleted":false,"limits":{"max":9007199254740995}}`

func stored(t *testing.T, block *model.AllocationBlock) *storedBlock {
	t.Helper()
	value := must.Get(json.Marshal(block)).Or(t)
	s := must.Get(decodeBlock(model.BlockKey{CIDR: block.CIDR}, value)).Or(t)
	s.AllocationBlock = block
	return s
}

func newer(t *testing.T) *storedBlock {
	t.Helper()
	block := must.Get(decodeBlock(blockModelKey(netip.MustParsePrefix("10.0.0.0/30")), []byte(newerBlock))).Or(t)
	return block
}

// exactly parses JSON with every number as it was written.
func exactly(t *testing.T, value []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	var parsed any
	if err := decoder.Decode(&parsed); err != nil {
		t.Fatalf("%v: %s", err, value)
	}
	return parsed
}

func released(t *testing.T) *storedBlock {
	t.Helper()
	block := newer(t)
	must.Get(releaseFromBlock(block, "n1", []Assignment{{Address: netip.MustParseAddr("10.0.0.0"), Handle: "a", Sequence: 1}}, cooldown{})).Or(t)
	return block
}

// newerReleased is newerBlock without its address 10.0.0.0.
var newerReleased = strings.NewReplacer("[0,1,2,null]", "[null,0,1,null]", `"unallocated":[3]`, `"unallocated":[3,0]`,
	`{"handle_id":"a","secondary":{"node":"n1"}},`, "",
	`"sequenceNumber":9007199254740993`, `"sequenceNumber":9007199254740994`, `"0":1,`, "").Replace(newerBlock)

func TestReleasingKeepsWhatANewerCalicoWrote(t *testing.T) {
	t.Parallel()
	got := must.Get(released(t).encode()).Or(t)
	if diff := cmp.Diff(exactly(t, []byte(newerReleased)), exactly(t, got)); diff != "" {
		t.Errorf("more than the address is changed (-want +got):\n%s", diff)
	}
}

// In the kubernetes datastore the block is the spec of an object, which may have fields of its own.
func TestAnObjectKeepsWhatANewerCalicoWrote(t *testing.T) {
	t.Parallel()
	whole := func(spec string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"IPAMBlock","metadata":{"name":"x","resourceVersion":"9007199254740993"},"spec":` + spec + `,"status":{"new":1.50}}`)
	}
	for name, test := range map[string]struct {
		spec, want string
		change     func(o *customResource) ([]byte, error)
	}{
		"a block":     {newerBlock, newerReleased, func(o *customResource) ([]byte, error) { return withBlock(o, released(t)) }},
		"a handle":    {`{"handleID":"h","block":{"x":2},"new":9007199254740993}`, `{"handleID":"h","block":{"x":1},"new":9007199254740993}`, withCount},
		"an affinity": {`{"state":"confirmed","new":[9007199254740993]}`, `{"state":"pendingDeletion","new":[9007199254740993]}`, withState},
	} {
		object := must.Get(parseCustomResource("IPAMBlock", whole(test.spec))).Or(t)
		got := must.Get(test.change(object)).Or(t)
		if diff := cmp.Diff(exactly(t, whole(test.want)), exactly(t, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func withCount(o *customResource) ([]byte, error) {
	return withSpec(o, map[string]any{"block": map[string]int{"x": 1}})
}

func withState(o *customResource) ([]byte, error) {
	return withSpec(o, map[string]any{"state": "pendingDeletion"})
}

// What says something of an address that this program does not know may give it to another machine: it is neither released nor taken for a pod's leftover.
func TestAnAddressWithASecondOwnerIsLeftAlone(t *testing.T) {
	t.Parallel()
	block := must.Get(translateBlock(newer(t))).Or(t)
	got := []string{}
	for _, a := range block.Allocations {
		got = append(got, a.Unknown)
	}
	if diff := cmp.Diff([]string{"", "more", "alternate"}, got); diff != "" {
		t.Errorf("unknown attributes (-want +got):\n%s", diff)
	}
	second := Assignment{Address: netip.MustParseAddr("10.0.0.2"), Handle: "c", Sequence: 3}
	if _, err := releaseFromBlock(newer(t), "n1", []Assignment{second}, cooldown{}); err == nil || !strings.Contains(err.Error(), `"alternate"`) {
		t.Errorf("releasing it: got %v, want an error that names the attribute", err)
	}
	var found PodHoldings
	found.addBlock([]byte(strings.Replace(leftoverBlock, `{"handle_id":"net.a",`, `{"handle_id":"net.a","alternate":{"node":"n2"},`, 1)), nobody)
	if len(found.Leftovers) != 0 {
		t.Errorf("leftovers: got %+v, want none", found.Leftovers)
	}
}

// A newer Calico names a virtual machine among what it says of an address's owner: the machine keeps its address when pod and host are gone. What Calico writes
// for pods and tunnels up to this program's version is known.
func TestAnAddressOfAVirtualMachineIsLeftAlone(t *testing.T) {
	t.Parallel()
	for secondary, want := range map[string]string{ // "" for none, a name with a slash for the virtual machine, otherwise the unknown attribute
		`{"namespace":"default","node":"n1","pod":"a","timestamp":"2026-01-01 00:00:00 UTC"}`:                                     "",
		`{"namespace":"default","node":"n1","pod":"a"}`:                                                                           "",
		`{"node":"n1","timestamp":"2026-01-01 00:00:00 UTC"}`:                                                                     "",
		`{"node":"n1","type":"ipipTunnelAddress"}`:                                                                                "",
		`{"node":"n1","type":"vxlanTunnelAddress"}`:                                                                               "",
		`{"node":"n1","type":"vxlanV6TunnelAddress"}`:                                                                             "",
		`{"node":"n1","type":"wireguardTunnelAddress"}`:                                                                           "",
		`{"node":"n1","type":"wireguardV6TunnelAddress"}`:                                                                         "",
		`{"node":"n1","vmi":""}`:                                                                                                  "",
		`{"node":"n1","namespace":"default","pod":"a","timestamp":"2026-01-01 00:00:00 UTC","vmi-name":"v","vmi-uid":"1"}`:        "default/v",
		`{"node":"n1","namespace":"vms","pod":"a","vmi-name":"v","vmi-uid":"1","vm-uid":"2","vmim-uid":"3"}`:                      "vms/v",
		`{"node":"n1","namespace":"vms","pod":"a","vmi-name":"v","later":"x"}`:                                                    "later",
		`{"node":"n1","namespace":"default","pod":"a","timestamp":"2026-01-01 00:00:00 UTC","vm-uid":"9","vmi-uid":"1","vmi":""}`: "vm-uid",
	} {
		value := strings.Replace(newerBlock, `{"handle_id":"a","secondary":{"node":"n1"}}`, `{"handle_id":"a","secondary":`+secondary+`}`, 1)
		block := must.Get(decodeBlock(blockModelKey(netip.MustParsePrefix("10.0.0.0/30")), []byte(value))).Or(t)
		seen := must.Get(translateBlock(block)).Or(t)
		first := seen.Allocations[0]
		got := first.Unknown
		if got == "" {
			got = first.VirtualMachine
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", secondary, got, want)
		}
		assignment := Assignment{Address: netip.MustParseAddr("10.0.0.0"), Handle: "a", Sequence: 1}
		if _, err := releaseFromBlock(block, "n1", []Assignment{assignment}, cooldown{}); (err == nil) != (want == "") {
			t.Errorf("%s: releasing it: got %v, want an error only of an unknown attribute", secondary, err)
		}
	}
}

// The same on a real etcd, both ways: a release, and an address that is put back, with the handle and the affinity.
func TestEtcdKeepsWhatANewerCalicoWrote(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 0)
	cidr := netip.MustParsePrefix("10.0.0.0/30")
	key := must.Get(blockKey(cidr)).Or(t)
	const handle = "/calico/ipam/v2/handle/a"
	put := func(key, value string) {
		t.Helper()
		must.Get(w.etcd.Client.Put(t.Context(), key, value)).Or(t)
	}
	put(key, newerBlock)
	put(handle, `{"block":{"10.0.0.0/30":1,"10.9.0.0/30":1},"deleted":false,"new":9007199254740993}`)
	guard := w.read(t, "n1").guard()
	address := HeldAddress{Block: cidr, Address: netip.MustParseAddr("10.0.0.0"), Handle: "a", Sequence: 1, Attributes: map[string]string{"node": "n1"}}
	must.Do(t, w.store.ReleaseAddresses(t.Context(), guard, cidr, []Assignment{{Address: address.Address, Handle: "a", Sequence: 1}}))
	w.holds(t, key, newerReleased)
	w.holds(t, handle, `{"block":{"10.9.0.0/30":1},"deleted":false,"new":9007199254740993}`)
	must.Do(t, w.store.RestoreAddress(t.Context(), "n1", address, false))
	w.holds(t, handle, `{"block":{"10.0.0.0/30":1,"10.9.0.0/30":1},"deleted":false,"new":9007199254740993}`)
	got := w.etcd.Dump(t)[key]
	if !strings.Contains(got, `"alternate":{"node":"n2","pod":"target"}`) || !strings.Contains(got, `"limits":{"max":9007199254740995}`) {
		t.Errorf("the block after the address is put back: %s", got)
	}
	second := Assignment{Address: netip.MustParseAddr("10.0.0.2"), Handle: "c", Sequence: 3}
	if err := w.store.ReleaseAddresses(t.Context(), guard, cidr, []Assignment{second}); !errors.Is(err, ErrConflict) {
		t.Errorf("releasing an address with a second owner: got %v, want a conflict", err)
	}
}

func (w *world) holds(t *testing.T, key, want string) {
	t.Helper()
	if diff := cmp.Diff(exactly(t, []byte(want)), exactly(t, []byte(w.etcd.Dump(t)[key]))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", key, diff)
	}
}
