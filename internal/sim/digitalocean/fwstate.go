// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// firewall is never changed in place, see table.
type firewall struct {
	id        string
	name      string
	inbound   []InboundRule
	outbound  []OutboundRule
	droplets  []int    // sorted
	tags      []string // sorted
	created   time.Time
	settledAt time.Time
	forced    string // a status that was set from outside
}

// firewallName is OpenAPI's pattern: two characters at least.
var firewallName = regexp.MustCompile(assumed.FirewallNamePattern)

func (f *firewall) clone() *firewall {
	copied := *f
	copied.inbound, copied.outbound = slices.Clone(f.inbound), slices.Clone(f.outbound)
	copied.droplets, copied.tags = slices.Clone(f.droplets), slices.Clone(f.tags)
	for i := range copied.inbound {
		copied.inbound[i].Sources = copied.inbound[i].Sources.clone()
	}
	for i := range copied.outbound {
		copied.outbound[i].Destinations = copied.outbound[i].Destinations.clone()
	}
	return &copied
}

func (p Peers) clone() Peers {
	return Peers{
		Addresses: slices.Clone(p.Addresses), DropletIDs: slices.Clone(p.DropletIDs), LoadBalancerUIDs: slices.Clone(p.LoadBalancerUIDs),
		KubernetesIDs: slices.Clone(p.KubernetesIDs), Tags: slices.Clone(p.Tags),
	}
}

// showFirewall returns a firewall as it was at a time. While it is waiting, every droplet that it covers is a pending change.
func (a *account) showFirewall(f *firewall, when time.Time) Firewall {
	shown := Firewall{
		ID: f.id, Name: f.name, Status: "succeeded", InboundRules: f.inbound, OutboundRules: f.outbound, CreatedAt: rfc3339(f.created),
		DropletIDs: &f.droplets, Tags: &f.tags, PendingChanges: []PendingChange{},
	}
	if when.Before(f.settledAt) {
		shown.Status = "waiting"
		for _, id := range a.covered(f, when) {
			shown.PendingChanges = append(shown.PendingChanges, PendingChange{DropletID: id, Status: "waiting"})
		}
	}
	if f.forced != "" {
		shown.Status = f.forced
	}
	return shown
}

// covered returns the IDs of the droplets that a firewall covers, by ID or by tag.
func (a *account) covered(f *firewall, when time.Time) []int {
	ids := slices.Clone(f.droplets)
	for _, tag := range f.tags {
		ids = append(ids, a.taggedDroplets(tag, when)...)
	}
	return sortedUnique(ids)
}

// firewallRequest is the body of POST and PUT: both replace everything.
type firewallRequest struct {
	Name          string         `json:"name"`
	InboundRules  []InboundRule  `json:"inbound_rules"`
	OutboundRules []OutboundRule `json:"outbound_rules"`
	DropletIDs    []int          `json:"droplet_ids"`
	Tags          []string       `json:"tags"`
}

// planFirewall checks a request and returns what comes of it; old is nil for POST.
func (a *account) planFirewall(request *firewallRequest, old *firewall, now time.Time) (*firewall, *refusal) {
	f := &firewall{
		name: request.Name, droplets: sortedUnique(request.DropletIDs), tags: sortedUnique(request.Tags), created: now,
		inbound: []InboundRule{}, outbound: []OutboundRule{}, settledAt: now.Add(a.sim.options.Firewalls.SettledAfter),
	}
	if old != nil {
		f.id, f.created = old.id, old.created
	}
	if refused := a.firewallFits(f, len(request.InboundRules)+len(request.OutboundRules)); refused != nil {
		return nil, refused
	}
	for _, rule := range request.InboundRules {
		ports, refused := a.checkRule(rule.Protocol, rule.Ports, rule.Sources)
		if refused != nil {
			return nil, refused
		}
		rule.Ports = ports
		f.inbound = append(f.inbound, rule)
	}
	for _, rule := range request.OutboundRules {
		ports, refused := a.checkRule(rule.Protocol, rule.Ports, rule.Destinations)
		if refused != nil {
			return nil, refused
		}
		rule.Ports = ports
		f.outbound = append(f.outbound, rule)
	}
	return f, nil
}

// firewallFits checks all but the rules. A name that is taken is 409 "duplicate name", as public reports show.
func (a *account) firewallFits(f *firewall, rules int) *refusal {
	switch limit := a.sim.options.Firewalls.MaxRules; {
	case !firewallName.MatchString(f.name):
		return invalid("name %q is not valid: use letters, digits, dots and dashes, and begin with a letter or digit", f.name)
	case rules == 0:
		return invalid("at least one inbound or outbound rule is needed")
	case limit > 0 && rules > limit:
		return invalid("at most %d rules are allowed, not %d", limit, rules)
	}
	for other := range a.firewalls.values() {
		if other.name == f.name && other.id != f.id {
			return refuse(http.StatusConflict, "duplicate name")
		}
	}
	for _, id := range f.droplets {
		if _, found := a.droplets.get(id); !found {
			return invalid("droplet %d does not exist", id)
		}
	}
	return a.tagsExist(f.tags)
}

// tagsExist: tags must exist before a firewall can name them (OpenAPI: firewall.tags).
func (a *account) tagsExist(tags []string) *refusal {
	for _, tag := range tags {
		if _, found := a.tags.get(strings.ToLower(tag)); !found {
			return invalid("tag %q does not exist", tag)
		}
	}
	return nil
}

// checkRule checks one rule and returns its ports as DigitalOcean shows them.
func (a *account) checkRule(protocol, ports string, peers Peers) (string, *refusal) {
	if !slices.Contains([]string{"tcp", "udp", "icmp"}, protocol) {
		return "", invalid("protocol must be one of tcp, udp, icmp, not %q", protocol)
	}
	for _, address := range peers.Addresses {
		_, addressError := netip.ParseAddr(address)
		_, prefixError := netip.ParsePrefix(address)
		if addressError != nil && prefixError != nil {
			return "", invalid("address %q is neither an address nor a CIDR", address)
		}
	}
	for _, id := range peers.LoadBalancerUIDs {
		if _, found := a.balancers.get(id); !found && a.sim.options.Firewalls.KnownBalancers {
			return "", invalid("load balancer %q does not exist", id)
		}
	}
	if refused := a.tagsExist(peers.Tags); refused != nil {
		return "", refused
	}
	return normalPorts(protocol, ports)
}

// normalPorts returns ports as DigitalOcean shows them: "0" for all, which is what ICMP always has (OpenAPI: rule.ports), else
// one port or a range.
func normalPorts(protocol, ports string) (string, *refusal) {
	if protocol == "icmp" || ports == "" || ports == "all" || ports == "0" {
		return "0", nil
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	low, lowError := strconv.Atoi(first)
	high, highError := strconv.Atoi(last)
	if lowError != nil || highError != nil || low < 1 || high > 65535 || low > high {
		return "", invalid("ports %q is neither a port, nor a range, nor all", ports)
	}
	return ports, nil
}
