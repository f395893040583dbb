// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"time"

	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// Plan is what shall be and how to get there. Equal Worlds give equal Plans, whatever the order of their lists.
type Plan struct {
	// Mode is the shape that there shall be: Flat or Hierarchical.
	Mode v1alpha1.Mode
	// Hash names what shall be. It stays the same while the steps are carried out.
	Hash string
	// Clients counts the nodes that take their routes from the reflectors.
	Clients int
	// Groups are the groups that there shall be: one in a flat topology; else those of clients and then the spines.
	Groups []Group
	// Reflectors are those that are, join or leave, sorted by name.
	Reflectors []Reflector
	// Peers are the BGPPeers that shall be.
	Peers []Peer
	// Steps are the writes that remain, in order. Each is safe once the one before it has settled.
	Steps []Step
	// More reports that there are further steps behind these.
	More bool
	// AtOnce is how many of the first steps may be done in one round, each without a check of what the one before has
	// brought, once the first waits for nothing: one; several that are about one client each; all that add something in
	// an emergency; and adopted BGPPeers that go.
	AtOnce int
	// Waiting says what the first step waits for, "" if it can be done now. Without steps it says what has not been
	// seen since the last one.
	Waiting string
	// Lasting reports that it waits for time to pass, not for sessions: no timeout of theirs counts.
	Lasting bool
	// Witnesses are the nodes whose sightings are needed now, sorted; nobody else needs to be asked. Samples are those
	// of them that are asked for their routes as well as for their sessions.
	Witnesses, Samples []string
	// Standing are the nodes on which a status request stands all the time, sorted. Recheck is when one of them last
	// lost a reflector: what the others reported before is asked for again.
	Standing []string
	Recheck  time.Time
	// Lost is what the topology's status must say of lost reflectors. Isolated describes witnesses that have lost all
	// reflectors, "" if none have.
	Lost     []v1alpha1.LostReflector
	Isolated string
	// Spares is what the topology's status must say of spares, sorted by name.
	Spares []v1alpha1.Spare
	// Baseline is what is believed of the cluster from now on; it is kept in the topology's status. Confirm says that a
	// list of the API server would let more be believed ([World.Confirmed]).
	Baseline *v1alpha1.Baseline
	Confirm  bool
	// Emergency is what the topology's status must say of an emergency, before the first step; nil for none.
	Emergency *v1alpha1.Emergency
	// Record is what the topology's status must say was written on Nodes, before the first step. Stale names those of
	// its entries that are to go, once a live read has shown that their Nodes have no label.
	Record *v1alpha1.Record
	Stale  []string
	// Foreign are the labels and cluster IDs that this topology did not write and that look like its own, sorted by
	// node.
	Foreign []Foreign
	// Refusals say why nothing is planned, or why the steps end early.
	Refusals []Refusal
	// Notes are what an operator should know although nothing is refused for it.
	Notes []Note
	// Troubles are the reflectors whose Nodes are not Ready, or that their witnesses have lost, sorted by name.
	Troubles []Trouble
	// Checks is the model's verdict on the cluster as it is, Target on it after the last step.
	Checks, Target Checks
	// Simulated are the states between, one for each step.
	Simulated []Simulated
}

// Group is a group of reflectors that there shall be.
type Group struct {
	// Name is the topology's name for the only group of a flat topology, else a number, or spine.
	Name      string `json:"name"`
	ClusterID string `json:"clusterID"`
	// Reflectors are the names of its reflectors, sorted.
	Reflectors []string `json:"reflectors"`
	// Clients counts the clients that are in it, or on the way to it, after the last of the plan's steps.
	Clients int `json:"clients"`
}

// Simulated is the model's verdict on the state after a step.
type Simulated struct {
	Step   Step
	Checks Checks
}

// Reason classifies a Refusal. The words become reasons of conditions.
type Reason string

