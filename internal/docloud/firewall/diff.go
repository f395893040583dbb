// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference is one thing in which a firewall is not what it must be. Message says it in words, without the firewall's name.
type Difference struct {
	Message string
	// Closes reports that curing it takes from somebody what the firewall lets him reach.
	Closes bool
}

func (d Difference) String() string { return d.Message }

// Closes reports whether curing one of the differences closes something.
func Closes(all []Difference) bool {
	return slices.ContainsFunc(all, func(d Difference) bool { return d.Closes })
}

// Except returns the differences that are not among known. After a PUT that was accepted, what still differs is what DigitalOcean does not keep;
// anyone who remembers that does not send the same request again and again.
func Except(all, known []Difference) []Difference {
	return slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return slices.Contains(known, d) })
}

// Diff compares a firewall with what it must be, and returns the differences in a fixed order. It compares what rules allow, in whatever order
// and groups they come, and knows how DigitalOcean writes ports and addresses. What a scoped token is not shown (tags) is unknown and not
// different, and so are the droplets: a request carries those there are.
func Diff(o Observed, r Request) []Difference {
	var all []Difference
	add := func(closes bool, format string, args ...any) {
		all = append(all, Difference{Message: fmt.Sprintf(format, args...), Closes: closes})
	}
	if o.Name != "" && o.Name != r.Name {
		add(false, "the name is %q instead of %q", o.Name, r.Name)
	}
	missing, unwanted := compare(accesses(o.InboundRules), accesses(r.InboundRules))
	for _, a := range missing {
		add(false, "inbound %s is missing", a.inbound())
	}
	for _, a := range unwanted {
		add(true, "inbound %s is not wanted", a.inbound())
	}
	missing, unwanted = compare(departures(o.OutboundRules), departures(r.OutboundRules))
	for _, a := range missing {
		add(false, "outbound %s is missing", a.outbound())
	}
	for _, a := range unwanted {
		add(true, "outbound %s is not wanted", a.outbound())
	}
	if o.Tags == nil {
		return all
	}
	for _, tag := range sorted(r.Tags) {
		if !hasTag(o.Tags, tag) {
			add(true, "tag %s is missing", tag) // its droplets are open to all until then
		}
	}
	for _, tag := range sorted(o.Tags) {
		if !hasTag(r.Tags, tag) {
			add(false, "tag %s is not wanted", tag)
		}
	}
	return all
}

// compare returns what is missing and what is not wanted, both in a fixed order.
func compare(is, must map[access]bool) (missing, unwanted []access) {
	for _, a := range ordered(must) {
		if !is[a] {
			missing = append(missing, a)
		}
	}
	for _, a := range ordered(is) {
		if !must[a] {
			unwanted = append(unwanted, a)
		}
	}
	return missing, unwanted
}

func ordered(all map[access]bool) []access {
	return slices.SortedFunc(maps.Keys(all), func(a, b access) int {
		return cmp.Or(strings.Compare(a.protocol, b.protocol), comparePorts(a.ports, b.ports), strings.Compare(a.peer.kind, b.peer.kind),
			strings.Compare(a.peer.value, b.peer.value))
	})
}

// comparePorts orders ports by number as far as they are numbers.
func comparePorts(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }

func sorted(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }

// Ours reports whether the firewall that has the name is the cluster's, and if not, why, in one sentence with what a person can do. Names of
// firewalls are chosen by people, and a second cluster's settings are easily copied from the first one's; what tells firewalls apart is whom
// they cover. So one that covers other droplets only is somebody else's. The upstream project takes any that has the name.
func Ours(o Observed, c Config) (bool, string) {
	var covers string
	switch {
	case share(o.Tags, c.Tags), len(o.Tags) == 0 && len(o.DropletIDs) == 0:
		return true, ""
	case len(o.Tags) > 0:
		covers = "covers droplets with the tag " + strings.Join(sorted(o.Tags), ", ")
	case o.Tags == nil: // not shown
		return true, ""
	default:
		covers = "covers single droplets and no tag"
	}
	return false, fmt.Sprintf("%s has the name of this cluster's firewall, but it %s, and not %s: it is left alone; rename it, choose another name, or "+
		"give it the tag %s to hand it over", o, covers, strings.Join(c.Tags, ", "), c.Tags[0])
}
