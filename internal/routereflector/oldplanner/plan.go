// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
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
	// ReasonPaused of Frozen=True: spec.paused is true.
	ReasonPaused Reason = "Paused"
	// ReasonDatastoreNotReady of Frozen=True: Calico's datastore is being migrated or upgraded and must not be written
	// to.
	ReasonDatastoreNotReady Reason = "DatastoreNotReady"
	// ReasonForeignDatastore of Frozen=True: Calico's etcd is another cluster's, or does not look like this one's.
	ReasonForeignDatastore Reason = "ForeignDatastore"
	// ReasonHierarchy of Accepted=False: spec.mode Hierarchical is not possible with these nodes, or not together with
	// spec.sizing.perZone.
	ReasonHierarchy Reason = "HierarchyNotPossible"
	// ReasonSizing of Accepted=False: spec.sizing.perZone needs spec.topologyKeys.
	ReasonSizing Reason = "InvalidSizing"
	// ReasonClusterID of Accepted=False: spec.clusterID is not a usable address, or spec.clusterIDRange has no free
	// address.
	ReasonClusterID Reason = "InvalidClusterID"
	// ReasonSelector of Accepted=False: a selector of the spec is not a valid label selector.
	ReasonSelector Reason = "InvalidSelector"
	// ReasonClusterIDTaken of Accepted=False: a node or an older topology has the cluster ID already.
	ReasonClusterIDTaken Reason = "ClusterIDTaken"
	// ReasonOverlap of Accepted=False: an older topology has clients of this one.
	ReasonOverlap Reason = "OverlappingTopology"
	// ReasonConflict of Accepted=False: a BGPPeer with the required name belongs to another owner.
	ReasonConflict Reason = "ForeignObject"
	// ReasonNoClients of Accepted=False: spec.clientSelector matches no node that runs Calico's BGP.
	ReasonNoClients Reason = "NoClients"
	// ReasonNoReflectors of Degraded=True: no node may be a reflector; the message counts the reasons.
	ReasonNoReflectors Reason = "NoEligibleReflectors"
	// ReasonUnsafe of Degraded=True: by the reachability model the next step would disconnect nodes, or remove too many
	// sessions of clients.
	ReasonUnsafe Reason = "UnsafeStep"
	// ReasonSessionOptions of Accepted=False: spec.session has changed, which would reset every session at once, and
	// the mesh cannot carry the clients meanwhile.
	ReasonSessionOptions Reason = "SessionOptionsChange"
	// ReasonFilterMissing of Accepted=False: a BGPFilter of spec.session.filters does not exist; nothing is written
	// until it exists or is removed from the list.
	ReasonFilterMissing Reason = "BGPFilterNotFound"
	// ReasonMatchesNothing of Frozen=True: a selector of the spec no longer selects any node, although the nodes that
	// it selected still exist.
	ReasonMatchesNothing Reason = "SelectorMatchesNothing"
	// ReasonMatchesTooFew of Frozen=True: a selector of the spec no longer selects most of its nodes, although they
	// still exist.
	ReasonMatchesTooFew Reason = "SelectorMatchesTooFew"
	// ReasonNodesVanished of Frozen=True: half of the Nodes are gone; nothing is written until this has lasted for five
	// minutes, or a person confirms it.
	ReasonNodesVanished Reason = "NodesVanished"
	// ReasonMeshTooLarge of Accepted=False: the topology is being deleted, and the mesh would have more nodes than
	// spec.sizing.maxMeshNodes.
	ReasonMeshTooLarge Reason = "MeshTooLarge"
	// ReasonMeshNotManaged of Accepted=False: the topology is being deleted while the mesh is off, and spec.mesh does
	// not let the program turn it on.
	ReasonMeshNotManaged Reason = "MeshNotManaged"
	// ReasonCannotAdopt of Accepted=False: the objects in spec.adopt cannot be adopted without unnecessary session
	// resets; the message says what to do.
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

