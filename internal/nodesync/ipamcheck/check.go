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

// Disagreement is one disagreement in one reading.
type Disagreement struct {
	Kind Kind
	// Subject names what disagrees, and Stamp the state in which it does: objects that were written since have another.
	Subject, Stamp string
	// Detail is the disagreement in one sentence.
	Detail string
	// Handle, Host and Blocks are what it is about, as far as a repair needs them.
	Handle string
	Host   string
	Blocks []netip.Prefix
}

// Check returns the disagreements of one reading, by kind in their order and then by subject. It may contain changes
// that are under way; see [Confirmed].
func Check(d Data) []Disagreement {
	c := newChecking(d)
	c.blocks()
	c.handles()
	c.affinities()
	c.endpoints()
	c.nodes()
	c.pods()
	order := map[Kind]int{}
	for i, m := range Meanings() {
		order[m.Kind] = i
	}
	slices.SortFunc(c.found, func(a, b Disagreement) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), strings.Compare(a.Subject, b.Subject), strings.Compare(a.Stamp, b.Stamp))
	})
	return c.found
}

// Confirmed returns the disagreements of the later reading that an earlier one shows in the same state.
func Confirmed(earlier, later []Disagreement) []Disagreement {
	type state struct {
		kind           Kind
		subject, stamp string
	}
	seen := make(map[state]bool, len(earlier))
	for _, d := range earlier {
		seen[state{d.Kind, d.Subject, d.Stamp}] = true
	}
	var out []Disagreement
	for _, d := range later {
		if seen[state{d.Kind, d.Subject, d.Stamp}] {
			out = append(out, d)
		}
	}
	return out
}

// checking is a reading with its indexes.
type checking struct {
	Data
	found []Disagreement
	// total is how many addresses each handle has, and in is how many it has in each block.
	total map[string]int
	in    map[place]int
	// used is in by handle, which takes many times the memory; nil before the first disagreement.
	used map[string]map[netip.Prefix]int
	// assigned is the allocation of each address that is not free, of the first block that has it.
	assigned map[netip.Addr]Allocation
	// cidrs are the blocks, outer before inner ones.
	cidrs []netip.Prefix
	// claims are the affinities to each block.
	claims map[netip.Prefix][]Affinity
	// byPod are the endpoints of each pod, worn the addresses that an endpoint has.
	byPod map[Pod][]Endpoint
	worn  map[netip.Addr]bool
}

// place is where a handle has addresses.
type place struct {
	handle string
	block  netip.Prefix
}

// usedBy are the addresses of a handle in each block.
func (c *checking) usedBy(handle string) map[netip.Prefix]int {
	if c.used == nil {
		c.used = map[string]map[netip.Prefix]int{}
		for p, n := range c.in {
			if c.used[p.handle] == nil {
				c.used[p.handle] = map[netip.Prefix]int{}
			}
			c.used[p.handle][p.block] = n
		}
	}
	return c.used[handle]
}

// agrees reports that a handle counts the addresses that the blocks have, of which there is one at least.
func (c *checking) agrees(h Handle) bool {
	sum := 0
	for block, n := range h.Counts {
		if c.in[place{h.ID, block}] != n {
			return false
		}
		sum += n
	}
	return sum > 0 && sum == c.total[h.ID]
}

func newChecking(d Data) *checking {
	c := &checking{
		Data: d, total: map[string]int{}, in: map[place]int{}, assigned: map[netip.Addr]Allocation{}, claims: map[netip.Prefix][]Affinity{},
		byPod: map[Pod][]Endpoint{}, worn: map[netip.Addr]bool{},
	}
	for _, b := range d.Blocks {
		c.cidrs = append(c.cidrs, b.CIDR)
		for _, a := range b.Allocations {
			if _, twice := c.assigned[a.Address]; !twice {
				c.assigned[a.Address] = a
			}
			if a.Handle == "" || a.Cooling || a.Reserved {
				continue
			}
			c.total[a.Handle]++
			c.in[place{a.Handle, b.CIDR}]++
		}
	}
	slices.SortFunc(c.cidrs, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, a := range d.Affinities {
		c.claims[a.CIDR] = append(c.claims[a.CIDR], a)
	}
	for _, e := range d.Endpoints {
		c.byPod[e.Pod] = append(c.byPod[e.Pod], e)
		for _, address := range e.Addresses {
			c.worn[address] = true
		}
	}
	return c
}

func (c *checking) add(d Disagreement) { c.found = append(c.found, d) }

// blocks compares each block with itself, the others and the pools.
func (c *checking) blocks() {
	var around []netip.Prefix // the blocks that contain the next one, outer before inner ones
	for _, cidr := range c.cidrs {
		for len(around) > 0 && !around[len(around)-1].Contains(cidr.Addr()) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			outer := around[len(around)-1]
			c.add(Disagreement{
				Kind: BlocksOverlap, Subject: outer.String() + " and " + cidr.String(), Blocks: []netip.Prefix{outer, cidr},
				Detail: fmt.Sprintf("block %s contains block %s", outer, cidr),
			})
		}
		around = append(around, cidr)
	}
	for _, b := range c.Blocks {
		c.freeAndAssigned(b)
		if c.PoolsUnread == "" && !slices.ContainsFunc(c.Pools, func(p netip.Prefix) bool { return p.Bits() <= b.CIDR.Bits() && p.Contains(b.CIDR.Addr()) }) {
			c.add(Disagreement{
				Kind: BlockOutsidePools, Subject: b.CIDR.String(), Blocks: []netip.Prefix{b.CIDR},
				Detail: fmt.Sprintf("block %s%s with %s", b.CIDR, affineText(b.AffineTo), prose.Plural(len(b.Allocations), "address")),
			})
		}
	}
}

