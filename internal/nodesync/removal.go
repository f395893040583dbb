// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
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

// removal lists the steps that remove everything of one host, the Calico Node last. If anything there is not the host's own, there are
// refusals instead, and the host is left as it is: half a clean-up would hide the rest. Notes are refusals that concern one object alone
// and hold nothing else up.
func removal(cand candidate, host *Host, c Config) (steps []Step, refusals, notes []Refusal) {
	if host == nil {
		return nil, nil, nil
	}
	of := cand.subject
	if cand.node.FencedFor == "" && !cand.node.Implied {
		steps = append(steps, Fence{Of: of, Revision: cand.node.Revision})
	}
	endpoints, refusals := endpointSteps(of, host)
	steps = append(steps, endpoints...)
	releases, affinities, foreign := blockSteps(of, host)
	refusals = append(refusals, foreign...)
	for _, key := range slices.Sorted(slices.Values(host.Unreadable)) {
		refusals = append(refusals, Refusal{Of: of, Gate: GateUnreadable, Message: "the value of " + key + " cannot be parsed"})
	}
	if len(refusals) > 0 {
		return nil, refusals, nil
	}
	steps = append(steps, releases...)
	steps = append(steps, affinities...)
	resources, notes := resourceSteps(of, host, c)
	steps = append(steps, resources...)
	if !cand.node.Implied {
		steps = append(steps, RemoveNode{Of: of})
	}
	return steps, nil, notes
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
func blockSteps(of Subject, host *Host) (releases, affinities []Step, refusals []Refusal) {
	claims := make(map[netip.Prefix]Affinity, len(host.Affinities))
	for _, a := range host.Affinities {
		claims[a.CIDR] = a
	}
	blocks := slices.SortedFunc(slices.Values(host.Blocks), func(a, b Block) int { return comparePrefix(a.CIDR, b.CIDR) })
	for _, b := range blocks {
		own, foreign := splitAllocations(b, host.Name)
		for chunk := range slices.Chunk(own, addressesPerStep) {
			releases = append(releases, ReleaseAddresses{Of: of, Block: b.CIDR, Addresses: chunk})
		}
		claim, claimed := claims[b.CIDR]
		delete(claims, b.CIDR)
		switch {
		case b.AffineTo == host.Name && len(foreign) > 0:
			refusals = append(refusals, Refusal{Of: of, Gate: GateForeignAddress, Message: foreignMessage(b, foreign)})
		case b.AffineTo == host.Name:
			affinities = append(affinities, RemoveAffinity{Of: of, CIDR: b.CIDR, Revision: claim.Revision, DeleteBlock: true})
		case claimed:
			affinities = append(affinities, RemoveAffinity{Of: of, CIDR: b.CIDR, Revision: claim.Revision})
		}
	}
	for _, a := range claims {
		affinities = append(affinities, RemoveAffinity{Of: of, CIDR: a.CIDR, Revision: a.Revision})
	}
	slices.SortFunc(affinities, func(a, b Step) int {
		return comparePrefix(a.(RemoveAffinity).CIDR, b.(RemoveAffinity).CIDR)
	})
	return releases, affinities, refusals
}

// splitAllocations separates the host's own assignments from those of others. An assignment without a "node" attribute counts as foreign:
// nothing shows whose it is.
func splitAllocations(b Block, host string) (own []Reservation, foreign []Allocation) {
	for _, a := range b.Allocations {
		switch {
		case a.Handle == windowsReservedHandle:
		case a.Host == host && a.Handle != "":
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
	whose := "nobody that the datastore names"
	if foreign[0].Host != "" {
		whose = foreign[0].Host
	}
	return fmt.Sprintf("its block %s holds %s not its own, such as %s of %s; the block can only go after that",
		b.CIDR, count(len(foreign), "address"), foreign[0].Address, whose)
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
