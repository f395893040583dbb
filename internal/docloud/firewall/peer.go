// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"net/netip"
	"strconv"
	"strings"
)

// allPorts is how DigitalOcean shows all ports of a protocol, which is what ICMP always has (OpenAPI description, schema of a firewall's rule).
const allPorts = "0"

// normalPorts writes ports as DigitalOcean does.
func normalPorts(protocol, ports string) string {
	if protocol == protocolICMP || ports == "" || ports == "all" {
		return allPorts
	}
	if first, last, ok := strings.Cut(ports, "-"); ok && first == last {
		return first
	}
	return ports
}

// Kinds of peers.
const (
	kindAddress      = "address"
	kindTag          = "tag"
	kindDroplet      = "droplet"
	kindLoadBalancer = "load balancer"
	kindKubernetes   = "Kubernetes cluster"
)

// peer is one far end of a rule, in a form that can be compared.
type peer struct{ kind, value string }

func (p peer) String() string {
	if p.kind == kindAddress {
		return p.value
	}
	return p.kind + " " + p.value
}

// each returns the peers one by one.
func (p Peers) each() []peer {
	var out []peer
	for _, address := range p.Addresses {
		out = append(out, peer{kindAddress, normalAddress(address)})
	}
	for _, tag := range p.Tags {
		out = append(out, peer{kindTag, strings.ToLower(tag)})
	}
	for _, id := range p.DropletIDs {
		out = append(out, peer{kindDroplet, strconv.Itoa(id)})
	}
	for _, id := range p.LoadBalancerUIDs {
		out = append(out, peer{kindLoadBalancer, id})
	}
	for _, id := range p.KubernetesIDs {
		out = append(out, peer{kindKubernetes, id})
	}
	return out
}

// keep returns the peers that are wanted.
func (p Peers) keep(wanted func(peer) bool) Peers {
	var out Peers
	for _, address := range p.Addresses {
		if wanted(peer{kindAddress, normalAddress(address)}) {
			out.Addresses = append(out.Addresses, address)
		}
	}
	for _, id := range p.LoadBalancerUIDs {
		if wanted(peer{kindLoadBalancer, id}) {
			out.LoadBalancerUIDs = append(out.LoadBalancerUIDs, id)
		}
	}
	return out
}

// normalAddress writes an address or a range in one form: a range of a single address is that address.
func normalAddress(text string) string {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Unmap().String()
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return text // whatever it is, it equals itself
	case prefix.IsSingleIP():
		return prefix.Addr().Unmap().String()
	}
	return prefix.Masked().String()
}

// access is the smallest thing that a firewall can allow: one peer, one protocol, one port or range. Rules are compared by what they allow, since
// DigitalOcean may group it otherwise than it was sent.
type access struct {
	protocol, ports string
	peer            peer
}

func (a access) inbound() string  { return what(a.protocol, a.ports) + " from " + a.peer.String() }
func (a access) outbound() string { return what(a.protocol, a.ports) + " to " + a.peer.String() }

// accesses returns what inbound rules allow.
func accesses(rules []InboundRule) map[access]bool {
	out := map[access]bool{}
	for _, r := range rules {
		for _, p := range r.Sources.each() {
			out[access{r.Protocol, normalPorts(r.Protocol, r.Ports), p}] = true
		}
	}
	return out
}

// departures returns what outbound rules allow.
func departures(rules []OutboundRule) map[access]bool {
	out := map[access]bool{}
	for _, r := range rules {
		for _, p := range r.Destinations.each() {
			out[access{r.Protocol, normalPorts(r.Protocol, r.Ports), p}] = true
		}
	}
	return out
}