// The reasons for which nothing, or not everything, is planned.
const (
	// ReasonPaused of Frozen=True, Stalled=True: spec.paused is true.
	ReasonPaused Reason = "Paused"
	// ReasonDatastoreNotReady of Frozen=True: Calico's datastore is being migrated or upgraded and must not be written
	// to.
	ReasonDatastoreNotReady Reason = "DatastoreNotReady"
	// ReasonForeignDatastore of Frozen=True, Stalled=True: Calico's etcd is another cluster's, or does not look like
	// this one's.
	ReasonForeignDatastore Reason = "ForeignDatastore"
	// ReasonHierarchy of Accepted=False, Stalled=True: spec.mode Hierarchical is not possible with these nodes, or not
	// together with spec.sizing.perZone.
	ReasonHierarchy Reason = "HierarchyNotPossible"
	// ReasonSizing of Accepted=False, Stalled=True: spec.sizing.perZone needs spec.topologyKeys.
	ReasonSizing Reason = "InvalidSizing"
	// ReasonClusterID of Accepted=False, Stalled=True: spec.clusterID is not a usable address, or spec.clusterIDRange
	// has no free address.
	ReasonClusterID Reason = "InvalidClusterID"
	// ReasonSelector of Accepted=False, Stalled=True: a selector of the spec is not a valid label selector.
	ReasonSelector Reason = "InvalidSelector"
	// ReasonClusterIDTaken of Accepted=False, Stalled=True: a node or an older topology has the cluster ID already.
	ReasonClusterIDTaken Reason = "ClusterIDTaken"
	// ReasonOverlap of Accepted=False, Stalled=True: an older topology has clients of this one.
	ReasonOverlap Reason = "OverlappingTopology"
	// ReasonConflict of Accepted=False, Stalled=True: a BGPPeer with the required name belongs to another owner.
	ReasonConflict Reason = "ForeignObject"
	// ReasonNoClients of Accepted=False: spec.clientSelector matches no node that runs Calico's BGP.
	ReasonNoClients Reason = "NoClients"
	// ReasonNotNeeded of Accepted=False, Stalled=True: BGP carries no routes between nodes, so that reflectors are of
	// no use; nothing is enabled until a person confirms it.
	ReasonNotNeeded Reason = "NotNeeded"
	// ReasonNoReflectors of Degraded=True: no node may be a reflector; the message counts the reasons.
	ReasonNoReflectors Reason = "NoEligibleReflectors"
	// ReasonUnsafe of Degraded=True, Stalled=True: by the reachability model the next step would disconnect nodes, or
	// remove too many sessions of clients.
	ReasonUnsafe Reason = "UnsafeStep"
	// ReasonSessionOptions of Accepted=False, Stalled=True: spec.session has changed, which would reset every session
	// at once, and the mesh cannot carry the clients meanwhile.
	ReasonSessionOptions Reason = "SessionOptionsChange"
	// ReasonFilterMissing of Accepted=False, Stalled=True: a BGPFilter of spec.session.filters does not exist; nothing
	// is written until it exists or is removed from the list.
	ReasonFilterMissing Reason = "BGPFilterNotFound"
	// ReasonMatchesNothing of Frozen=True, Stalled=True: a selector of the spec no longer selects any node, although
	// the nodes that it selected still exist.
	ReasonMatchesNothing Reason = "SelectorMatchesNothing"
	// ReasonMatchesTooFew of Frozen=True, Stalled=True: a selector of the spec no longer selects most of its nodes,
	// although they still exist.
	ReasonMatchesTooFew Reason = "SelectorMatchesTooFew"
	// ReasonNodesVanished of Frozen=True: half of the Nodes are gone; nothing is written until this has lasted for five
	// minutes, or a person confirms it.
	ReasonNodesVanished Reason = "NodesVanished"
	// ReasonMeshTooLarge of Accepted=False, Stalled=True: the topology is being deleted, and the mesh would have more
	// nodes than spec.sizing.maxMeshNodes.
	ReasonMeshTooLarge Reason = "MeshTooLarge"
	// ReasonMeshNotManaged of Accepted=False, Stalled=True: the topology is being deleted while the mesh is off, and
	// spec.mesh does not let the program turn it on.
	ReasonMeshNotManaged Reason = "MeshNotManaged"
	// ReasonCannotAdopt of Accepted=False, Stalled=True: the objects in spec.adopt cannot be adopted without
	// unnecessary session resets; the message says what to do.
	ReasonCannotAdopt Reason = "CannotAdopt"
)

