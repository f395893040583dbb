// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// What the datastore holds and node sync decides about has one form.
type (
	// OrchRef names an orchestrator and the node's name there.
	OrchRef = nodesync.OrchRef
	// Resource is an object about one host alone.
	Resource = nodesync.Resource
	// Report is what Felix last reported of a host; see Etcd.Reports.
	Report = nodesync.Report
	// Endpoint is a WorkloadEndpoint.
	Endpoint = nodesync.Endpoint
	// EndpointRef is a WorkloadEndpoint at a revision.
	EndpointRef = nodesync.EndpointRef
	// Affinity is a host's claim on a block.
	Affinity = nodesync.Affinity
	// Assignment names one assignment of one address and no later one.
	Assignment = nodesync.Reservation
	// Handle is an IPAM handle at a revision.
	Handle = nodesync.Handle
	// Leftover is an address or an endpoint that names a pod.
	Leftover = nodesync.Leftover
	// Sandboxed is what the datastore holds of a pod of several sandboxes or hosts.
	Sandboxed = nodesync.Sandboxed
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

// Host is what the datastore holds under one Calico node name, apart from its Node.
type Host struct {
	nodesync.Host
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

// Block is an IPAM block. AffineTo is the host it is affine to, "virtual:<name>" for a virtual affinity, "" for none.
type Block struct {
	CIDR        netip.Prefix
	AffineTo    string
	Allocations []Allocation
}

// Allocation is one assigned address of a block, with all attributes that anyone who assigned it wrote with it.
type Allocation struct {
	nodesync.Allocation
	Attributes map[string]string
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
