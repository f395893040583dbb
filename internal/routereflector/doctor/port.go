// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"slices"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// bgpPort reports whether Pods can reach BIRD on the nodes. A connection from a neighbor's address makes BIRD drop the
// session that it has, and a Pod's connection leaves its node with the node's address. A password keeps everybody from
// it, and a GlobalNetworkPolicy the Pods.
func bgpPort(x examined) []finding.Finding {
	var open []string
	sessions := 0
	for i := range x.Peers {
		if p := &x.Peers[i]; !p.PeerIP.IsValid() {
			if sessions++; p.PasswordSecret == "" {
				open = append(open, p.Name)
			}
		}
	}
	closing := slices.IndexFunc(x.Policies, func(p calicov3.GlobalNetworkPolicy) bool { return x.closesPods(&p) })
	switch {
	case len(x.reflectors) == 0 || sessions == 0:
		return nil
	case len(open) == 0:
		return []finding.Finding{finding.OK.Say("the BGP sessions of nodes have passwords")}
	case closing >= 0:
		return []finding.Finding{finding.OK.Say("GlobalNetworkPolicy %s denies Pods TCP port %d",
			x.Policies[closing].Name, assumed.BGPPort)}
	case x.NoPolicies != "":
		return []finding.Finding{finding.Note.Say("whether a GlobalNetworkPolicy denies Pods TCP port %d of the nodes is unknown: %s", assumed.BGPPort, x.NoPolicies).AsUnread()}
	case x.Policies == nil:
		return nil
	}
	return []finding.Finding{finding.Note.Say("Pods can connect to TCP port %d of the nodes: the sessions of BGPPeers %s have no password, and no GlobalNetworkPolicy denies it",
		assumed.BGPPort, finding.Few(open)).
		Because("BIRD drops a session when a connection comes from the neighbor's address, and Pods' connections leave a node with its address").
		Advise("apply docs/examples/calico/bgp-port.yaml, or set spec.session.passwordRef of the RouteReflectorTopology")}
}

// closesPods reports whether the policy applies to all Pods, and denies them TCP port 179 of all nodes before it lets
// anything pass that may be such a connection.
func (x examined) closesPods(p *calicov3.GlobalNetworkPolicy) bool {
	s := &p.Spec
	all := func(selector string) bool { return selector == "" || selector == "all()" }
	if !all(s.Selector) || !all(s.NamespaceSelector) || !all(s.ServiceAccountSelector) ||
		len(s.Types) > 0 && !slices.Contains(s.Types, calicov3.PolicyTypeEgress) {
		return false
	}
	for i := range s.Egress {
		switch r := &s.Egress[i]; {
		case !mayBeBGP(r) || r.Action == calicov3.Log:
		case r.Action != calicov3.Deny:
			return false
		case x.coversNodes(r):
			return true
		}
	}
	return false
}

// mayBeBGP reports whether a rule matches some connection to TCP port 179.
func mayBeBGP(r *calicov3.Rule) bool {
	tcp := numorstring.ProtocolFromString("TCP")
	if r.Protocol != nil && r.Protocol.String() != tcp.String() && r.Protocol.String() != "6" {
		return false
	}
	has := func(ports []numorstring.Port) bool {
		return slices.ContainsFunc(ports, func(p numorstring.Port) bool {
			return p.PortName == "" && p.MinPort <= assumed.BGPPort && assumed.BGPPort <= p.MaxPort
		})
	}
	return (len(r.Destination.Ports) == 0 || has(r.Destination.Ports)) && !has(r.Destination.NotPorts)
}

// coversNodes reports whether a rule matches connections of every source to every node's BGP address.
func (x examined) coversNodes(r *calicov3.Rule) bool {
	to := r.Destination
	to.Ports, to.Nets = nil, nil
	if !isAny(r.Source) || !isAny(to) || r.IPVersion != nil || r.NotProtocol != nil || r.HTTP != nil {
		return false
	}
	return len(r.Destination.Nets) == 0 || x.inNets(r.Destination.Nets)
}

// inNets reports whether the BGP addresses of all nodes are in one of some networks.
func (x examined) inNets(nets []string) bool {
	within := func(a netip.Addr) bool {
		return !a.IsValid() || slices.ContainsFunc(nets, func(text string) bool {
			net, err := netip.ParsePrefix(text)
			return err == nil && net.Contains(a)
		})
	}
	for i := range x.Nodes {
		if !within(x.Nodes[i].IPv4) || !within(x.Nodes[i].IPv6) {
			return false
		}
	}
	return true
}

// isAny reports whether an end of a rule has no condition.
func isAny(e calicov3.EntityRule) bool {
	return len(e.Nets)+len(e.NotNets)+len(e.Ports)+len(e.NotPorts) == 0 && e.Selector == "" && e.NotSelector == "" &&
		e.NamespaceSelector == "" && e.ServiceAccounts == nil && e.Services == nil
}
