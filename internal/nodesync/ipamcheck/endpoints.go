// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// endpoints compares what endpoints have with what IPAM has assigned. Endpoints of pods that are gone are leftovers
// as a whole; see pods.
func (c *checking) endpoints() {
	if c.UnreadableBlock || len(c.Blocks) == 0 {
		return // another block may have the address, or addresses are not Calico's to assign
	}
	for _, e := range c.Endpoints {
		if c.gone(e.Pod) {
			continue
		}
		for _, address := range e.Addresses {
			c.endpointAddress(e, address)
		}
	}
}

func (c *checking) endpointAddress(e Endpoint, address netip.Addr) {
	a, assigned := c.assigned[address]
	d := Disagreement{Subject: e.Key + " " + address.String(), Stamp: fmt.Sprintf("%d %s", e.Revision, stampOf(a)), Host: e.Host}
	switch {
	case !assigned || a.Cooling:
		if !c.ofIPAM(address) {
			return
		}
		d.Kind, d.Detail = EndpointUnassigned, fmt.Sprintf("the endpoint of pod %s has address %s, which is not assigned", e.Pod, address)
	case a.Shared || a.Reserved:
		return
	case a.Pod.Name != "" && a.Pod != e.Pod || a.Host != "" && e.Host != "" && a.Host != e.Host:
		d.Kind, d.Detail = EndpointOthersAddress, fmt.Sprintf("the endpoint of pod %s has address %s, which is assigned%s%s", e.Pod, address, ownerText(a), on(a.Host))
	case otherSandbox(a.Handle, []Endpoint{e}):
		d.Kind, d.Detail = EndpointOthersAddress, fmt.Sprintf("the endpoint of pod %s has address %s, which is assigned to another sandbox, by handle %s", e.Pod, address, a.Handle)
	default:
		return
	}
	c.add(d)
}

func on(host string) string {
	if host == "" {
		return ""
	}
	return " on " + host
}

// ofIPAM reports that an address is of a pool or a block, and so Calico's IPAM assigns it.
func (c *checking) ofIPAM(address netip.Addr) bool {
	has := func(p netip.Prefix) bool { return p.Contains(address) }
	return slices.ContainsFunc(c.Pools, has) || slices.ContainsFunc(c.cidrs, has)
}

// sandboxOf is the sandbox in a handle, which the CNI plugin writes as <network>.<sandbox>, "" for a handle of
// another form (cni-plugin, pkg/ipamplugin; container runtimes name a sandbox by 64 hexadecimal digits).
func sandboxOf(handle string) string {
	sandbox := handle[strings.LastIndex(handle, ".")+1:]
	if len(sandbox) != 64 || strings.Trim(sandbox, "0123456789abcdef") != "" {
		return ""
	}
	return sandbox
}

// otherSandbox reports that a handle names a sandbox, and each of the endpoints another one.
func otherSandbox(handle string, endpoints []Endpoint) bool {
	sandbox := sandboxOf(handle)
	return sandbox != "" && len(endpoints) > 0 && !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Sandbox == "" || e.Sandbox == sandbox })
}

// nodes looks for addresses that several Nodes have.
func (c *checking) nodes() {
	owners := map[netip.Addr][]Node{}
	for _, n := range c.Nodes {
		for _, address := range n.BGP {
			owners[address] = append(owners[address], n)
		}
	}
	for address, nodes := range owners {
		if len(nodes) < 2 {
			continue
		}
		slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
		names := make([]string, 0, len(nodes))
		for _, n := range nodes {
			names = append(names, n.Name)
		}
		c.add(Disagreement{
			Kind: NodeAddressTwice, Subject: address.String(), Stamp: strings.Join(names, " "),
			Detail: fmt.Sprintf("Nodes %s all have address %s", strings.Join(names, ", "), address),
		})
	}
}

// gone reports that a pod is named and does not exist.
func (c *checking) gone(p Pod) bool { return c.PodsUnread == "" && p.Name != "" && !c.Pods[p] }

// holding is what one pod holds on one host.
type holding struct {
	pod  Pod
	host string
}

// pods looks for addresses and endpoints of pods that are gone, and for addresses of old sandboxes of pods that exist.
func (c *checking) pods() {
	left, old, stamps := map[holding][]string{}, map[holding][]string{}, map[holding][]string{}
	note := func(where map[holding][]string, h holding, what, stamp string) {
		where[h], stamps[h] = append(where[h], what), append(stamps[h], stamp)
	}
	for _, b := range c.Blocks {
		for _, a := range b.Allocations {
			if a.Pod.Name == "" || a.Shared || a.Cooling || a.Reserved {
				continue
			}
			switch h := (holding{a.Pod, a.Host}); {
			case c.gone(a.Pod):
				note(left, h, "address "+a.Address.String(), a.Address.String()+stampOf(a))
			case !c.worn[a.Address] && otherSandbox(a.Handle, c.byPod[a.Pod]):
				note(old, h, "address "+a.Address.String(), a.Address.String()+stampOf(a))
			}
		}
	}
	for _, e := range c.Endpoints {
		if c.gone(e.Pod) {
			note(left, holding{e.Pod, e.Host}, "endpoint "+e.Key, fmt.Sprintf("%s %d", e.Key, e.Revision))
		}
	}
	c.addHoldings(PodGone, left, stamps, "does not exist and has")
	c.addHoldings(OldSandbox, old, stamps, "has, of an older sandbox,")
}

func (c *checking) addHoldings(kind Kind, held, stamps map[holding][]string, verb string) {
	for h := range maps.Keys(held) {
		slices.Sort(held[h])
		slices.Sort(stamps[h])
		more := ""
		if n := len(held[h]) - 1; n > 0 {
			more = " and " + prose.Plural(n, "more object")
		}
		c.add(Disagreement{
			Kind: kind, Subject: h.pod.String() + " " + h.host, Stamp: strings.Join(stamps[h], " "), Host: h.host,
			Detail: fmt.Sprintf("pod %s%s %s %s%s", h.pod, on(h.host), verb, held[h][0], more),
		})
	}
}
