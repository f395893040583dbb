// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Datastore is what this controller needs of Calico's datastore. Reads are quorum reads. Every write holds only in the state it names
// and answers an error for which errors.Is(err, calico.ErrConflict) holds when that state has passed; then nothing was written.
type Datastore interface {
	// Snapshot reads all Calico Nodes at one revision.
	Snapshot(ctx context.Context) (calico.Snapshot, error)
	// Hosts reads what is held under the given names at that revision.
	Hosts(ctx context.Context, revision int64, names []string) ([]calico.Host, error)
	// Sweep looks through everything at that revision, for what no Node and no affinity leads to.
	Sweep(ctx context.Context, revision int64) (calico.Sweep, error)
	// Reports reads what the Felix of each of the hosts last reported, at that revision.
	Reports(ctx context.Context, revision int64, hosts []string) ([]calico.Report, error)
	// DeleteHandles deletes IPAM handles that were orphans, all or none.
	DeleteHandles(ctx context.Context, handles []calico.Handle) error
	// AnnotateNode sets (or, with an empty value, removes) one annotation and returns the Node's new revision.
	AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (int64, error)
	// DeleteEndpoints deletes workload endpoints, all or none.
	DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error
	// ReleaseAddresses frees addresses of one block with their handles, all or none.
	ReleaseAddresses(ctx context.Context, guard calico.Guard, block netip.Prefix, assignments []calico.Assignment) error
	// DeleteAffinity deletes a claim on a block and, if asked, the empty block.
	DeleteAffinity(ctx context.Context, guard calico.Guard, block netip.Prefix, revision int64, deleteBlock bool) error
	// DeleteResource deletes an object of another kind that is about the host alone.
	DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error
	// AnnotateClusterInformation sets one annotation of Calico's ClusterInformation.
	AnnotateClusterInformation(ctx context.Context, revision int64, annotation, value string) error
	// DeleteNode deletes the Calico Node.
	DeleteNode(ctx context.Context, guard calico.Guard) error
	// PodHoldings looks for what names a pod that is not alive.
	PodHoldings(ctx context.Context, revision int64, alive func(namespace, name string) bool) (calico.PodHoldings, error)
	// DescribeLeftovers reads what pods have left as it stands, for the journal; MachineUID is by which the machine is known again when it is put back.
	DescribeLeftovers(ctx context.Context, leftovers []calico.Leftover) ([]calico.Object, []calico.HeldAddress, error)
	MachineUID(ctx context.Context, host string) (string, error)
	// RemoveLeftovers removes endpoints or addresses of one block, all or none.
	RemoveLeftovers(ctx context.Context, guard calico.Guard, leftovers []calico.Leftover) error
}

// Cluster is what this controller needs of Kubernetes. All but Synced and Sightings are live quorum reads, never a cache's answer.
type Cluster interface {
	// UID is the UID of the namespace kube-system.
	UID(ctx context.Context) (string, error)
	// Synced reports that the watch on Nodes has been filled.
	Synced() bool
	// Sightings are the deletions of Nodes that were watched as they happened.
	Sightings() []nodesync.Sighting
	// ForgetSightings drops old ones of Nodes that are not needed any more, so that they do not pile up as machines come and go.
	ForgetSightings(needed map[string]bool)
	// ListNodes lists all Nodes. An error means that nothing is known.
	ListNodes(ctx context.Context) ([]nodesync.KubernetesNode, error)
	// LookUp reads one Node; whatever is not a clear answer is VerdictUnknown.
	LookUp(ctx context.Context, name string) nodesync.Lookup
	// RunningPods counts the pods in phase Running that are bound to a Node of that name.
	RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error)
	// CalicoPods lists the running calico-node pods of a Node, with the NODENAME that they run with.
	CalicoPods(ctx context.Context, node string) ([]nodesync.CalicoPod, error)
	// PodsWithAddresses returns which of the addresses pods in phase Running have. Many addresses cost about as much as twenty.
	PodsWithAddresses(ctx context.Context, addresses []netip.Addr) ([]nodesync.PodAddress, error)
	// EachPod visits the namespace and name of every pod that has not finished.
	EachPod(ctx context.Context, visit func(namespace, name string)) error
	// LookUpPod reads one pod; whatever is not a clear answer is VerdictUnknown.
	LookUpPod(ctx context.Context, namespace, name string) nodesync.PodLookup
	// Heartbeat reads a Node and the Lease of its kubelet.
	Heartbeat(ctx context.Context, node string) nodesync.Heartbeat
}
