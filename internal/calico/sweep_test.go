// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// sweep is what the datastore holds now.
func (w *world) sweep(t *testing.T) Sweep {
	t.Helper()
	s := must.Get(w.store.Snapshot(t.Context())).Or(t)
	sweep := must.Get(w.store.Sweep(t.Context(), s.Revision)).Or(t)
	return sweep
}

func (w *world) put(t *testing.T, key, value string) {
	t.Helper()
	must.Get(w.etcd.Client.Put(t.Context(), key, value)).Or(t)
}

func TestASweepFindsHostsAndOrphanedHandles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 2)
	n2 := machine(t, w.calico, "n-2", 2, 0) // has tunnels alone
	machine(t, w.calico, "n1.example.com", 3, 1)
	names := []string{"n-2", "n1", "n1.example.com"}
	want := Sweep{Hosts: names, ResourceHosts: names, NamesPods: true} // each has its own FelixConfiguration
	living := w.sweep(t)
	if written := living.EndpointsWritten; len(written) != 2 || written["n1.example.com"] <= written["n1"] {
		t.Errorf("the newest endpoints are of %v, want n1's before n1.example.com's", written)
	}
	if diff := cmp.Diff(want, living, cmpopts.IgnoreFields(Sweep{}, "EndpointsWritten")); diff != "" {
		t.Errorf("of machines that live:\n%s", diff)
	}

	orphan := must.Get(n2.LeaveOrphanedHandle(t.Context())).Or(t)
	swept := w.sweep(t)
	if len(swept.OrphanedHandles) != 1 || swept.OrphanedHandles[0].ID != orphan || swept.OrphanedHandles[0].Revision == 0 {
		t.Fatalf("got orphaned handles %v, want %s", swept.OrphanedHandles, orphan)
	}

	// A handle is in use whichever of the block and the handle carries what an old CNI plugin left behind its end (libcalico-go, lib/ipam: sanitizeHandle).
	w.put(t, blockPrefix+"ipv4/block/10.9.2.0-26", `{"cidr":"10.9.2.0/26","allocations":[0,1],"unallocated":[],`+
		`"attributes":[{"handle_id":"malformed-1\r","secondary":{}},{"handle_id":"malformed-2","secondary":{}}]}`)
	w.put(t, handlePrefix+"malformed-1", `{"handleID":"malformed-1","block":{"10.9.2.0/26":1}}`)
	w.put(t, handlePrefix+"malformed-2\r", `{"handleID":"malformed-2\r","block":{"10.9.2.0/26":1}}`)
	if diff := cmp.Diff(swept, w.sweep(t)); diff != "" {
		t.Errorf("with malformed handles in use:\n%s", diff)
	}

	// What others than Kubernetes' programs left does not show that a host was Kubernetes'.
	w.put(t, endpointPrefix+"openstack-region/stack-openstack-instance-eth0", `{}`)
	w.put(t, blockPrefix+"ipv4/block/10.9.0.0-26", `{"cidr":"10.9.0.0/26","affinity":"host:docker","allocations":[0],"unallocated":[],`+
		`"attributes":[{"handle_id":"of-docker","secondary":{"node":"docker"}}]}`)
	if diff := cmp.Diff(swept.Hosts, w.sweep(t).Hosts); diff != "" {
		t.Errorf("with what others left:\n%s", diff)
	}

	// A block that cannot be parsed may use any handle.
	w.put(t, blockPrefix+"ipv4/block/10.9.1.0-26", `{`)
	if got := w.sweep(t); len(got.OrphanedHandles) > 0 || len(got.Hosts) != 3 {
		t.Errorf("with an unreadable block got %v", got)
	}
}

