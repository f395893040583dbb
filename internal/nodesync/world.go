// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"net/netip"
	"time"
)

// World is everything one decision needs. The order of its slices does not matter.
type World struct {
	// Now is the time of the observation.
	Now time.Time
	// Kubernetes is what the API server said.
	Kubernetes Kubernetes
	// Calico is what Calico's datastore held, all of it read at one revision.
	Calico Calico
	// Memory is what earlier plans asked to remember; empty after a restart.
	Memory Memory
	// Confirmation is what a person wrote to let the mass guard pass: the hash of what it holds back, a slash, and the time (RFC 3339)
	// until which it holds. Empty for none.
	Confirmation string
	// Sightings are deletions of Kubernetes Nodes that were watched as they happened.
	Sightings []Sighting
}

// Kubernetes is the API server's side of the World.
type Kubernetes struct {
	// ClusterUID is the UID of the namespace kube-system, by which clusters are told apart.
	ClusterUID string
	// Synced reports that the watch cache has been filled at least once.
	Synced bool
	// Nodes are the Nodes of one quorum list, never of a cache.
	Nodes []KubernetesNode
	// Lookups are live reads of single Nodes; only suspects need one.
	Lookups []Lookup
	// RunningPods counts pods in phase Running that are bound to a suspect.
	RunningPods []RunningPods
	// PodAddresses are addresses that suspects without identity hold and that a running pod has.
	PodAddresses []PodAddress
	// Heartbeats and Pods are live reads of what Needs names.
	Pods       []PodLookup
	Heartbeats []Heartbeat
	// CalicoPods are the running calico-node pods of Kubernetes Nodes that have several Calico Nodes of which one is a suspect.
	CalicoPods []CalicoPod
}

// KubernetesNode is one Node as listed.
type KubernetesNode struct {
	Name string
	UID  string
}

// Verdict is what a live read of one Node said.
type Verdict string

const (
	// VerdictGone is the API server's own answer NotFound.
	VerdictGone Verdict = "gone"
	// VerdictAlive is an answer that holds the Node.
	VerdictAlive Verdict = "alive"
	// VerdictUnknown is anything else: a timeout, a refusal, an error. It counts as alive.
	VerdictUnknown Verdict = "unknown"
)

// Lookup is one live read of one Kubernetes Node.
type Lookup struct {
	Node    string
	Verdict Verdict
	// Detail is the error behind VerdictUnknown, for people.
	Detail string
}

// RunningPods is the number of running pods bound to a Kubernetes Node, with one of them as an example ("namespace/name").
type RunningPods struct {
	Node    string
	Count   int
	Example string
}

// PodAddress is an address that a running pod ("namespace/name") has.
type PodAddress struct {
	Address netip.Addr
	Pod     string
}

// Sighting is a Kubernetes Node that was known with this UID and whose deletion was then watched.
// A Node that was merely missing from a list has no sighting.
type Sighting struct {
	Node string
	UID  string
}

// Calico is the datastore's side of the World.
type Calico struct {
	// Revision is that of the store at which all of it was read, 0 in the kubernetes datastore.
	Revision int64
	// Ready is ClusterInformation's datastoreReady; absent counts as false.
	Ready bool
	// Binding is which cluster the datastore belongs to.
	Binding Binding
	// Nodes are all Calico Nodes.
	Nodes []CalicoNode
	// Unreadable are keys of Nodes whose value could not be parsed. They are never touched, and they are not absent.
	Unreadable []string
	// Hosts is what the datastore holds for suspects, apart from their Nodes.
	Hosts []Host
	// Reports are of the hosts that Needs names; EndpointsWritten is, for each host, the revision of its newest endpoint, if everything was looked through.
	Reports          []Report
	EndpointsWritten map[string]int64
	// Swept reports that everything was looked through this time, and Handles are the orphans among the IPAM handles that were found then.
	Swept   bool
	Handles []Handle
	// PodsSwept reports that what names a pod was compared with the pods this time. Leftovers are what names one that is not alive, AlivePods
	// how many pods are, and Holdings how much names a pod.
	PodsSwept bool
	// PodsNotSwept is why it should have been and was not, for people.
	PodsNotSwept string
	Leftovers    []Leftover
	AlivePods    int
	Holdings     int
}

