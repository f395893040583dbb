// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What Mooring writes on objects that others own. These strings are a contract with clusters that run already: selectors of BGPPeers name
// them, so a change would cut sessions.
const (
	// ReflectorLabel marks a Node that is a route reflector. Its value is the name of the topology.
	ReflectorLabel = "bgp.mooring.dev/reflector"
	// GroupLabel on a reflector of a hierarchy: its group, "spine", or a number from 2 on. The reflectors of the first group have no such label.
	GroupLabel = "bgp.mooring.dev/group"
	// ClientLabel on a client of a hierarchy: the number of the group whose reflectors it has sessions with.
	ClientLabel = "bgp.mooring.dev/client"
	// JoinsLabel on a client that moves: the number of the group that it moves to. Until the move is over it has sessions with both groups.
	JoinsLabel = "bgp.mooring.dev/client-joins"
	// TopologyLabel marks a BGPPeer, a CalicoNodeStatus or another object of Mooring's own with the topology that it belongs to.
	TopologyLabel = "bgp.mooring.dev/topology"
	// KeepAnnotation on a Node that is a reflector: it stays one as long as it lives and is fit, and is not moved for the sake of spread.
	KeepAnnotation = "bgp.mooring.dev/keep"
	// MeshAnnotation on BGPConfiguration default: as JSON, what the mesh had before it was turned off: its password and restart time.
	MeshAnnotation = "bgp.mooring.dev/mesh-before"
	// ConfirmAnnotation on a topology that is frozen: what is seen is meant. Its value is the word that the condition's message names, which holds for
	// this one time.
	ConfirmAnnotation = "bgp.mooring.dev/confirm"
	// ForceExitAnnotation on a topology whose deletion is refused: go on all the same. Its value is the reason of the refusal.
	ForceExitAnnotation = "bgp.mooring.dev/force-exit"
)

// Types of conditions, beside Ready, which is their summary.
const (
	// ConditionAccepted: the spec can be worked with. False says which field is wrong, or which other topology has the same clients.
	ConditionAccepted = "Accepted"
	// ConditionProgressing: steps are under way or wait for something. False when the cluster is as the spec wants it.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: fewer reflectors or sessions than wanted, or a plan that nobody may carry out.
	ConditionDegraded = "Degraded"
	// ConditionMeshDisabled: the node-to-node mesh is off, and reflectors carry the routes.
	ConditionMeshDisabled = "MeshDisabled"
	// ConditionFrozen: nothing is written, since what is seen is not believed, or the topology is paused.
	ConditionFrozen = "Frozen"
	// ConditionForeignMarks: Nodes have the label of this topology's reflectors, or the cluster ID of one of its groups, and the operator did not write it.
	// Nothing is decided on such a label, and nothing is held back by it; it does not count towards Ready.
	ConditionForeignMarks = "ForeignMarks"
)
