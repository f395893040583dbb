// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Request is the body of the POST that makes a firewall and of the PUT that changes one; both replace everything. Its JSON form is what the
// upstream project sends: the order of the fields, and that lists are null when empty, MUST not be changed.
type Request struct {
	Name          string         `json:"name"`
	InboundRules  []InboundRule  `json:"inbound_rules"`
	OutboundRules []OutboundRule `json:"outbound_rules"`
	DropletIDs    []int          `json:"droplet_ids"`
	Tags          []string       `json:"tags"`
}

// InboundRule lets sources reach ports of the droplets. Ports is one port, a range, or all of them ("all", "0", or nothing).
type InboundRule struct {
	Protocol string `json:"protocol,omitempty"`
	Ports    string `json:"ports,omitempty"`
	Sources  Peers  `json:"sources"`
}

func (r InboundRule) String() string {
	return fmt.Sprintf("%s from %s", what(r.Protocol, r.Ports), r.Sources)
}

// OutboundRule lets droplets reach destinations.
type OutboundRule struct {
	Protocol     string `json:"protocol,omitempty"`
	Ports        string `json:"ports,omitempty"`
	Destinations Peers  `json:"destinations"`
}

func (r OutboundRule) String() string {
	return fmt.Sprintf("%s to %s", what(r.Protocol, r.Ports), r.Destinations)
}

func what(protocol, ports string) string {
	if ports = normalPorts(protocol, ports); ports == allPorts {
		return protocol
	}
	return protocol + " " + ports
}

// Peers are the far ends of a rule. Addresses may be ranges.
type Peers struct {
	Addresses        []string `json:"addresses,omitempty"`
	Tags             []string `json:"tags,omitempty"`
	DropletIDs       []int    `json:"droplet_ids,omitempty"`
	LoadBalancerUIDs []string `json:"load_balancer_uids,omitempty"`
	KubernetesIDs    []string `json:"kubernetes_ids,omitempty"`
}

func (p Peers) String() string {
	all := p.each()
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = one.String()
	}
	return strings.Join(out, ", ")
}

// Observed is a firewall as the API returns it.
type Observed struct {
	ID            string
	Name          string
	Status        string
	InboundRules  []InboundRule
	OutboundRules []OutboundRule
	// DropletIDs and Tags are nil if they were not returned, be it for a token without the scope.
	DropletIDs []int
	Tags       []string
	// CreatedAt is when DigitalOcean made it, the zero time if that was not returned.
	CreatedAt time.Time
}

func (o Observed) String() string { return fmt.Sprintf("firewall %q (%s)", o.Name, o.ID) }

// Config names the cluster's firewall.
type Config struct {
	// Name is the firewall's (PUBLIC_ACCESS_FIREWALL_NAME).
	Name string
	// Tags are those of the droplets that it covers (PUBLIC_ACCESS_FIREWALL_TAGS).
	Tags []string
	// DefaultType is the type of load balancers that ask for none (DEFAULT_LB_TYPE); all but REGIONAL means REGIONAL_NETWORK.
	DefaultType string
	// Defaults are what annotations say that a Service does not carry (DO_LOAD_BALANCER_DEFAULTS), nil for none.
	Defaults annotation.Defaults
	// AllowReserved lets Services open all ports that the machines use themselves, such as 22 and 6443, and Allowed some
	// of them (--firewall-allow-reserved-ports). Reserved are more of them (--firewall-reserved-ports). They are in the
	// form of [ParsePorts].
	AllowReserved     bool
	Allowed, Reserved []string
}

// anywhere is every address there is.
func anywhere() Peers { return Peers{Addresses: []string{"0.0.0.0/0", "::/0"}} }

// outbound lets droplets reach everything, as the upstream project does.
func outbound() []OutboundRule {
	return []OutboundRule{
		{Protocol: protocolTCP, Ports: "all", Destinations: anywhere()},
		{Protocol: protocolUDP, Ports: "all", Destinations: anywhere()},
		{Protocol: protocolICMP, Destinations: anywhere()},
	}
}

// Protocols of rules, as the API spells them.
const (
	protocolTCP  = assumed.ProtocolTCP
	protocolUDP  = assumed.ProtocolUDP
	protocolICMP = assumed.ProtocolICMP
)

// share reports whether two lists of tags have one in common; tags are told apart without regard to case.
func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(tag string) bool { return hasTag(b, tag) })
}

func hasTag(tags []string, tag string) bool {
	return slices.ContainsFunc(tags, func(t string) bool { return strings.EqualFold(t, tag) })
}
