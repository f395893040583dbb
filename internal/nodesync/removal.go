// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// How many objects one transaction holds. etcd allows 128 operations by default (--max-txn-ops); each address needs one for its handle,
// and a few more are for the fence and the block.
const (
	endpointsPerStep = 100
	addressesPerStep = 100
)

// windowsReservedHandle is the handle under which Calico itself keeps the first and last addresses of a block for Windows hosts; a block
// that holds nothing else is empty (libcalico-go, lib/ipam).
const windowsReservedHandle = "windows-reserved-ipam-handle"

// removal lists the steps that remove everything of one host, the Calico Node last, and says what is left alone.
//
// What cannot be parsed or is another orchestrator's leaves the whole host alone. A block that others use stays with
// its affinity, by which it is found again; the host's own addresses in it go, so that two dead machines that borrowed
// from each other do not wait for each other. The Calico Node, a BGP peer that never responds, goes all the same.
//
// A block with an address in cooldown stays, too, until that is over: deleting it would free the address earlier than Calico is configured to.
func removal(cand candidate, host *Host, now time.Time, c Config) ([]Step, []Refusal) {
	of := cand.subject
	endpoints, refusals := endpointSteps(of, host)
	for _, key := range host.Unreadable {
		refusals = append(refusals, Refusal{Of: of, Gate: GateUnreadable, Message: "the value of " + key + " cannot be parsed"})
	}
	if len(refusals) > 0 {
		return nil, refusals
	}
	releases, affinities, inUse := blockSteps(of, host, now)
	resources, users := resourceSteps(of, host, c)
	// What a host without a Node is known by goes last, so that it is found again after a crash: its endpoints, addresses and affinities.
	steps := slices.Concat(resources, endpoints, releases, affinities)
	if !cand.node.Implied {
		steps = append(steps, RemoveNode{Of: of})
	}
	if len(steps) > 0 && cand.node.FencedFor == "" && !cand.node.Implied {
		steps = slices.Insert(steps, 0, Step(Fence{Of: of, Revision: cand.node.Revision}))
	}
	return steps, slices.Concat(inUse, users)
}