func affineText(host string) string {
	if host == "" {
		return ", which is affine to no host,"
	}
	return " of " + host
}

// freeAndAssigned looks for addresses of a block that its list of free addresses has wrongly, one disagreement for
// each.
func (c *checking) freeAndAssigned(b Block) {
	taken := map[netip.Addr]Allocation{}
	for _, a := range b.Allocations {
		taken[a.Address] = a
	}
	seen, reported := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, address := range b.Free {
		a, assigned := taken[address]
		twice := seen[address]
		seen[address] = true
		if !assigned && !twice || reported[address] {
			continue
		}
		reported[address] = true
		detail := fmt.Sprintf("address %s of block %s is listed as free twice", address, b.CIDR)
		if assigned {
			detail = fmt.Sprintf("address %s of block %s is assigned%s and listed as free", address, b.CIDR, ownerText(a))
		}
		c.add(Disagreement{
			Kind: FreeAndAssigned, Subject: address.String(), Stamp: stampOf(a), Detail: detail, Blocks: []netip.Prefix{b.CIDR},
		})
	}
}

// stampOf names one assignment of an address and no later one.
func stampOf(a Allocation) string { return fmt.Sprintf("%s@%d", a.Handle, a.Sequence) }

// ownerText says whose an address is.
func ownerText(a Allocation) string {
	switch {
	case a.Pod.Name != "":
		return " to pod " + a.Pod.String()
	case a.Handle != "":
		return " to handle " + a.Handle
	}
	return ""
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// handles compares the handles with the blocks.
func (c *checking) handles() {
	known := make(map[string]bool, len(c.Handles))
	for _, h := range c.Handles {
		known[h.ID] = true
		c.handle(h)
	}
	for id, total := range c.total {
		if !known[id] {
			blocks := c.usedBy(id)
			c.add(Disagreement{
				Kind: HandleMissing, Subject: id, Stamp: countText(blocks), Handle: id, Blocks: sortedBlocks(blocks),
				Detail: fmt.Sprintf("%s in %s under handle %s, which does not exist", areAssigned(total), firstBlock(blocks), id),
			})
		}
	}
	for _, b := range c.Blocks {
		for _, a := range b.Allocations {
			if a.Handle == "" && !a.Cooling && !a.Reserved {
				c.add(Disagreement{
					Kind: AddressWithoutHandle, Subject: a.Address.String(), Stamp: stampOf(a), Blocks: []netip.Prefix{b.CIDR},
					Detail: fmt.Sprintf("address %s of block %s is assigned%s without a handle", a.Address, b.CIDR, ownerText(a)),
				})
			}
		}
	}
}

func areAssigned(n int) string {
	if n == 1 {
		return "1 address is assigned"
	}
	return fmt.Sprintf("%d addresses are assigned", n)
}

// handle compares one handle with the blocks. While a block could not be read, its addresses may be there.
func (c *checking) handle(h Handle) {
	if c.UnreadableBlock || c.agrees(h) {
		return
	}
	used := c.usedBy(h.ID)
	d := Disagreement{
		Kind: HandleCount, Subject: h.ID, Handle: h.ID, Stamp: fmt.Sprintf("%d %s", h.Revision, countText(used)),
		Detail: fmt.Sprintf("handle %s counts %s, and the blocks have %s", h.ID, countText(h.Counts), countText(used)),
	}
	if len(used) == 0 {
		d.Kind, d.Detail = HandleWithoutAddress, fmt.Sprintf("handle %s counts %s, and no block has one under it", h.ID, countText(h.Counts))
	}
	both := maps.Clone(h.Counts)
	if both == nil {
		both = map[netip.Prefix]int{}
	}
	maps.Copy(both, used)
	d.Blocks = sortedBlocks(both)
	c.add(d)
}

func sortedBlocks(counts map[netip.Prefix]int) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(counts), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}

func firstBlock(counts map[netip.Prefix]int) string {
	blocks := sortedBlocks(counts)
	if len(blocks) == 1 {
		return "block " + blocks[0].String()
	}
	return fmt.Sprintf("block %s and %d more", blocks[0], len(blocks)-1)
}

// countText says how many addresses there are in which blocks.
func countText(counts map[netip.Prefix]int) string {
	if len(counts) == 0 {
		return "none"
	}
	parts := make([]string, 0, len(counts))
	for _, cidr := range sortedBlocks(counts) {
		parts = append(parts, fmt.Sprintf("%d in %s", counts[cidr], cidr))
	}
	return strings.Join(parts, ", ")
}