// Make plans. Nodes are put in order first: what the reachability model gives as examples, and what is said of them,
// follows the order of its speakers.
func Make(w World) Plan {
	w.Nodes = slices.SortedFunc(slices.Values(w.Nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	w = w.Recognized().Witnessed()
	w.Topology.Status.Emergency = candidatesOf(&w).emergencyStatus()
	is := checksOf(&w)
	d := is.design()
	p := is.observed(d)
	now := is.judge(w.state())
	p.Checks, p.Target = now.checks, now.checks
	if p.Refusals = objectionsOf(&w).refusals(d); len(p.Refusals) > 0 {
		p.Reflectors = is.reflectors(is.asTheyAre(d))
		p.Groups = is.groups(p.Reflectors, d)
		return p
	}
	if is.exiting() {
		p.Standing = nil // while the end is refused, the reflectors stay
	}
	chosen := is.choose(d)
	p.Reflectors = is.reflectors(chosen)
	p.Groups = is.groups(p.Reflectors, d)
	p.Stale, p.Hash = is.stale(p.Reflectors), is.hash(chosen)
	if !is.exiting() {
		p.Peers, p.Notes = is.finalPeers(d), is.notes(p.Clients, chosen)
		if len(chosen.groups) == 0 {
			p.Refusals = append(
				p.Refusals,
				Refusal{ReasonNoReflectors, "no node may be a reflector: " + is.whyNobody()},
			)
			is.fallback(&p, now)
			return p
		}
	}
	if honest := w.honest(); len(honest.Nodes) < len(w.Nodes) {
		is = checksOf(&honest)
		now = is.judge(honest.state())
	}
	end := is.check(&p, now, chosen)
	p.Groups = choicesOf(&end).groups(p.Reflectors, d)
	is.gate(&p)
	return p
}

// observed is a plan that says the observed state, and nothing yet of what is to be done.
func (w checks) observed(d design) Plan {
	p := Plan{
		Mode:      d.mode(),
		Clients:   w.clients(),
		Record:    w.Topology.Status.Record,
		Foreign:   w.foreign(d),
		Emergency: w.Topology.Status.Emergency,
		Troubles:  w.troubles(),
	}
	p.Standing, p.Recheck, p.Lost, p.Isolated = w.standing(), w.recheck(), w.lostReflectors(), w.isolated()
	p.Baseline, p.Confirm = w.believe()
	return p
}

// notes are warnings.
func (w choices) notes(clients int, chosen choice) []Note {
	var out []Note
	advise := func(message string) { out = append(out, Note{NoteAdvice, message}) }
	d := chosen.design
	if most := int(
		w.Topology.Spec.Sizing.MaxClientsPerReflector,
	); most > 0 && !d.hierarchical() && clients > most &&
		d.short == "" {
		advise(
			fmt.Sprintf(
				"each reflector has %d clients, more than spec.sizing.maxClientsPerReflector (%d); with spec.mode Auto and without "+
					"spec.sizing.perZone groups would divide them",
				clients,
				most,
			),
		)
	}
	if d.short != "" {
		advise(d.short)
	}
	want := 0
	for _, g := range d.order() {
		want += d.size(g)
	}
	if have := len(chosen.groups) - w.unwanted(chosen.names()); w.Topology.Spec.Sizing.PerZone == nil && have < want {
		out = append(out, Note{NoteTooFew, fmt.Sprintf("only %d of %d reflectors: %s", have, want, w.whyNobody())})
	}
	if w.adopted() {
		advise("nothing is left that spec.adopt names; take it out of the spec")
	}
	for _, d := range Discords(w.Nodes, w.Peers) {
		advise(d.String())
	}
	if w.Mesh.On && w.Topology.Spec.Mesh == v1alpha1.MeshManage && w.tooManyRoutes() {
		advise(
			"there are more routes than a CalicoNodeStatus can hold, so that before the mesh is turned off a sample of clients reports its sessions, not its routes",
		)
	}
	return out
}