// Refusal is a reason not to act.
type Refusal struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
}

// NoteKind classifies a Note.
type NoteKind string

const (
	// NoteTooFew is that there are fewer reflectors than wanted: the topology is degraded by it.
	NoteTooFew NoteKind = "TooFewReflectors"
	// NoteAdvice is what is worth knowing and hurts nobody.
	NoteAdvice NoteKind = "Advice"
)

// Note is a sentence that an operator should know.
type Note struct {
	Kind    NoteKind
	Message string
}

// Messages are the sentences of notes.
func Messages(notes []Note) []string {
	var out []string
	for _, n := range notes {
		out = append(out, n.Message)
	}
	return out
}

// Role is what a node is to a topology.
type Role string

// The roles.
const (
	RoleReflector Role = "Reflector"
	RoleJoining   Role = "Joining"
	RoleLeaving   Role = "Leaving"
)

// Reflector is a node that is a reflector, or is to become or to cease to be one.
type Reflector struct {
	Node      string `json:"node"`
	Group     string `json:"group"`
	Zone      string `json:"zone"`
	ClusterID string `json:"clusterID"`
	Role      Role   `json:"role"`
	// Reason says why.
	Reason string `json:"reason"`
}

// defaultRedundancy is the number of reflectors where the spec names none.
const defaultRedundancy = 3

// CeilDiv is a/b rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }

// Count is 1 for true and 0 for false.
func Count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// InRole keeps the reflectors with a role.
func InRole(reflectors []Reflector, role Role) []Reflector {
	return slices.DeleteFunc(slices.Clone(reflectors), func(r Reflector) bool { return r.Role != role })
}

// Step is one write. The set of steps is closed: only the types below implement it.
//
//sumtype:decl
type Step interface {
	// What returns what is written, and why.
	What() About
	// Node returns the name of the node that changes, "" for none.
	Node() string
	// Change returns what changes on it, the zero value for nothing, and its cluster ID, nil if that stays.
	Change() (c NodeChange, clusterID *string)
	// String is the step in a line.
	String() string
	step()
}

// About is the object that a step writes, and why.
type About struct {
	// Object is what is written, as Kind/name.
	Object, Reason string
	// UID and ResourceVersion are those of the object that the step was decided on, "" for one that is to be created.
	UID, ResourceVersion string
}

// AboutPeer is what a step at the BGPPeer of a name is about; have is the zero value for one that is to be created.
func AboutPeer(name string, have Peer, reason string) About {
	return About{"BGPPeer/" + name, reason, have.UID, have.ResourceVersion}
}

// What implements Step.
func (a About) What() About { return a }

// Node implements Step.
func (About) Node() string { return "" }

// Change implements Step.
func (About) Change() (NodeChange, *string) { return NodeChange{}, nil }

func (About) step() {}

// NodeChange is what a step changes on a node.
type NodeChange struct {
	About
	Name string
	// Labels are those that the node gets, nil for those that it loses.
	Labels map[string]*string
}

// RoleChange is one with the label of a reflector among the labels. ClusterID is the node's from then on, "" for none.
type RoleChange struct {
	NodeChange
	ClusterID string
}

// Node implements Step.
func (c NodeChange) Node() string { return c.Name }

// Change implements Step.
func (c NodeChange) Change() (NodeChange, *string) { return c, nil }

// Change implements Step.
func (c RoleChange) Change() (NodeChange, *string) { return c.NodeChange, &c.ClusterID }

