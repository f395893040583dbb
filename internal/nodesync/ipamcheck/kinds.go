// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck

import (
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Kind is a kind of disagreement. The values stand in JSON and MUST NOT change.
type Kind string

// The kinds, in the order in which they are reported and repaired.
const (
	FreeAndAssigned       Kind = "address-free-and-assigned"
	BlocksOverlap         Kind = "blocks-overlap"
	EndpointOthersAddress Kind = "endpoint-address-of-another"
	EndpointUnassigned    Kind = "endpoint-address-unassigned"
	NodeAddressTwice      Kind = "node-address-twice"
	HandleMissing         Kind = "handle-missing"
	HandleCount           Kind = "handle-count"
	HandleWithoutAddress  Kind = "handle-without-address"
	AddressWithoutHandle  Kind = "address-without-handle"
	AffinityMissing       Kind = "affinity-missing"
	AffinityMismatch      Kind = "affinity-mismatch"
	AffinityDeleting      Kind = "affinity-pending-deletion"
	AffinityWithoutBlock  Kind = "affinity-without-block"
	BlockOutsidePools     Kind = "block-outside-pools"
	OldSandbox            Kind = "old-sandbox"
	PodGone               Kind = "pod-gone"
)

// Meaning is what a kind means for people.
type Meaning struct {
	Kind     Kind
	Severity finding.Severity
	// Title is the kind in words, Harm why it matters, and Cure what to do.
	Title, Harm, Cure string
	// Repair is what calico-node-sync apply --repair does about one, empty if only a person can.
	Repair string
}

// byRepair is the cure of what can be repaired.
const byRepair = "`calico-node-sync plan --repair` shows the repair, and `calico-node-sync apply --repair` makes it"

// Meanings lists the kinds in their order.
func Meanings() []Meaning {
	return slices.Concat(conflicts(), ofHandles(), ofAffinities(), leftovers())
}

// conflicts are the kinds by which two programs come to use one address.
func conflicts() []Meaning {
	return []Meaning{
		{
			FreeAndAssigned, finding.Problem, "address that is both assigned and free",
			"IPAM assigns the address to another pod while the first one uses it", byRepair,
			"remove the address from the list of free addresses",
		},
		{
			BlocksOverlap, finding.Problem, "pair of blocks that overlap",
			"one address can be assigned twice, and two machines announce routes to it",
			"drain the machine with fewer pods in them, and remove its block with `calicoctl ipam release` and calico-node-sync; change the block size of a pool " +
				"only by a new pool", "",
		},
		{
			EndpointOthersAddress, finding.Problem, "endpoint with the address of another pod or sandbox",
			"two pods answer on one address, and policy for one is applied to the other",
			"delete the pod of the endpoint, so that it gets an address of its own", "",
		},
		{
			EndpointUnassigned, finding.Problem, "endpoint with an address that IPAM has not assigned",
			"IPAM can assign the address to another pod, and both would use it",
			"delete the pod of the endpoint, so that it gets an address that is assigned", "",
		},
		{
			NodeAddressTwice, finding.Problem, "address that several Nodes have for BGP",
			"other machines peer with only one of them, and routes of the other are missing or lead to the wrong machine",
			"if one of the machines is gone, `kubectl mooring node forget NODE` (or `calico-node-sync apply NODE`) removes it; otherwise correct " +
				"IP_AUTODETECTION_METHOD of calico-node", "",
		},
	}
}

// ofHandles are the kinds about handles.
func ofHandles() []Meaning {
	return []Meaning{
		{
			HandleMissing, finding.Warning, "handle that is missing for addresses",
			"the CNI plugin releases by the handle, so the addresses remain assigned when their pod is deleted", byRepair,
			"create the handle with the addresses that the blocks have under it",
		},
		{
			HandleCount, finding.Warning, "handle that counts other addresses than the blocks have",
			"the handle remains when its last address is released, or is deleted before", byRepair,
			"have the handle count the addresses that the blocks have under it",
		},
		{
			HandleWithoutAddress, finding.Note, "handle without an address",
			"it takes space, and commands that list all handles take longer",
			byRepair + "; a controller with --also-remove=IPAMHandle removes such handles",
			"delete the handle",
		},
		{
			AddressWithoutHandle, finding.Warning, "assigned address without a handle",
			"no program releases it, since addresses are released by their handle",
			"if nothing uses the address, `calicoctl ipam release --ip=ADDRESS` releases it", "",
		},
	}
}

// ofAffinities are the kinds about affinities of hosts to blocks.
func ofAffinities() []Meaning {
	return []Meaning{
		{
			AffinityMissing, finding.Warning, "block of an existing machine without its affinity",
			"the machine claims new blocks instead of using this one, and nothing finds the block when the machine is removed", byRepair,
			"create the affinity, confirmed",
		},
		{
			AffinityMismatch, finding.Warning, "affinity to a block that is affine to another host",
			"two machines consider the block their own, and may both announce its route", byRepair,
			"delete the affinity; the block and its addresses stay",
		},
		{
			AffinityDeleting, finding.Warning, "affinity that is marked for deletion while its block exists",
			"the machine assigns no address from the block and claims another one", byRepair,
			"confirm the affinity again, or delete it if the block is not affine to the host",
		},
		{
			AffinityWithoutBlock, finding.Warning, "affinity without a block",
			"Felix drops traffic to the whole range on that machine, although no address there is in use", byRepair,
			"delete the affinity",
		},
	}
}

// leftovers are the kinds that take space.
func leftovers() []Meaning {
	return []Meaning{
		{
			BlockOutsidePools, finding.Warning, "block outside every IPPool",
			"its addresses have no encapsulation and no NAT rule, and no new pod gets one",
			"create the IPPool again, or delete the pods that have its addresses", "",
		},
		{
			OldSandbox, finding.Warning, "pod with addresses of an old sandbox",
			"the pod has a newer sandbox, and the addresses remain assigned",
			"`calicoctl ipam release --ip=ADDRESS` releases each, after a look that the pod does not use it", "",
		},
		{
			PodGone, finding.Note, "pod that is gone and has left addresses or endpoints",
			"the addresses cannot be assigned again, and policy considers the endpoint a pod",
			"a controller with --also-remove=PodLeftovers removes them on existing machines, and those of machines that are gone with the machine; `kubectl " +
				"mooring plan nodes` shows what waits", "",
		},
	}
}
