// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck

import "net/netip"

// Data is one reading of Calico's datastore, and of Kubernetes' pods. The order of its slices does not matter.
type Data struct {
	// Pools are the IPPools, disabled ones included: their blocks remain in use.
	Pools []netip.Prefix
	// PoolsUnread is why Pools could not be read, empty if they were.
	PoolsUnread string
	Blocks      []Block
	Handles     []Handle
	Affinities  []Affinity
	Endpoints   []Endpoint
	Nodes       []Node
	// Pods are the pods of Kubernetes that have not finished. PodsUnread is why they could not be read, empty if they
	// were.
	Pods       map[Pod]bool
	PodsUnread string
	// Unreadable are the keys of objects that exist and could not be parsed. UnreadableBlock reports that a block is
	// among them: it may use any handle.
	Unreadable      []string
	UnreadableBlock bool
}

// Pod names a pod.
type Pod struct{ Namespace, Name string }

// Block is one IPAM block.
type Block struct {
	CIDR netip.Prefix
	// AffineTo is the host to which the block says that it is affine, empty for none, "virtual:<name>" for load
	// balancers.
	AffineTo    string
	Revision    int64
	Allocations []Allocation
	// Free are the addresses in the block's list of free addresses, in its order.
	Free []netip.Addr
}

// Allocation is one address of a block that is not free.
type Allocation struct {
	Address  netip.Addr
	Handle   string
	Sequence uint64
	// Host and Pod are whose it says it is, empty where it does not say.
	Host string
	Pod  Pod
	// Cooling reports that the address was released and waits until it is free.
	Cooling bool
	// Reserved reports that Calico itself reserves the address, for Windows.
	Reserved bool
	// Shared reports that the address may outlive its pod or be another's as well: a virtual machine's, or one with
	// attributes of a newer Calico.
	Shared bool
}

// Handle is an IPAM handle: how many addresses it counts in each block.
type Handle struct {
	ID       string
	Revision int64
	Counts   map[netip.Prefix]int
}

// Affinity is the claim of a host on a block. Host is "virtual:<name>" for load balancers.
type Affinity struct {
	Host     string
	CIDR     netip.Prefix
	Revision int64
	// State is confirmed, pending or pendingDeletion (libcalico-go, lib/backend/model BlockAffinityState).
	State string
}

// Endpoint is a WorkloadEndpoint of Kubernetes; in the kubernetes datastore, a pod with addresses.
type Endpoint struct {
	Key      string
	Revision int64
	// Host is empty where the datastore does not say.
	Host      string
	Pod       Pod
	Sandbox   string
	Addresses []netip.Addr
}

// Node is a Calico Node; in the kubernetes datastore, the Kubernetes Node.
type Node struct {
	Name     string
	Revision int64
	// BGP are the addresses by which other machines peer with it.
	BGP []netip.Addr
}