// A block without an affinity key leads to its host by its own word, in either form, and an object to the host that it is about alone.
func TestASweepFindsBlocksByTheirFieldAndHostsOfResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, affinity := range []string{`"affinity":"host:by-field"`, `"affinity":null,"hostAffinity":"by-old-field"`, `"affinity":"virtual:load-balancer"`, `"affinity":""`} {
		w.put(t, fmt.Sprintf("%sipv4/block/10.9.%d.0-26", blockPrefix, i), fmt.Sprintf(`{"cidr":"10.9.%d.0/26",%s,"allocations":[],"unallocated":[],"attributes":[]}`, i, affinity))
	}
	const root = "/calico/resources/v3/projectcalico.org/"
	w.put(t, root+"felixconfigurations/node.of-felix", `{}`)
	w.put(t, root+"bgpconfigurations/node.of-bgp", `{`)
	w.put(t, root+"hostendpoints/e", `{"spec":{"node":"of-endpoint"}}`)
	w.put(t, root+"hostendpoints/garbage", `{`)
	w.put(t, root+"bgppeers/p", `{"spec":{"node":"of-peer"}}`)
	w.put(t, root+"bgppeers/everybodys", `{"spec":{"nodeSelector":"all()"}}`)
	w.put(t, root+"caliconodestatuses/s", `{"spec":{"node":"of-status"}}`)
	want := Sweep{Hosts: []string{"by-field", "by-old-field"}, ResourceHosts: []string{"of-bgp", "of-endpoint", "of-felix", "of-peer", "of-status"}}
	if diff := cmp.Diff(want, w.sweep(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDeleteHandles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n1 := machine(t, w.calico, "n1", 1, 1)
	must.Get(n1.LeaveOrphanedHandle(t.Context())).Or(t)
	orphans := w.sweep(t).OrphanedHandles
	before := w.etcd.Dump(t)
	changed := []Handle{{ID: orphans[0].ID, Revision: orphans[0].Revision - 1}}
	if err := w.store.DeleteHandles(t.Context(), changed); !errors.Is(err, ErrConflict) {
		t.Errorf("deleting a handle that has changed: got %v, want a conflict", err)
	}
	if diff := cmp.Diff(before, w.etcd.Dump(t)); diff != "" {
		t.Fatalf("a conflict wrote:\n%s", diff)
	}
	must.Do(t, w.store.DeleteHandles(t.Context(), orphans))
	for key := range before {
		if strings.HasSuffix(key, orphans[0].ID) {
			delete(before, key)
		}
	}
	if diff := cmp.Diff(before, w.etcd.Dump(t)); diff != "" {
		t.Errorf("after deleting the orphan:\n%s", diff)
	}
}

// A BGPPeer that points at a machine by its address, or chooses it by its name, is named and never taken for the machine's own.
func TestPeersThatMentionAHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, name := range []string{"n1", "n10"} {
		machine(t, w.calico, name, byte(i+1), 0)
	}
	peer := func(name, spec string) {
		w.put(t, "/calico/resources/v3/projectcalico.org/bgppeers/"+name,
			`{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"`+name+`"},"spec":`+spec+`}`)
	}
	peer("by-address", `{"peerIP":"172.30.0.1","asNumber":64512}`)
	peer("by-port", `{"peerIP":"172.30.0.1:179","asNumber":64512}`)
	peer("by-name", `{"nodeSelector":"kubernetes.io/hostname == 'n1'","peerIP":"192.0.2.1","asNumber":64512}`)
	peer("of-another", `{"nodeSelector":"kubernetes.io/hostname == 'n11'","peerIP":"172.30.0.11","asNumber":64512}`)
	peer("by-nothing", `{"nodeSelector":"all()","peerSelector":"route-reflector == 'true'"}`)
	s := must.Get(w.store.Snapshot(t.Context())).Or(t)
	hosts := must.Get(w.store.Hosts(t.Context(), s.Revision, []string{"n1", "n10"})).Or(t)
	want := []string{
		"BGPPeer by-address peers with its address 172.30.0.1",
		"BGPPeer by-name names it in the selector kubernetes.io/hostname == 'n1'",
		"BGPPeer by-port peers with its address 172.30.0.1",
	}
	if diff := cmp.Diff(want, hosts[0].Mentions); diff != "" {
		t.Errorf("of n1:\n%s", diff)
	}
	if len(hosts[1].Mentions) > 0 {
		t.Errorf("of n10: %q", hosts[1].Mentions)
	}
	for _, r := range hosts[0].Resources {
		if r.Kind == "BGPPeer" {
			t.Errorf("BGPPeer %s is taken for n1's own", r.Name)
		}
	}
}
