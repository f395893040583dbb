// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Snapshot is the datastore's Calico Nodes and readiness, read at one revision.
type Snapshot struct {
	// Revision is the store revision of the read; later reads can be made at the same one until etcd compacts it.
	Revision int64
	// DatastoreReady is ClusterInformation's field of that name; false when there is no ClusterInformation.
	DatastoreReady bool
	// ClusterGUID identifies this installation of Calico.
	ClusterGUID string
	// ClusterInformation is the revision and the annotations of the object of that name; revision 0 if there is none.
	ClusterInformation Annotated
	// OwnCluster reports that the datastore is part of the cluster itself.
	OwnCluster bool
	Nodes      []Node
	// ResourceHosts are hosts that are not in Nodes and that a resource is about, sorted: in the kubernetes datastore alone. A bare-metal host
	// may have such resources, so they are not a sign of a former Kubernetes Node; only a deletion that was watched is.
	ResourceHosts []string
	// Unreadable are the keys of Nodes that exist and could not be parsed.
	Unreadable []string
}

// Annotated is the revision and the annotations of an object.
type Annotated struct {
	Revision    int64
	Annotations map[string]string
}

// Node is a Calico Node resource (libcalico-go, apis/v3 Node), as far as Mooring reads it.
type Node struct {
	Name        string
	Revision    int64
	OrchRefs    []OrchRef
	Annotations map[string]string
	// Implied reports that there is no such object, and the host is known by what it left in IPAM: always so in the kubernetes datastore, which
	// has no Nodes of its own, and in etcd for a host whose Node was removed before the rest.
	Implied bool
}

// OrchRef names an orchestrator and the node's name there.
type OrchRef struct{ Orchestrator, NodeName string }

// Host is what the datastore holds under one Calico node name, apart from its Node.
type Host struct {
	Name       string
	Endpoints  []Endpoint
	Blocks     []Block
	Affinities []Affinity
	// IPCooldown is how long a released address must not be assigned again: IPAMConfig's ipCooldownSeconds.
	IPCooldown time.Duration
	// Resources are objects of other kinds that are about this host alone.
	Resources  []Resource
	Unreadable []string
	// Mentions are other objects that speak of the host and may be about others as well, a sentence each.
	Mentions []string
	// Objects are the host's Node, endpoints, affinities and resources as they stand in the datastore, for the journal.
	Objects []Object
	// Addresses are those that name the host, for the journal.
	Addresses []HeldAddress
}

// Object is one stored object: its key, its revision and its value as text, byte for byte.
type Object struct {
	Key      string `json:"key"`
	Revision int64  `json:"revision"`
	Value    string `json:"value"`
}

// Resource is an object about one host alone: "node.<name>" configurations, and what names the host in spec.node. Automatic says that a
// program wrote it and would write it again: kube-controllers' host endpoints (label projectcalico.org/created-by), and a FelixConfiguration
// that holds nothing but what calico-node writes at every start (node/pkg/lifecycle/startup: ensureDefaultConfig).
type Resource struct {
	Kind      string
	Name      string
	Revision  int64
	Automatic bool
	// StatusAt is CalicoNodeStatus' status.lastUpdated, the zero time of any other kind.
	StatusAt time.Time
}

// Report is what Felix last reported of a host; see Etcd.Reports.
type Report struct {
	Host     string
	Revision int64
	// At is the time in it, by the clock of the host; the zero time if it cannot be read.
	At time.Time
}

// Endpoint is a WorkloadEndpoint.
type Endpoint struct {
	Namespace, Name string
	Revision        int64
	Orchestrator    string
	Pod             string
}

// Block is an IPAM block. AffineTo is the host it is affine to, "virtual:<name>" for a virtual affinity, "" for none.
type Block struct {
	CIDR        netip.Prefix
	AffineTo    string
	Allocations []Allocation
}

// Allocation is one assigned address of a block. Host is its "node" attribute.
type Allocation struct {
	Address  netip.Addr
	Handle   string
	Sequence uint64
	Host     string
	// Attributes are all that anyone who assigned it wrote with it, Host among them.
	Attributes map[string]string
	// AssignedAt is when Calico's CNI plugin assigned the address, by the clock of the host; the zero time if that is not known.
	AssignedAt time.Time
	// ReleasedAt is when the address was released, if it is in cooldown: it has no owner, and is not free before Host.IPCooldown is over
	// (Calico 3.33, design/ipam/ipam-core-library.md). The zero time for an address that is assigned.
	ReleasedAt time.Time
	// VirtualMachine is the KubeVirt virtual machine that the address belongs to, which outlives its pod and its host; "" for none.
	VirtualMachine string
	// AlternateHost is the host that the address of a virtual machine moves to or came from, "" for none.
	AlternateHost string
	// Unknown is the name of an attribute, or of a field next to them, that this program does not know, "" for none: the address may be another's as well.
	Unknown string
}

// Affinity is a host's claim on a block.
type Affinity struct {
	CIDR     netip.Prefix
	Revision int64
	State    string
}

// Assignment names one assignment of one address and no later one.
type Assignment struct {
	Address  netip.Addr
	Handle   string
	Sequence uint64
}

// EndpointRef is a WorkloadEndpoint at a revision.
type EndpointRef struct {
	Namespace, Name string
	Revision        int64
}

// Guard is the state of a Calico Node that every destructive write depends on. Revision 0 means that there must be no such Node.
type Guard struct {
	Host     string
	Revision int64
}

// ErrConflict is the kind of every error that says: something is no longer as the caller saw it. Read again and decide again.
// In etcd nothing was written then; in the kubernetes datastore a handle may have been lowered or an affinity marked, which is found again.
var ErrConflict = errors.New("changed meanwhile")

// ConflictError says what changed. errors.Is(err, ErrConflict) holds for it.
type ConflictError struct {
	Key    string
	Detail string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.Key, ErrConflict, e.Detail)
}

// Is implements errors.Is for ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }
