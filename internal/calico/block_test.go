// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
)

// The second judge of our own release: libcalico-go's, on the same datastore contents.
func TestReleasesAddressesAsCalicosIPAMDoes(t *testing.T) {
	ours, theirs := newWorld(t), newWorld(t)
	for _, w := range []*world{ours, theirs} {
		machine(t, w.calico, "n1", 1, 3)
		machine(t, w.calico, "n2", 2, 1)
	}
	s := ours.read(t, "n1")
	for _, b := range s.host.Blocks {
		if err := ours.store.ReleaseAddresses(t.Context(), s.guard(), b.CIDR, s.assignments(b)); err != nil {
			t.Fatal(err)
		}
	}
	other := theirs.read(t, "n1")
	for _, b := range other.host.Blocks {
		for _, a := range other.assignments(b) {
			options := ipam.ReleaseOptions{Address: a.Address.String(), Handle: a.Handle, SequenceNumber: &a.Sequence}
			if _, _, err := theirs.calico.Client().IPAM().ReleaseIPs(t.Context(), options); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(ipamOf(t, theirs), ipamOf(t, ours)); diff != "" {
		t.Errorf("IPAM after our release differs from after theirs (-theirs +ours):\n%s", diff)
	}
}

// ipamOf is all of IPAM, without times, without sequence numbers, which count writes, and with free addresses as a set, since theirs come one by one.
func ipamOf(t *testing.T, w *world) map[string]any {
	t.Helper()
	out := map[string]any{}
	for key, value := range w.etcd.Dump(t) {
		if len(key) < len("/calico/ipam/") || key[:len("/calico/ipam/")] != "/calico/ipam/" {
			continue
		}
		var parsed map[string]any
		if err := json.Unmarshal([]byte(value), &parsed); err != nil {
			t.Fatal(err)
		}
		delete(parsed, "sequenceNumber")
		if sequences, ok := parsed["sequenceNumberForAllocation"].(map[string]any); ok {
			for ordinal := range sequences {
				sequences[ordinal] = "assigned"
			}
		}
		if free, ok := parsed["unallocated"].([]any); ok {
			set := map[float64]bool{}
			for _, ordinal := range free {
				set[ordinal.(float64)] = true
			}
			parsed["unallocated"] = set
		}
		attributes, _ := parsed["attributes"].([]any)
		for _, attribute := range attributes {
			delete(attribute.(map[string]any)["secondary"].(map[string]any), model.IPAMBlockAttributeTimestamp)
		}
		out[key] = parsed
	}
	return out
}

func TestCalicosIPAMGoesOnWithABlockThatWeWrote(t *testing.T) {
	w := newWorld(t)
	agent := machine(t, w.calico, "n1", 1, 2)
	s := w.read(t, "n1")
	if err := w.store.DeleteEndpoints(t.Context(), s.guard(), s.endpoints()); err != nil {
		t.Fatal(err)
	}
	for _, b := range s.host.Blocks {
		if err := w.store.ReleaseAddresses(t.Context(), s.guard(), b.CIDR, s.assignments(b)); err != nil {
			t.Fatal(err)
		}
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

func FuzzBlock(f *testing.F) {
	f.Add([]byte(`{"cidr":"10.0.0.0/26","affinity":"host:n1","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"h","secondary":{"node":"n1"}}],"sequenceNumberForAllocation":{"0":7}}`))
	f.Add([]byte(`{"cidr":"10.0.0.0/26","allocations":[5],"attributes":[]}`))
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
		var all []Assignment
		for _, a := range block.Allocations {
			all = append(all, Assignment{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence})
		}
		lost, err := releaseFromBlock(stored, all)
		if err != nil {
			t.Fatalf("what was just read cannot be released: %v", err)
		}
		total := 0
		for _, n := range lost {
			total += n
		}
		if total != len(all) || !emptyBlock(stored) || len(stored.Attributes) != 0 {
			t.Fatalf("released %d of %d; left: %+v", total, len(all), stored)
		}
	})
}