// Binding is the record, on Calico's ClusterInformation, of the cluster that a datastore belongs to.
type Binding struct {
	// ClusterUID is the recorded UID of kube-system, empty when none is recorded yet.
	ClusterUID string
	// Revision is that of ClusterInformation.
	Revision int64
	// Implied reports that no record is needed: the kubernetes datastore is part of its cluster.
	Implied bool
}

// CalicoNode is one Node resource of Calico (libcalico-go, apis/v3 Node).
type CalicoNode struct {
	Name string
	// Revision is the etcd ModRevision of its key, or the resourceVersion in Kubernetes.
	Revision int64
	OrchRefs []OrchRef
	// FencedFor is the value of the fence annotation, empty when there is none.
	FencedFor string
	// Implied reports that the datastore holds no such object, and a host is known by what it left: with the kubernetes datastore always,
	// since a Calico Node is the Kubernetes Node itself there, and in etcd when somebody removed the Node before the rest. There is
	// nothing to fence or to remove last; Revision is 0.
	Implied bool
	// OnlyWitnessed reports that nothing shows that the host was ever a Kubernetes Node, but for its Node's deletion if that was watched.
	OnlyWitnessed bool
	// Keep reports that the keep annotation forbids removing it.
	Keep bool
	// former is the Kubernetes Node that it belonged to, if an earlier plan removed the Calico Node; see
	// World.recognized.
	former string
}

// OrchRef names the orchestrator that a Calico Node belongs to and its name there.
type OrchRef struct {
	Orchestrator string
	NodeName     string
}

// Host is what the datastore holds under one Calico node name, apart from the Node itself.
type Host struct {
	Name       string
	Endpoints  []Endpoint
	Blocks     []Block
	Affinities []Affinity
	// Resources are objects of other kinds that are about this host alone.
	Resources []Resource
	// IPCooldown is how long Calico keeps a released address from being assigned again; 0 for not at all.
	IPCooldown time.Duration
	// Mentions are sentences about objects that speak of the host and may be about others as well: they are only reported.
	Mentions []string
	// Unreadable are keys of this host whose value could not be parsed.
	Unreadable []string
}

// Endpoint is one WorkloadEndpoint.
type Endpoint struct {
	Namespace    string
	Name         string
	Revision     int64
	Orchestrator string
	Pod          string
}

// ResourceKind is a kind of Calico resource, spelled as in Calico's API.
type ResourceKind string

// The kinds of which an object can be about one host alone.
const (
	KindFelixConfiguration ResourceKind = "FelixConfiguration"
	KindBGPConfiguration   ResourceKind = "BGPConfiguration"
	KindHostEndpoint       ResourceKind = "HostEndpoint"
	KindBGPPeer            ResourceKind = "BGPPeer"
	KindCalicoNodeStatus   ResourceKind = "CalicoNodeStatus"
)

// KindIPAMHandle is a kind that is about no host: it is removed when it belongs to no address.
const KindIPAMHandle ResourceKind = "IPAMHandle"

// OptionalKinds lists the kinds that Config.AlsoRemove may name.
func OptionalKinds() []ResourceKind { return append(ResourceKinds(), KindIPAMHandle, KindPodLeftovers) }

// ResourceKinds lists the kinds of which an object can be about one host alone, in the order in which they are removed.
func ResourceKinds() []ResourceKind {
	return []ResourceKind{KindHostEndpoint, KindBGPPeer, KindCalicoNodeStatus, KindBGPConfiguration, KindFelixConfiguration}
}

// Resource is an object about one host alone: "node.<name>" configurations, and what names the host in spec.node.
type Resource struct {
	Kind     ResourceKind
	Name     string
	Revision int64
	// Automatic reports that a program wrote it and would write it again: Calico's automatic host endpoints, and a FelixConfiguration with
	// nothing but what calico-node writes at every start (node/pkg/lifecycle/startup: ensureDefaultConfig).
	Automatic bool
	// StatusAt is when calico-node last updated a CalicoNodeStatus, the zero time if it did not.
	StatusAt time.Time
}

// Block is one IPAM block that is affine to the host or that holds an address of it.
type Block struct {
	CIDR netip.Prefix
	// AffineTo is the host that the block is affine to, empty for none. A virtual affinity (load balancers) is written "virtual:<name>".
	AffineTo    string
	Allocations []Allocation
}

