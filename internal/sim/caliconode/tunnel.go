// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"context"
	"fmt"
	"reflect"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// tunnel is one kind of tunnel address that a host may have.
type tunnel struct {
	kind    string // the IPAM attribute "type"
	handle  string // the prefix of the IPAM handle, before the host's name
	version int
	wanted  func(Host) bool
	serves  func(apiv3.IPPoolSpec) bool // whether a pool of the version gives such addresses
	field   func(*libapi.Node) *string  // where the Node has the address; makes the way to it
}

// tunnels are all kinds, in the order in which calico-node looks after them.
func tunnels() []tunnel {
	anyPool := func(apiv3.IPPoolSpec) bool { return true }
	usesIPIP := func(pool apiv3.IPPoolSpec) bool {
		return pool.IPIPMode == apiv3.IPIPModeAlways || pool.IPIPMode == apiv3.IPIPModeCrossSubnet
	}
	usesVXLAN := func(pool apiv3.IPPoolSpec) bool {
		return pool.VXLANMode == apiv3.VXLANModeAlways || pool.VXLANMode == apiv3.VXLANModeCrossSubnet
	}
	return []tunnel{
		{
			kind: ipam.AttributeTypeWireguard, handle: "wireguard-tunnel-addr-", version: 4,
			wanted: func(h Host) bool { return h.Wireguard }, serves: anyPool,
			field: func(n *libapi.Node) *string { return &wireguardOf(n).InterfaceIPv4Address },
		}, {
			kind: ipam.AttributeTypeWireguardV6, handle: "wireguard-v6-tunnel-addr-", version: 6,
			wanted: func(h Host) bool { return h.WireguardV6 }, serves: anyPool,
			field: func(n *libapi.Node) *string { return &wireguardOf(n).InterfaceIPv6Address },
		}, {
			kind: ipam.AttributeTypeIPIP, handle: "ipip-tunnel-addr-", version: 4,
			wanted: func(h Host) bool { return h.IPIP }, serves: usesIPIP,
			field: func(n *libapi.Node) *string { return &bgpOf(n).IPv4IPIPTunnelAddr },
		}, {
			kind: ipam.AttributeTypeVXLAN, handle: "vxlan-tunnel-addr-", version: 4,
			wanted: func(h Host) bool { return h.VXLAN }, serves: usesVXLAN,
			field: func(n *libapi.Node) *string { return &n.Spec.IPv4VXLANTunnelAddr },
		}, {
			kind: ipam.AttributeTypeVXLANV6, handle: "vxlan-v6-tunnel-addr-", version: 6,
			wanted: func(h Host) bool { return h.VXLANv6 }, serves: usesVXLAN,
			field: func(n *libapi.Node) *string { return &n.Spec.IPv6VXLANTunnelAddr },
		},
	}
}

func wireguardOf(node *libapi.Node) *libapi.NodeWireguardSpec {
	if node.Spec.Wireguard == nil {
		node.Spec.Wireguard = &libapi.NodeWireguardSpec{}
	}
	return node.Spec.Wireguard
}

func bgpOf(node *libapi.Node) *libapi.NodeBGPSpec {
	if node.Spec.BGP == nil {
		node.Spec.BGP = &libapi.NodeBGPSpec{}
	}
	return node.Spec.BGP
}

// reconcileTunnels gives the host the tunnel addresses that it should have and takes those back that it should not, in
// IPAM first and then, in one update, in the Node.
func (a *Agent) reconcileTunnels(ctx context.Context) error {
	pools, err := a.datastore.client.IPPools().List(ctx, options.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing IP pools: %w", err)
	}
	return a.updateNode(ctx, func(node *libapi.Node) error {
		for _, t := range tunnels() {
			if err := a.reconcileTunnel(ctx, node, pools.Items, t); err != nil {
				return err
			}
		}
		// The API takes an absent specification, not an empty one.
		if node.Spec.Wireguard != nil && *node.Spec.Wireguard == (libapi.NodeWireguardSpec{}) {
			node.Spec.Wireguard = nil
		}
		if node.Spec.BGP != nil && reflect.DeepEqual(*node.Spec.BGP, libapi.NodeBGPSpec{}) {
			node.Spec.BGP = nil
		}
		return nil
	})
}

func (a *Agent) reconcileTunnel(ctx context.Context, node *libapi.Node, pools []apiv3.IPPool, t tunnel) error {
	handle := t.handle + a.host.Name
	address := t.field(node)
	var cidrs []cnet.IPNet
	if t.wanted(a.host) {
		var err error
		if cidrs, err = t.poolsFor(node, pools); err != nil {
			return err
		}
		held, err := a.holdsTunnel(ctx, *address, cidrs, t)
		if err != nil || held {
			return err
		}
	}
	// An address that nobody remembers is given up before another is taken.
	if err := a.datastore.client.IPAM().ReleaseByHandle(ctx, handle); ignoreAbsent(err) != nil {
		return fmt.Errorf("releasing the addresses of handle %q: %w", handle, err)
	}
	*address = ""
	if !t.wanted(a.host) {
		return nil
	}
	args := ipam.AutoAssignArgs{
		HandleID: &handle, Hostname: a.host.Name, IntendedUse: apiv3.IPPoolAllowedUseTunnel,
		Attrs: map[string]string{ipam.AttributeNode: a.host.Name, ipam.AttributeType: t.kind},
	}
	if t.version == 4 {
		args.Num4, args.IPv4Pools = 1, cidrs
	} else {
		args.Num6, args.IPv6Pools = 1, cidrs
	}
	assigned, err := a.autoAssign(ctx, args)
	if err != nil {
		return fmt.Errorf("assigning a tunnel address (%s): %w", t.kind, err)
	}
	*address = assigned[0].String()
	return nil
}

// poolsFor are the CIDRs of the pools that the tunnel address may come from.
func (t tunnel) poolsFor(node *libapi.Node, pools []apiv3.IPPool) ([]cnet.IPNet, error) {
	var cidrs []cnet.IPNet
	for _, pool := range pools {
		_, cidr, err := cnet.ParseCIDR(pool.Spec.CIDR)
		if err != nil {
			return nil, fmt.Errorf("reading IP pool %q: %w", pool.Name, err)
		}
		selected, err := ipam.SelectsNode(pool, *node)
		if err != nil {
			return nil, fmt.Errorf("reading IP pool %q: %w", pool.Name, err)
		}
		if selected && !pool.Spec.Disabled && cidr.Version() == t.version && t.serves(pool.Spec) {
			cidrs = append(cidrs, *cidr)
		}
	}
	if len(cidrs) == 0 {
		return nil, fmt.Errorf("the host asks for a tunnel address (%s), but no enabled IP pool gives such", t.kind)
	}
	return cidrs, nil
}

// holdsTunnel reports whether the address in the Node is, in IPAM too, the host's tunnel address, and from a right pool.
func (a *Agent) holdsTunnel(ctx context.Context, address string, cidrs []cnet.IPNet, t tunnel) (bool, error) {
	ip := cnet.ParseIP(address)
	if ip == nil {
		return false, nil
	}
	attrs, _, err := a.datastore.client.IPAM().GetAssignmentAttributes(ctx, *ip)
	if err != nil {
		return false, wrap(ignoreAbsent(err), "reading who has address "+address)
	}
	if attrs[ipam.AttributeType] != t.kind || attrs[ipam.AttributeNode] != a.host.Name {
		return false, nil
	}
	for _, cidr := range cidrs {
		if cidr.Contains(ip.IP) {
			return true, nil
		}
	}
	return false, nil
}
