// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// What Mooring writes on objects that others own. These strings are a contract with clusters that run already: selectors of BGPPeers name
// them, so a change would cut sessions.
const (
	// ReflectorLabel on a Node that is a route reflector: the name of the topology.
	ReflectorLabel = "bgp.mooring.dev/reflector"
	// GroupLabel on a reflector of a hierarchy: its group, "spine", or a number from 2 on. The reflectors of the first group have no such label.
	GroupLabel = "bgp.mooring.dev/group"
	// ClientLabel on a client of a hierarchy: the number of the group whose reflectors it has sessions with.
	ClientLabel = "bgp.mooring.dev/client"
	// JoinsLabel on a client that moves: the number of the group that it moves to. Until the move is over it has sessions with both groups.
	JoinsLabel = "bgp.mooring.dev/client-joins"
	// TopologyLabel on a BGPPeer, a CalicoNodeStatus or another object of Mooring's own: the topology that it belongs to.
	TopologyLabel = "bgp.mooring.dev/topology"
	// KeepAnnotation on a Node that is a reflector: it stays a reflector as long as it is suitable, and is not replaced to balance zones.
	KeepAnnotation = "bgp.mooring.dev/keep"
	// MeshAnnotation on BGPConfiguration default: settings of the mesh before it was turned off (password and restart time), as JSON.
	MeshAnnotation = "bgp.mooring.dev/mesh-before"
	// ConfirmAnnotation on a topology that is frozen: confirms that the observed change is intended. Its value is the word in the condition's
	// message, which is valid once.
	ConfirmAnnotation = "bgp.mooring.dev/confirm"
	// ForceExitAnnotation on a topology whose deletion is refused: continues the deletion. Its value is the reason of the refusal.
	ForceExitAnnotation = "bgp.mooring.dev/force-exit"
)

// MaxLostReflectors is how many lost reflectors a status names.
const MaxLostReflectors = 16

// MaxSpares is how many spares a status names.
const MaxSpares = 16

// Types of conditions, alongside Ready, which is their summary.
const (
	// ConditionAccepted: the spec is valid. If False, the message names the wrong field, or the other topology with the same clients.
	ConditionAccepted = "Accepted"
	// ConditionProgressing: steps are in progress or wait for something. False when the cluster matches the spec.
	ConditionProgressing = "Progressing"
	// ConditionDegraded: there are fewer reflectors or sessions than desired, or a plan that must not be applied.
	ConditionDegraded = "Degraded"
	// ConditionMeshDisabled: the node-to-node mesh is off, and reflectors carry the routes.
	ConditionMeshDisabled = "MeshDisabled"
	// ConditionFrozen: nothing is written, because the observed state is not trusted, or the topology is paused.
	ConditionFrozen = "Frozen"
	// ConditionForeignMarks: Nodes have the label of this topology's reflectors, or the cluster ID of one of its groups, and the operator did
	// not write it. Such a label has no influence on the plan; Ready does not depend on this condition.
	ConditionForeignMarks = "ForeignMarks"
)
