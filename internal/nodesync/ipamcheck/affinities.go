// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck

import (
	"fmt"
	"net/netip"
	"slices"
)

// States of an affinity (libcalico-go, lib/backend/model BlockAffinityState).
const (
	statePending  = "pending"
	stateDeleting = "pendingDeletion"
)

// affinities compares the affinities with the blocks.
func (c *checking) affinities() {
	blocks := make(map[netip.Prefix]Block, len(c.Blocks))
	for _, b := range c.Blocks {
		blocks[b.CIDR] = b
	}
	for _, a := range c.Affinities {
		if b, exists := blocks[a.CIDR]; exists {
			c.affinity(a, b)
		} else if !c.UnreadableBlock {
			c.add(claim(AffinityWithoutBlock, a, 0, fmt.Sprintf("host %s has an affinity (%s) to block %s, which does not exist", a.Host, a.State, a.CIDR)))
		}
	}
	hosts := make(map[string]bool, len(c.Nodes))
	for _, n := range c.Nodes {
		hosts[n.Name] = true
	}
	for _, b := range c.Blocks {
		if !hosts[b.AffineTo] {
			continue // of no host, or of one that is gone, whose clean-up finds it
		}
		claims := c.claims[b.CIDR]
		// A pending claim counts as absent (Calico's design/ipam), and one of another host is a disagreement by itself.
		if !slices.ContainsFunc(claims, func(a Affinity) bool { return a.Host != b.AffineTo || a.State != statePending }) {
			c.add(Disagreement{
				Kind: AffinityMissing, Subject: b.CIDR.String(), Stamp: fmt.Sprintf("%s %s", b.AffineTo, revisions(claims)), Host: b.AffineTo,
				Blocks: []netip.Prefix{b.CIDR},
				Detail: fmt.Sprintf("block %s is affine to %s, which has no confirmed affinity to it", b.CIDR, b.AffineTo),
			})
		}
	}
}

// affinity compares a claim with its block.
func (c *checking) affinity(a Affinity, b Block) {
	switch {
	case a.State == stateDeleting:
		c.add(claim(AffinityDeleting, a, b.Revision, fmt.Sprintf("the affinity of %s to block %s is marked for deletion, and the block exists%s",
			a.Host, a.CIDR, affineToText(b.AffineTo))))
	case a.Host != b.AffineTo:
		c.add(claim(AffinityMismatch, a, 0, fmt.Sprintf("host %s has an affinity to block %s, which exists%s", a.Host, a.CIDR, affineToText(b.AffineTo))))
	}
}

func affineToText(host string) string {
	if host == "" {
		return " and is affine to no host"
	}
	return " and is affine to " + host
}

func claim(kind Kind, a Affinity, block int64, detail string) Disagreement {
	return Disagreement{
		Kind: kind, Subject: a.Host + " " + a.CIDR.String(), Stamp: fmt.Sprintf("%d %d", a.Revision, block), Host: a.Host,
		Blocks: []netip.Prefix{a.CIDR}, Detail: detail,
	}
}

func revisions(claims []Affinity) string {
	var out []int64
	for _, a := range claims {
		out = append(out, a.Revision)
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}
