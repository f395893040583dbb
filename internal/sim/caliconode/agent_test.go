// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

func getNode(t *testing.T, d *caliconode.Datastore, name string) *libapi.Node {
	t.Helper()
	node := must.Get(d.Client().Nodes().Get(t.Context(), name, options.GetOptions{})).Or(t)
	return node
}

func TestStartAgainRewritesTheNodeAndKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	datastore, _ := connect(t)
	worker := host("worker-1", "192.168.0.11")
	start(t, datastore, worker)

	// What others have put on the Node: an administrator, or Mooring itself.
	before := getNode(t, datastore, worker.Name)
	before.Annotations = map[string]string{"somebody": "else"}
	before.Spec.BGP.RouteReflectorClusterID = "10.0.0.1"
	before = must.Get(datastore.Client().Nodes().Update(t.Context(), before, options.SetOptions{})).Or(t)
	start(t, datastore, worker)
	after := getNode(t, datastore, worker.Name)

	if after.UID != before.UID || !after.CreationTimestamp.Equal(&before.CreationTimestamp) {
		t.Errorf("the Node was created again: UID %s, was %s", after.UID, before.UID)
	}
	if after.ResourceVersion == before.ResourceVersion {
		t.Error("the revision of the Node has not moved")
	}
	if after.Annotations["somebody"] != "else" || after.Spec.BGP.RouteReflectorClusterID != "10.0.0.1" {
		t.Errorf("what others had put on the Node is gone: %v %+v", after.Annotations, after.Spec.BGP)
	}
	if after.Spec.BGP.IPv4IPIPTunnelAddr != before.Spec.BGP.IPv4IPIPTunnelAddr {
		t.Error("the tunnel address has changed")
	}
	wantInconsistencies(t, datastore)
}

func TestStartWithoutAnythingToSayWritesNothing(t *testing.T) {
	t.Parallel()
	datastore, etcd := connect(t)
	reflector := caliconode.Host{Name: "reflector", Address: netip.MustParseAddr("192.168.0.2")}
	start(t, datastore, reflector)
	if refs := getNode(t, datastore, "reflector").Spec.OrchRefs; refs != nil {
		t.Errorf("a host outside of Kubernetes has orchRefs %v", refs)
	}
	revision := etcd.Revision(t)
	start(t, datastore, reflector)
	if now := etcd.Revision(t); now != revision {
		t.Errorf("%d writes at the second start of a host without orchRef and AS number, want none", now-revision)
	}
}

func TestTunnelAddressesComeAndGo(t *testing.T) {
	t.Parallel()
	datastore, _ := connect(t,
		caliconode.Pool{Name: "vxlan", CIDR: "10.30.0.0/16", Encapsulation: caliconode.VXLAN},
		caliconode.Pool{CIDR: "fd00:30::/64", Encapsulation: caliconode.VXLAN})
	worker := host("worker-1", "192.168.0.11")
	worker.VXLAN, worker.VXLANv6, worker.Wireguard, worker.WireguardV6 = true, true, true, true
	start(t, datastore, worker)

	node := getNode(t, datastore, worker.Name)
	for handle, address := range map[string]string{
		"ipip-tunnel-addr-worker-1":         node.Spec.BGP.IPv4IPIPTunnelAddr,
		"vxlan-tunnel-addr-worker-1":        node.Spec.IPv4VXLANTunnelAddr,
		"vxlan-v6-tunnel-addr-worker-1":     node.Spec.IPv6VXLANTunnelAddr,
		"wireguard-tunnel-addr-worker-1":    node.Spec.Wireguard.InterfaceIPv4Address,
		"wireguard-v6-tunnel-addr-worker-1": node.Spec.Wireguard.InterfaceIPv6Address,
	} {
		ips, err := datastore.Client().IPAM().IPsByHandle(t.Context(), handle)
		if err != nil || len(ips) != 1 || ips[0].String() != address {
			t.Errorf("handle %s holds %v (%v), the Node says %q", handle, ips, err, address)
		}
	}
	wantInconsistencies(t, datastore)

	start(t, datastore, caliconode.Host{Name: "worker-1", KubernetesNode: "worker-1", Address: worker.Address})
	node = getNode(t, datastore, worker.Name)
	if node.Spec.BGP.IPv4IPIPTunnelAddr+node.Spec.IPv4VXLANTunnelAddr+node.Spec.IPv6VXLANTunnelAddr != "" || node.Spec.Wireguard != nil {
		t.Errorf("tunnel addresses are left in the Node: %+v", node.Spec)
	}
	if ips, err := datastore.Client().IPAM().IPsByHandle(t.Context(), "vxlan-v6-tunnel-addr-worker-1"); err == nil {
		t.Errorf("tunnel addresses are left in IPAM: %v", ips)
	}
	wantInconsistencies(t, datastore)
}

func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	datastore, etcd := connect(t)
	start(t, datastore, host("worker-1", "192.168.0.11"))
	revision := etcd.Revision(t)

	_, err := datastore.Start(t.Context(), host("worker-2", "192.168.0.11"))
	if !errors.Is(err, caliconode.ErrAddressConflict) {
		t.Errorf("a host with the address of another started: %v", err)
	}
	if _, err := datastore.Start(t.Context(), caliconode.Host{Name: "worker-2"}); err == nil {
		t.Error("a host without address started")
	}
	if _, err := datastore.Start(t.Context(), caliconode.Host{Address: netip.MustParseAddr("192.168.0.12")}); err == nil {
		t.Error("a host without name started")
	}
	if now := etcd.Revision(t); now != revision {
		t.Errorf("%d writes by hosts that did not start, want none", now-revision)
	}
	vxlan := host("worker-2", "192.168.0.12")
	vxlan.VXLAN = true
	if _, err := datastore.Start(t.Context(), vxlan); err == nil || !strings.Contains(err.Error(), "no enabled IP pool") {
		t.Errorf("a host got a VXLAN address without a VXLAN pool: %v", err)
	}
}

func TestConnectNeedsATypeOfDatastore(t *testing.T) {
	t.Parallel()
	if _, err := caliconode.Connect(*apiconfig.NewCalicoAPIConfig()); err == nil {
		t.Error("connected to a datastore that was not chosen")
	}
}

func TestInitializeTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	datastore, etcd := connect(t)
	revision := etcd.Revision(t)
	must.Do(t, datastore.Initialize(t.Context(), "10.20.0.0/16"))
	if now := etcd.Revision(t); now != revision {
		t.Errorf("%d writes, want none", now-revision)
	}
	if err := datastore.Initialize(t.Context(), "10.99.0.0/16"); err == nil {
		t.Error("the default pool could be given a second CIDR")
	}
	if err := datastore.Initialize(t.Context(), "somewhere"); err == nil {
		t.Error("a pool could have no CIDR")
	}
}
