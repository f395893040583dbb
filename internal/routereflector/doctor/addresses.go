// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net/netip"
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// addresses looks for nodes that share a BGP address. confd makes one session to the address, which one of them has.
func addresses(x examined) []finding.Finding {
	by := map[netip.Addr][]string{}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		for _, a := range []netip.Addr{n.IPv4, n.IPv6} {
			if a.IsValid() {
				by[a] = append(by[a], n.Name)
			}
		}
	}
	var out []finding.Finding
	for a, names := range by {
		if len(names) > 1 {
			out = append(out, finding.Problem.Say("%s have the BGP address %s: %s", prose.Plural(len(names), "node"), a, finding.Few(names)).
				Because("sessions to it reach one of them, and packets for the pods of the others are lost").
				Advise("delete the Node of a machine that is gone, or set IP_AUTODETECTION_METHOD of calico-node so that each finds an address of its own"))
		}
	}
	return out
}

// external looks for routers outside the cluster that have their session with one reflector alone.
func external(x examined) []finding.Finding {
	var out []finding.Finding
	for i := range x.Peers {
		p := &x.Peers[i]
		if !p.PeerIP.IsValid() || slices.ContainsFunc(x.Nodes, func(n routereflector.Node) bool { return n.IPv4 == p.PeerIP || n.IPv6 == p.PeerIP }) {
			continue
		}
		if only := x.onlyReflector(p); only != "" {
			out = append(out, finding.Warning.Say("BGPPeer %s gives %s outside the cluster a session with reflector %s alone", p.Name, p.PeerIP, only).
				Because("the router loses all routes of the cluster when this reflector restarts, dies or is replaced by another node").
				Advise("select at least two nodes that stay, by a label of your own that does not depend on who is a reflector"))
		}
	}
	return out
}

// onlyReflector is the one node that a BGPPeer is for, if that is a reflector.
func (x examined) onlyReflector(p *routereflector.Peer) string {
	var of []*routereflector.Node
	for i := range x.Nodes {
		n := &x.Nodes[i]
		if p.Node != "" && p.Node == n.Name || p.Node == "" && (p.NodeMatcher == nil || p.NodeMatcher.Evaluate(n.Labels)) {
			of = append(of, n)
		}
	}
	if len(of) == 1 && of[0].ClusterID != "" {
		return of[0].Name
	}
	return ""
}