// Allocation is one assigned address of a block.
type Allocation struct {
	Address netip.Addr
	// Handle is the IPAM handle of the assignment, as stored.
	Handle string
	// Sequence is the block's sequence number when the address was assigned; handle and sequence together name this assignment and no later one.
	Sequence uint64
	// Host is the "node" attribute of the assignment, empty when it has none.
	Host string
	// AssignedAt is when the CNI plugin assigned it, by the clock of the machine; the zero time if that is not known.
	AssignedAt time.Time
	// ReleasedAt is when the address was released, if it is in cooldown: it has no owner, and is not free yet.
	ReleasedAt time.Time
	// VirtualMachine is the virtual machine ("namespace/name") that the address belongs to, empty for none: it keeps its address when its pod and
	// its host are gone. AlternateHost is the host that it moves to or came from with its address, empty for none.
	VirtualMachine, AlternateHost string
	// Unknown is the name of a field of the assignment that this program does not know, empty for none. The address may be another's as well then.
	Unknown string
}

// Affinity is the claim of a host on a block.
type Affinity struct {
	CIDR     netip.Prefix
	Revision int64
	// State is confirmed, pending or pendingDeletion.
	State string
}

// Memory is what a plan asks to remember until the next one. Its JSON form outlives the process and MUST stay readable.
type Memory struct {
	// Absences are Calico Nodes whose Kubernetes Node is missing, and since when.
	Absences []Absence `json:"absences,omitempty"`
	// Removals are the times at which unwitnessed nodes were planned for removal, within the window of the mass guard.
	Removals []Removal `json:"removals,omitempty"`
	// Awaiting is what waits for a person's confirmation. It is written for people and programs that look, and never read back by a plan.
	Awaiting Awaiting `json:"awaiting,omitzero"`
	// Handles are the orphaned IPAM handles that the last sweep found. Not worth keeping.
	Handles []OrphanedHandle `json:"-"`
	// Sweep is what that sweep found besides. Not worth keeping.
	Sweep Sweep `json:"-"`
	LeftoverMemory
	// AlsoRemove is Config.AlsoRemove, and PodLeftovers is why leftovers of pods are left alone. They are written for
	// people and programs that look, and never read back by a plan.
	AlsoRemove   []ResourceKind `json:"alsoRemove,omitempty"`
	PodLeftovers []Refusal      `json:"podLeftovers,omitempty"`
	// SavedAt is when the memory was last known to be true; see Recalled.
	SavedAt time.Time `json:"savedAt,omitzero"`
}

// Absence is when a Calico Node was first seen without its Kubernetes Node.
type Absence struct {
	CalicoNode     string    `json:"calicoNode"`
	KubernetesNode string    `json:"kubernetesNode"`
	Since          time.Time `json:"since"`
	// Revision is the Calico Node's revision when the absence began; a change means that something still writes it.
	Revision int64 `json:"revision,omitempty"`
	// Witnessed reports that the deletion of the Kubernetes Node was watched as it happened.
	Witnessed bool `json:"witnessed,omitempty"`
	// Doubted reports that a Kubernetes Node is listed that the machine may be: its grace period begins when that is gone.
	Doubted bool `json:"doubted,omitempty"`
	// BlocksStay reports that a plan cleans it and leaves blocks to others. In etcd that removes the Calico Node, and
	// then nothing else says whose the blocks were, and that the mass guard has let it pass.
	BlocksStay bool `json:"blocksStay,omitempty"`
	// ConfirmedUntil is until when a person's confirmation lets the mass guard pass for this node.
	ConfirmedUntil time.Time `json:"confirmedUntil,omitzero"`
	// Store is the store's revision when the absence began, or when a sign of life was last seen. SpokeAt is the time of the latest sign of life,
	// which is Spoke. Lived reports that one came after the absence had begun.
	Store   int64     `json:"store,omitempty"`
	Spoke   string    `json:"spoke,omitempty"`
	SpokeAt time.Time `json:"spokeAt,omitzero"`
	Lived   bool      `json:"lived,omitempty"`
	// NotBefore is when to try again after something spoke against cleaning up; HeldBy and Held are that refusal, and Holds is how often
	// it has been so. Not worth keeping.
	NotBefore time.Time `json:"-"`
	HeldBy    Gate      `json:"-"`
	Held      string    `json:"-"`
	Holds     int       `json:"-"`
}

// Removal is one unwitnessed node that was planned for removal.
type Removal struct {
	CalicoNode string    `json:"calicoNode"`
	At         time.Time `json:"at"`
}