// resourceSteps removes what programs wrote and what the configuration names; the rest is users' work, which stays.
func resourceSteps(of Subject, host *Host, c Config) (steps []Step, notes []Refusal) {
	resources := slices.SortedFunc(slices.Values(host.Resources), func(a, b Resource) int {
		order := ResourceKinds()
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range resources {
		if r.Automatic || slices.Contains(c.AlsoRemove, r.Kind) {
			steps = append(steps, RemoveResource{Of: of, Kind: r.Kind, Name: r.Name, Revision: r.Revision})
			continue
		}
		notes = append(notes, Refusal{Of: of, Gate: GateUserConfiguration,
			Message: fmt.Sprintf("%s %s is about it alone and was written by a user; it stays", r.Kind, r.Name)})
	}
	for _, mention := range host.Mentions {
		notes = append(notes, Refusal{Of: of, Gate: GateUserConfiguration, Message: mention + "; it stays; check whether it is still needed"})
	}
	return steps, notes
}

func endpointSteps(of Subject, host *Host) (steps []Step, refusals []Refusal) {
	refs := make([]EndpointRef, 0, len(host.Endpoints))
	for _, e := range host.Endpoints {
		if e.Orchestrator != OrchestratorKubernetes {
			refusals = append(refusals, Refusal{Of: of, Gate: GateForeignEndpoint, Message: fmt.Sprintf(
				"workload endpoint %s/%s there belongs to orchestrator %q", e.Namespace, e.Name, e.Orchestrator)})
			continue
		}
		refs = append(refs, EndpointRef{Namespace: e.Namespace, Name: e.Name, Revision: e.Revision})
	}
	slices.SortFunc(refs, func(a, b EndpointRef) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for chunk := range slices.Chunk(refs, endpointsPerStep) {
		steps = append(steps, RemoveEndpoints{Of: of, Endpoints: chunk})
	}
	return steps, refusals
}

// blockSteps releases the host's addresses wherever they are, and drops its affinities. A block that is affine to the host and holds an
// address of somebody else is in use: it is refused.
func blockSteps(of Subject, host *Host, now time.Time) (releases, affinities []Step, refusals []Refusal) {
	claims := make(map[netip.Prefix]Affinity, len(host.Affinities))
	for _, a := range host.Affinities {
		claims[a.CIDR] = a
	}
	blocks := slices.SortedFunc(slices.Values(host.Blocks), func(a, b Block) int { return comparePrefix(a.CIDR, b.CIDR) })
	for _, b := range blocks {
		own, foreign := splitAllocations(b, host.Name)
		for chunk := range slices.Chunk(own, addressesPerStep) {
			releases = append(releases, ReleaseAddresses{Of: of, Block: b.CIDR, Addresses: chunk, Cooldown: host.IPCooldown})
		}
		until := cooledAt(b, len(own) > 0, host.IPCooldown, now)
		claim, claimed := claims[b.CIDR]
		delete(claims, b.CIDR)
		switch {
		case b.AffineTo == host.Name && len(foreign) > 0:
			refusals = append(refusals, Refusal{Of: of, Gate: GateForeignAddress, Message: foreignMessage(b, foreign)})
		case b.AffineTo == host.Name && until.After(now):
			refusals = append(refusals, Refusal{Of: of, Gate: GateCooldown, Until: until, Message: fmt.Sprintf(
				"block %s has addresses in cooldown until %s (IPAMConfig: ipCooldownSeconds %d); the block and its affinity stay until then",
				b.CIDR, until.UTC().Format(time.RFC3339), int(host.IPCooldown.Seconds()))})
		case b.AffineTo == host.Name:
			affinities = append(affinities, RemoveAffinity{Of: of, CIDR: b.CIDR, Revision: claim.Revision, DeleteBlock: true})
		case claimed:
			affinities = append(affinities, RemoveAffinity{Of: of, CIDR: b.CIDR, Revision: claim.Revision})
		}
		if own := slices.DeleteFunc(foreign, func(a Allocation) bool { return a.Host != host.Name }); len(own) > 0 && b.AffineTo != host.Name {
			why := cmp.Or(own[0].outlivesHost(), "has no handle, by which alone it could be released")
			refusals = append(refusals, Refusal{Of: of, Gate: GateForeignAddress, Message: fmt.Sprintf("its address %s in block %s %s", own[0].Address, b.CIDR, why)})
		}
	}
	for _, a := range claims {
		affinities = append(affinities, RemoveAffinity{Of: of, CIDR: a.CIDR, Revision: a.Revision})
	}
	// Blocks without a claim first: a host without a Node is known by its claims alone.
	slices.SortFunc(affinities, func(a, b Step) int {
		x, y := a.(RemoveAffinity), b.(RemoveAffinity)
		return cmp.Or(cmp.Compare(min(x.Revision, 1), min(y.Revision, 1)), comparePrefix(x.CIDR, y.CIDR))
	})
	return releases, affinities, refusals
}

// cooledAt is when the cooldown of a block's last address is over, the zero time without one. Addresses that are released now begin theirs.
func cooledAt(b Block, releases bool, period time.Duration, now time.Time) (until time.Time) {
	if releases && period > 0 {
		until = now.Add(period)
	}
	for _, a := range b.Allocations {
		if end := a.ReleasedAt.Add(period); !a.ReleasedAt.IsZero() && end.After(until) {
			until = end
		}
	}
	return until
}

// splitAllocations separates the host's own assignments from those of others. An address in cooldown is nobody's. An assignment without a "node" attribute
// counts as foreign: nothing shows whose it is. So does one that may be in use when the host is gone: a virtual machine's, one with a second owner, and one of
// which a newer Calico says something that this program does not know.
func splitAllocations(b Block, host string) (own []Reservation, foreign []Allocation) {
	for _, a := range b.Allocations {
		switch {
		case strings.EqualFold(a.Handle, windowsReservedHandle), !a.ReleasedAt.IsZero():
		case a.Host == host && a.Handle != "" && a.outlivesHost() == "":
			own = append(own, Reservation{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence})
		default:
			foreign = append(foreign, a)
		}
	}
	slices.SortFunc(own, func(a, b Reservation) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(foreign, func(a, b Allocation) int { return a.Address.Compare(b.Address) })
	return own, foreign
}

func foreignMessage(b Block, foreign []Allocation) string {
	first, whose := foreign[0], "of "+foreign[0].Host
	switch {
	case first.Host == "":
		whose = "of an unknown owner"
	case first.outlivesHost() != "":
		whose += ", which " + first.outlivesHost()
	case first.Handle == "":
		whose = "without a handle"
	}
	return fmt.Sprintf("its block %s holds %s that cannot be released with it, such as %s %s; "+
		"the block and its affinity stay until the block is empty", b.CIDR, prose.Plural(len(foreign), "address"), first.Address, whose)
}

// outlivesHost says why an address may be in use when its host and its pod are gone, "" if it cannot.
func (a Allocation) outlivesHost() string {
	switch {
	case a.Unknown != "":
		return fmt.Sprintf("has attribute %q of a newer Calico, which this program does not know: it may be another machine's as well", a.Unknown)
	case a.AlternateHost != "":
		return fmt.Sprintf("belongs to a virtual machine that moves, and is that of %s as well", a.AlternateHost)
	case a.VirtualMachine != "":
		return fmt.Sprintf("belongs to virtual machine %s, which keeps its address when its host is gone: Calico's controllers release it with the machine", a.VirtualMachine)
	}
	return ""
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
