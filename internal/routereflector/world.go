// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// World is all that a plan is made of. The order of its lists does not matter.
type World struct {
	// Now is the time at which the rest was read.
	Now time.Time
	// Topology is the topology to plan for, with its defaults.
	Topology v1alpha1.RouteReflectorTopology
	// Others are the cluster's other topologies.
	Others []v1alpha1.RouteReflectorTopology
	Nodes  []Node
	Peers  []Peer
	Mesh   Mesh
	// Filters are the names of the BGPFilters that there are; nil if that is not known.
	Filters map[string]bool
	// Sightings are what nodes last said of their sessions and routes, at most one for each.
	Sightings []Sighting
	// NoAnswer has, by node, since when the kubelet of a reflector whose Node is not heard from answers no connection of
	// this program, while others' kubelets do.
	NoAnswer map[string]time.Time
	// Unproven reports that not every reflector has been seen with its sessions since roles, BGPPeers or mesh last
	// changed. While it holds, a topology without steps waits for their word; afterwards nobody is asked.
	Unproven bool
	// Suspects are clients about which their reflectors are asked, whatever the plan waits for: they seem to be silent,
	// or the status says so for some time.
	Suspects []string
	// Unresponsive are nodes that have left a status request unanswered a while ago. Others are chosen as witnesses
	// first.
	Unresponsive []string
	// Promoted are the nodes that were promoted a moment ago and may not be shown as reflectors yet, or that somebody
	// has taken the role away from since. Others are given back theirs first.
	Promoted []string
	// MeshStays is how long the mesh stays on after an emergency once reflectors carry the clients again; 0 for
	// [MeshStays].
	MeshStays time.Duration
	// Confirmed reports that a list of the API server has just shown the same Nodes as these.
	Confirmed bool
	// DatastoreReady is ClusterInformation's field of that name. While it is false Calico's datastore must not be
	// written to.
	DatastoreReady bool
	// Uncarried says in a sentence that BGP carries no routes between nodes, so that reflectors are not needed; "" where it
	// does, or nobody has asked (package clusterroutes).
	Uncarried string
	// Binding says whose datastore it is; nil where it is part of the cluster itself.
	Binding *Binding
}

// Node is one node as Kubernetes and Calico know it.
type Node struct {
	Name, UID, ResourceVersion string
	// Created is when the Node was created; zero if that is not known, which counts as long ago.
	Created time.Time
	// Labels are those that Calico's selectors see. CalicoLabel reports that the label of a reflector is not the Node's
	// own, but stands in [LabelsAnnotation].
	Labels        map[string]string
	CalicoLabel   bool
	Annotations   map[string]string
	Taints        []corev1.Taint
	Unschedulable bool
	// Deleting reports that the Node has a deletion timestamp.
	Deleting bool
	// Ready is the status of the condition of that name, ReadySince when it last changed.
	Ready      corev1.ConditionStatus
	ReadySince time.Time
	// IPv4 and IPv6 are the node's BGP addresses; the zero Addr where there is none.
	IPv4, IPv6 netip.Addr
	// ForeignAS reports that the node's AS number is not the cluster's, so that its sessions are external ones.
	ForeignAS bool
	// AS is the node's AS number; 0 where it is not known, which counts as Calico's default.
	AS uint32
	// ClusterID is the route reflector cluster ID that Calico has for the node, "" if none.
	ClusterID string
	// LostSince is since when the node, a reflector of the topology, has been lost by its witnesses although its Node
	// is Ready; zero for not. [World.Witnessed] sets it.
	LostSince time.Time
	// Dead reports that this has been so until a spare can take its place, or for the grace period where there is none:
	// nothing waits for its sessions any more, and the model counts on none. Before, steps wait for them, as for those of
	// any reflector.
	Dead bool
	// Workloads counts the pods on the node that belong to no DaemonSet and are not static.
	Workloads int
	// Written is what the topology's record says was written on the node to make it a reflector, nil for nothing.
	// ForeignMark reports that the node has a topology's label that the topology's record does not have.
	// [World.Recognized] sets both.
	Written     *Mark
	ForeignMark bool
}

// Peer is a BGPPeer.
type Peer struct {
	Name, UID, ResourceVersion string
	// Topology is the value of the label by which topologies own their BGPPeers, "" for somebody else's.
	Topology string
	PeerSpec
	// Node and PeerIP are the fields of those names, which Mooring's own BGPPeers do not use.
	Node   string
	PeerIP netip.Addr
	// ASNumber and LocalASNumber are the AS numbers that a BGPPeer with a PeerIP gives its peer, and its own nodes
	// instead of theirs; 0 for absent. With a selector Calico takes those of the nodes.
	ASNumber, LocalASNumber uint32
	// OneWay reports that Calico gives the session to the BGPPeer's own nodes alone (spec.reversePeering: Manual): it
	// needs another one for the peers.
	OneWay bool
	// NodeMatcher and PeerMatcher are the selectors, parsed; nil where the selector is empty.
	NodeMatcher, PeerMatcher Matcher
}

// PeerSpec is what Mooring writes to a BGPPeer. Times are in seconds, 0 for absent; equal specs are ==.
type PeerSpec struct {
	// NodeSelector and PeerSelector are Calico selectors.
	NodeSelector, PeerSelector string
	MaxRestartSeconds          int64
	PasswordSecret             string
	PasswordKey                string
	TTLSecurity                int32
	// Filters are names of BGPFilters, joined with commas.
	Filters       string
	SourceAddress string
	// Other reports that fields are set that this type does not know.
	Other bool
}

// Matcher is a parsed Calico selector, such as libcalico-go's selector.Selector.
type Matcher interface {
	Evaluate(labels map[string]string) bool
}

// Mesh is the node-to-node mesh as BGPConfiguration default has it.
type Mesh struct {
	On                   bool
	UID, ResourceVersion string
	// Exists reports that there is such an object. Without it the mesh is on.
	Exists bool
}

// Sighting is what one node said of its sessions, and of its routes if it was asked for them.
type Sighting struct {
	// Node is who said it.
	Node string
	// At is when.
	At time.Time
	// Current reports that it counts although it is older than [Freshness]: the node was asked while the present step
	// waited, nothing has changed since that the answer would not hold for, and the node has not fallen silent.
	Current bool
	// Established are the addresses of the peers with which a session by a BGPPeer was Established, Mesh those with
	// which one of the mesh was. A node that has just been promoted may have said the latter a moment before.
	Established, Mesh map[netip.Addr]bool
	// Lost are the peers that the node reported without a session after it had reported one, and when that was first
	// read.
	Lost map[netip.Addr]time.Time
	// Down are those that it has reported without a session, and with none before since roles last changed.
	Down map[netip.Addr]time.Time
	// Standing reports that a status request stands on the node that it has answered, so that calico-node corrects the
	// report when it changes.
	Standing bool
	// Others are the states, by BIRD's names, of sessions by a BGPPeer that are not Established.
	Others map[netip.Addr]string
	// Routes is nil if the node was not asked for them.
	Routes *Routes
}

// Routes are the destinations to which a node has usable routes, by whom it learned them from. Each list is sorted and
// has no doubles.
type Routes struct {
	// Mesh are those that came from the node-to-node mesh, by the address of the node that announced them; the zero
	// Addr where that was not said.
	Mesh map[netip.Addr][]netip.Prefix
	// By are those that came from the peer of a BGPPeer with that address.
	By map[netip.Addr][]netip.Prefix
}