type (
	// EnsurePeer creates or updates one of the topology's BGPPeers.
	EnsurePeer struct {
		About
		Peer Peer
	}
	// RemovePeer deletes one.
	RemovePeer struct {
		About
		Name string
	}
	// RetirePeer deletes a BGPPeer that spec.adopt names, somebody else's.
	RetirePeer struct {
		About
		Name string
	}
	// MeshOn switches the node-to-node mesh on.
	MeshOn struct{ About }
	// MeshOff switches it off.
	MeshOff struct{ About }
	// Promote makes a node a reflector: label and cluster ID in one patch.
	Promote struct{ RoleChange }
	// Demote ends it, in one patch as well.
	Demote struct{ RoleChange }
	// Adopt gives a reflector that spec.adopt names the topology's label; its cluster ID is the topology's already.
	Adopt struct{ RoleChange }
	// Assign labels a client with a group. None of its sessions ends by it.
	Assign struct{ NodeChange }
	// Join gives a client sessions with a second group.
	Join struct{ NodeChange }
	// Leave ends those with the first: two patches of labels make a move.
	Leave struct{ NodeChange }
	// Release takes the labels of a client away where groups do not matter any more.
	Release struct{ NodeChange }
)

func (s EnsurePeer) String() string { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s RemovePeer) String() string { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s RetirePeer) String() string { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s MeshOn) String() string     { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s MeshOff) String() string    { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Promote) String() string    { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Adopt) String() string      { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Demote) String() string     { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Assign) String() string     { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Join) String() string       { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Leave) String() string      { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }
func (s Release) String() string    { return fmt.Sprintf(line, s, s.Object, s.Reason)[skip:] }

// line is the format of a step, of which the first skip bytes are the package's name.
const (
	line = "%T %s: %s"
	skip = len("routereflector.")
)

// Kind is the step's type name, as it stands in the status, JSON and metrics.
func Kind(s Step) string { return fmt.Sprintf("%T", s)[skip:] }

// Shown is the step as the status and the JSON form of a plan have it.
func Shown(s Step) v1alpha1.PlanStep {
	return v1alpha1.PlanStep{Kind: Kind(s), Object: s.What().Object, Reason: s.What().Reason}
}

// Is reports that a step is of a kind.
func Is[K Step](s Step) bool {
	_, is := s.(K)
	return is
}

// OfClient reports that the step is a write to a client.
func OfClient(s Step) bool {
	switch s.(type) {
	case Assign, Join, Leave, Release:
		return true
	case EnsurePeer, RemovePeer, RetirePeer, MeshOn, MeshOff, Promote, Adopt, Demote:
	}
	return false
}

// Exempt is the node whose own sessions the step cannot but reset, since its role changes, "" if it resets none.
func Exempt(s Step) string {
	switch s.(type) {
	case Promote, Demote:
		return s.Node()
	case EnsurePeer, RemovePeer, RetirePeer, MeshOn, MeshOff, Adopt, Assign, Join, Leave, Release:
	}
	return ""
}

// Marks are the labels that make the node a reflector of the first group of a topology.
func (n *Node) Marks(topology string) map[string]*string {
	out := n.Without(v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel)
	out[v1alpha1.ReflectorLabel] = &topology
	return out
}

// HasAny reports whether the node has one of some labels.
func (n *Node) HasAny(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		_, has := n.Labels[key]
		return has
	})
}

// Without is what takes those of the labels away that the node has.
func (n *Node) Without(keys ...string) map[string]*string {
	out := map[string]*string{}
	for _, key := range keys {
		if _, has := n.Labels[key]; has {
			out[key] = nil
		}
	}
	return out
}

// Checks is what the model says of a state of the cluster.
type Checks struct {
	// UnreachablePairs counts the ordered pairs of live nodes without a path, summed over the address families.
	UnreachablePairs int `json:"unreachablePairs"`
	// MinSessionsPerClient is the least number of sessions with the topology's reflectors that a live client has.
	MinSessionsPerClient int `json:"minSessionsPerClient"`
	// MaxPathsPerPrefix is the greatest number of paths that a node has to one prefix.
	MaxPathsPerPrefix int `json:"maxPathsPerPrefix"`
	// Examples names some of the unreachable pairs.
	Examples []reachability.Pair `json:"examples,omitempty"`
}

// Refuse is a Refusal with a message as of [fmt.Sprintf].
func Refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}
