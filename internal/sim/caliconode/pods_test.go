// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

func endpoints(t *testing.T, d *caliconode.Datastore) []libapi.WorkloadEndpoint {
	t.Helper()
	list := must.Get(d.Client().WorkloadEndpoints().List(t.Context(), options.ListOptions{})).Or(t)
	return list.Items
}

func TestPodComesAndGoes(t *testing.T) {
	t.Parallel()
	datastore, etcd := connect(t)
	agent := start(t, datastore, host("worker-1", "192.168.0.11"))
	cart := pod("cart-a")
	empty := keys(etcd.Dump(t))

	first := add(t, agent, cart)
	attrs, handle, err := datastore.Client().IPAM().GetAssignmentAttributes(t.Context(), cnet.MustParseIP(first.String()))
	must.Do(t, err)
	if handle == nil || *handle != caliconode.HandleID(cart) ||
		attrs[ipam.AttributeNode] != "worker-1" || attrs[ipam.AttributePod] != "cart-a" || attrs[ipam.AttributeNamespace] != "shop" {
		t.Errorf("the address belongs to %v %v", handle, attrs)
	}
	again := add(t, agent, cart)
	if held, err := datastore.Client().IPAM().IPsByHandle(t.Context(), caliconode.HandleID(cart)); err != nil || len(held) != 2 || again == first {
		t.Errorf("added twice, with %s and %s, the sandbox has %v: %v", first, again, held, err)
	}
	wantInconsistencies(t, datastore)

	for range 2 {
		must.Do(t, agent.PodNetwork().Del(t.Context(), cart))
	}
	if left := keys(etcd.Dump(t)); !slices.Equal(left, empty) {
		t.Errorf("keys after the pod's end: %q, before it: %q", left, empty)
	}
	wantInconsistencies(t, datastore)
}

// A StatefulSet's pod has a successor of the same name; the late end of the old sandbox must not take the new endpoint.
func TestDualStackPodHasAnAddressOfEachFamily(t *testing.T) {
	t.Parallel()
	datastore, _ := connect(t, caliconode.Pool{CIDR: "fd00:30::/64"})
	worker := host("worker-1", "192.168.0.11")
	worker.AddressV6, worker.DualStack = netip.MustParseAddr("fd00:192::11"), true
	agent := start(t, datastore, worker)
	cart := pod("cart")
	first := must.Get(agent.PodNetwork().Add(t.Context(), cart)).Or(t)
	if len(first) != 2 || !first[0].Is4() || !first[1].Is6() {
		t.Fatalf("the pod has %v, want an IPv4 and an IPv6 address", first)
	}
	want := []string{first[0].String() + "/32", first[1].String() + "/128"}
	if got := endpoints(t, datastore); len(got) != 1 || !slices.Equal(got[0].Spec.IPNetworks, want) {
		t.Errorf("the endpoints are %+v, want one with %v", got, want)
	}
	wantInconsistencies(t, datastore)
	must.Do(t, agent.PodNetwork().Del(t.Context(), cart))
	if held, err := datastore.Client().IPAM().IPsByHandle(t.Context(), caliconode.HandleID(cart)); err == nil && len(held) > 0 {
		t.Errorf("the pod is gone and %v are held", held)
	}
}

func TestEndOfAnOldSandboxLeavesTheEndpointOfTheNew(t *testing.T) {
	t.Parallel()
	datastore, _ := connect(t)
	agent := start(t, datastore, host("worker-1", "192.168.0.11"))
	old, successor := pod("cart-0"), pod("cart-0")
	successor.UID = "uid of its successor"
	add(t, agent, old)
	address := add(t, agent, successor)
	must.Do(t, agent.PodNetwork().Del(t.Context(), old))
	left := endpoints(t, datastore)
	if len(left) != 1 || left[0].Spec.ContainerID != caliconode.ContainerID(successor) ||
		!slices.Equal(left[0].Spec.IPNetworks, []string{address.String() + "/32"}) {
		t.Errorf("endpoints: %+v", left)
	}
	wantInconsistencies(t, datastore)
}

func TestLockedDatastoreRefusesPods(t *testing.T) {
	t.Parallel()
	datastore, etcd := connect(t)
	agent := start(t, datastore, host("worker-1", "192.168.0.11"))
	info := must.Get(datastore.Client().ClusterInformation().Get(t.Context(), "default", options.GetOptions{})).Or(t)
	locked := false
	info.Spec.DatastoreReady = &locked
	must.Get(datastore.Client().ClusterInformation().Update(t.Context(), info, options.SetOptions{})).Or(t)
	revision := etcd.Revision(t)
	if _, err := agent.PodNetwork().Add(t.Context(), pod("cart-a")); err == nil {
		t.Error("a pod was connected although the datastore is locked")
	}
	if now := etcd.Revision(t); now != revision {
		t.Errorf("%d writes to a locked datastore", now-revision)
	}
}

func TestDebris(t *testing.T) {
	t.Parallel()
	datastore, _ := connect(t)
	worker, lender := start(t, datastore, host("worker-1", "192.168.0.11")), start(t, datastore, host("worker-2", "192.168.0.12"))
	ctx := t.Context()

	must.Get(worker.LeaveStaleEndpoint(ctx, pod("cart-a"))).Or(t)
	must.Get(worker.BorrowAddress(ctx, pod("cart-b"), lender)).Or(t)
	wantInconsistencies(t, datastore, "address of node worker-1 in a block of worker-2",
		"endpoint with an address that is not its own")

	confirmed := must.Get(worker.LeaveAffinityWithoutBlock(ctx)).Or(t)
	pending, err := worker.LeavePendingAffinity(ctx)
	if err != nil || pending == confirmed {
		t.Fatalf("pending affinity for %s, confirmed one for %s: %v", pending, confirmed, err)
	}
	handle := must.Get(worker.LeaveOrphanedHandle(ctx)).Or(t)
	if _, err := datastore.Backend().Get(ctx, model.IPAMHandleKey{HandleID: handle}, ""); err != nil {
		t.Errorf("reading the orphaned handle: %v", err)
	}
	wantInconsistencies(t, datastore, "address of node worker-1 in a block of worker-2", "handle without its addresses",
		"confirmed affinity of worker-1 without its block", "pending affinity of worker-1 without its block",
		"endpoint with an address that is not its own")
}

func keys(dump map[string]string) []string {
	var all []string
	for key := range dump {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}
