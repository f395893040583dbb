// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RouteReflectorTopology says how many of the cluster's nodes reflect Calico's BGP routes, which, and how they are replaced. An empty spec is
// a sensible topology: three reflectors, spread over zones, of which every node is a client, and the node-to-node mesh off.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=routereflectortopologies,scope=Cluster,shortName=rrt,categories=mooring
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.status.mode`,description="Shape that is in use"
// +kubebuilder:printcolumn:name="Clients",type=integer,JSONPath=`.status.clients`,description="Nodes that take routes from reflectors"
// +kubebuilder:printcolumn:name="Reflectors",type=integer,JSONPath=`.status.desiredReflectors`,description="Reflectors that are wanted"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReflectors`,description="Reflectors with all their sessions"
// +kubebuilder:printcolumn:name="Groups",type=integer,JSONPath=`.status.groups`,description="Groups of reflectors"
// +kubebuilder:printcolumn:name="Mesh",type=string,JSONPath=`.status.mesh`,description="Node-to-node mesh"
// +kubebuilder:printcolumn:name="Sessions",type=string,JSONPath=`.status.sessions.summary`,description="Sessions established of those expected"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="metadata.name: at most 40 characters, since the names of BGPPeers are made of it"
type RouteReflectorTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec RouteReflectorTopologySpec `json:"spec,omitempty"`
	// +kubebuilder:default={"observedGeneration":-1}
	// +optional
	Status RouteReflectorTopologyStatus `json:"status,omitempty"`
}

// RouteReflectorTopologyList is a list of RouteReflectorTopology.
//
// +kubebuilder:object:root=true
type RouteReflectorTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RouteReflectorTopology `json:"items"`
}

// RouteReflectorTopologySpec is what is wanted. Every field has a default. (The rules ask for fields that always have one: the API server
// evaluates them on the default of the spec itself too, before the defaults of its fields.)
//
// +kubebuilder:validation:XValidation:rule="!has(self.sizing) || !has(self.sizing.perZone) || !has(self.redundancy)",message="spec.redundancy and spec.sizing.perZone: set one of them, since each says how many reflectors there are"
// +kubebuilder:validation:XValidation:rule="!has(self.sizing) || !has(self.sizing.perZone) || !has(self.topologyKeys) || self.topologyKeys.size() > 0",message="spec.sizing.perZone: needs spec.topologyKeys, whose first key names the zones"
type RouteReflectorTopologySpec struct {
	// clientSelector selects the nodes that take their routes from reflectors. Empty selects all. Windows nodes and nodes on which calico-node
	// has not written a BGP address are never clients.
	// +kubebuilder:default={}
	// +optional
	ClientSelector metav1.LabelSelector `json:"clientSelector,omitempty"`

	// reflectors returns which nodes may be reflectors, and which of them should.
	// +kubebuilder:default={}
	// +optional
	Reflectors ReflectorSelection `json:"reflectors,omitempty"`

	// mode is the shape: Flat gives all reflectors one cluster ID and peers every client with every reflector. Hierarchical divides the clients among
	// two groups of reflectors or more, each with a cluster ID of its own, which two spines link. Auto is Flat as long as sizing.maxClientsPerReflector
	// allows, and Hierarchical above.
	// +kubebuilder:default=Auto
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// redundancy is the number of reflectors that every client peers with, 2 to 6. Default 3, in a hierarchy 2. Not together with sizing.perZone.
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=6
	// +optional
	Redundancy *int32 `json:"redundancy,omitempty"`

	// sizing bounds how many clients one reflector serves, and can give the number of reflectors by zone.
	// +kubebuilder:default={}
	// +optional
	Sizing Sizing `json:"sizing,omitempty"`

	// topologyKeys are node labels over whose values reflectors are spread, the most telling first.
	// +kubebuilder:default={"topology.kubernetes.io/zone"}
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:MinLength=1
	// +listType=set
	// +optional
	TopologyKeys []string `json:"topologyKeys"`

	// clusterID is the BGP cluster ID that the reflectors share (RFC 4456), written as an IPv4 address. It must not be that of other reflectors.
	// It cannot be changed: a reflector whose ID changes loses its sessions.
	// +kubebuilder:default="244.0.0.1"
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && self != '0.0.0.0'",message="spec.clusterID: must be an IPv4 address other than 0.0.0.0, such as 244.0.0.1"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterID: cannot be changed, since each reflector would lose its sessions; delete the topology, which brings the mesh back, and create it with the new ID"
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// clusterIDRange is the network from which a hierarchy takes the cluster IDs of its further groups and of its spines: each the lowest
	// address that no node and no other topology has. A group keeps its ID as long as it has a reflector, whatever becomes of the range.
	// +kubebuilder:default="244.0.0.0/16"
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).prefixLength() <= 24",message="spec.clusterIDRange: must be an IPv4 network of 256 addresses or more, such as 244.0.0.0/16"
	// +optional
	ClusterIDRange string `json:"clusterIDRange,omitempty"`

	// failure says how long a reflector may be in trouble before it is replaced.
	// +kubebuilder:default={}
	// +optional
	Failure Failure `json:"failure,omitempty"`

	// rollout says how changes are made.
	// +kubebuilder:default={}
	// +optional
	Rollout Rollout `json:"rollout,omitempty"`

	// mesh says what becomes of Calico's node-to-node mesh: Manage turns it off once every client has its reflectors and on before the last
	// reflector goes; Observe reports it; Ignore does not read it.
	// +kubebuilder:default=Manage
	// +optional
	Mesh MeshPolicy `json:"mesh,omitempty"`

	// session holds options of the BGP sessions between clients and reflectors.
	// +kubebuilder:default={}
	// +optional
	Session SessionOptions `json:"session,omitempty"`

	// ipFamilies are the families in which sessions are expected. Empty: those for which a node has an address.
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	// +optional
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// adopt takes over reflectors that somebody else made, by hand or with the calico-route-reflector-operator of 2020: they stay where they are and
	// keep their cluster ID, so that no session is reset. Absent: nothing that is not this topology's is touched.
	// +optional
	Adopt *Adoption `json:"adopt,omitempty"`

	// paused stops all writes. What is planned is still reported.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// Mode is the shape of a topology.
// +kubebuilder:validation:Enum=Flat;Hierarchical;Auto
type Mode string

// The shapes.
const (
	ModeFlat         Mode = "Flat"
	ModeHierarchical Mode = "Hierarchical"
	ModeAuto         Mode = "Auto"
)

// ReflectorSelection returns which nodes may be reflectors. A reflector loses its own pods' traffic for some seconds when it becomes one and
// when it ceases to be one, so nodes without workloads are better.
type ReflectorSelection struct {
	// required: only nodes that it selects may be reflectors. Empty selects all clients.
	// +kubebuilder:default={}
	// +optional
	Required metav1.LabelSelector `json:"required,omitempty"`
	// preferred adds its weight to the score of the nodes that it selects.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Preferred []WeightedSelector `json:"preferred,omitempty"`
	// excluded: nodes that it selects are never reflectors. Absent excludes none.
	// +optional
	Excluded *metav1.LabelSelector `json:"excluded,omitempty"`
	// tolerations: nodes with taints NoSchedule or NoExecute that these do not tolerate are not chosen. Taints that Kubernetes sets for a
	// node in trouble count under failure instead. A node that is a reflector stays one when it is tainted, until another has taken over.
	// +kubebuilder:default={{key: "node-role.kubernetes.io/control-plane", operator: "Exists", effect: "NoSchedule"}}
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations"`
	// avoidWorkloads prefers nodes on which only DaemonSets' and static pods run. Default true.
	// +kubebuilder:default=true
	// +optional
	AvoidWorkloads *bool `json:"avoidWorkloads,omitempty"`
	// dedicated: nodes with other pods than DaemonSets' and static ones are never chosen. Default false.
	// +optional
	Dedicated bool `json:"dedicated,omitempty"`
}

// WeightedSelector is a preference.
type WeightedSelector struct {
	// weight is added to a node's score, 1 to 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
	// selector selects nodes by label.
	Selector metav1.LabelSelector `json:"selector"`
}

// Sizing says how many clients one reflector serves, and optionally how many reflectors a zone has.
type Sizing struct {
	// maxClientsPerReflector is how many clients a reflector may have, 1 to 5000. Default 1000. Above it mode Auto makes groups; mode Flat, or one with
	// perZone, goes on and reports it.
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	// +optional
	MaxClientsPerReflector int32 `json:"maxClientsPerReflector,omitempty"`
	// hysteresisPercent is by how much a count must fall below a limit, in percent of the limit, before what the limit had brought is undone.
	// Default 20.
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=90
	// +optional
	HysteresisPercent *int32 `json:"hysteresisPercent,omitempty"`
	// maxMeshNodes is the greatest number of nodes with which the node-to-node mesh may be turned on, 2 to 5000. With more of them the deletion of the
	// topology is refused, and no change is made that needs the mesh. Default 200: there each node has 199 sessions, and the cluster 19,900.
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=5000
	// +optional
	MaxMeshNodes int32 `json:"maxMeshNodes,omitempty"`
	// perZone gives each zone its own number of reflectors, as calico-route-reflector-operator did:
	// min(max(ceil(clients of the zone × ratioPermille ÷ 1000), min), max, eligible nodes of the zone). Such a topology is flat.
	// +optional
	PerZone *PerZone `json:"perZone,omitempty"`
}

// PerZone is a number of reflectors for each value of the first topology key.
//
// +kubebuilder:validation:XValidation:rule="self.min <= self.max",message="spec.sizing.perZone: min must not be greater than max"
type PerZone struct {
	// min is the least number of reflectors of a zone, 1 to 10. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +optional
	Min int32 `json:"min,omitempty"`
	// max is the greatest number of reflectors of a zone, 1 to 10. Default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +optional
	Max int32 `json:"max,omitempty"`
	// ratioPermille is the number of reflectors for a thousand clients, 1 to 500. Default 5 (the old ratio 0.005).
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	// +optional
	RatioPermille int32 `json:"ratioPermille,omitempty"`
}

// Failure holds grace periods.
type Failure struct {
	// notReadyGrace is how long a reflector's Node may be Ready=False before it is replaced, and only if two others have lost their sessions with it
	// or the cloud has marked its machine as powered off. Default 2m.
	// +kubebuilder:default="2m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="spec.failure.notReadyGrace: must be from 10s to 24h"
	// +optional
	NotReadyGrace metav1.Duration `json:"notReadyGrace,omitzero"`
	// unreachableGrace is the same for Ready=Unknown, when the kubelet is silent. Default 1m.
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="spec.failure.unreachableGrace: must be from 10s to 24h"
	// +optional
	UnreachableGrace metav1.Duration `json:"unreachableGrace,omitzero"`
	// stabilization is how long a node must have been Ready before it may become a reflector. Default 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="spec.failure.stabilization: must be from 0s to 24h"
	// +optional
	Stabilization *metav1.Duration `json:"stabilization,omitempty"`
	// spares is how many nodes are chosen beforehand to take the place of a reflector that is lost, 0 to 16. A spare is an
	// ordinary client until then, without a label. Absent: one for each zone that has a reflector. 0: a lost reflector is
	// replaced after its grace period, no sooner.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	// +optional
	Spares *int32 `json:"spares,omitempty"`
	// promoteAfter is how long a reflector must be lost before its spare is promoted. The lost one keeps its role until
	// its grace period is over. Default 3s.
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="spec.failure.promoteAfter: must be from 0s to 24h"
	// +optional
	PromoteAfter *metav1.Duration `json:"promoteAfter,omitempty"`
}

// Rollout says how changes are made.
//
// +kubebuilder:validation:XValidation:rule="!has(self.approvedPlan) || self.mode == 'Manual'",message="spec.rollout.approvedPlan: only with spec.rollout.mode Manual"
type Rollout struct {
	// mode: Auto carries out the plan; Manual carries out only the plan whose hash is in approvedPlan; DryRun reports and writes nothing.
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Manual;DryRun
	// +optional
	Mode RolloutMode `json:"mode,omitempty"`
	// approvedPlan is status.plan.hash of the plan that may be carried out.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{12}$`
	// +optional
	ApprovedPlan string `json:"approvedPlan,omitempty"`
	// maxUnavailable is how many reflectors may be without their sessions while a change is under way. This version changes one at a time, so that 1
	// is all that it takes. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="self == 1",message="spec.rollout.maxUnavailable: must be 1, since this version changes reflectors one at a time"
	// +optional
	MaxUnavailable int32 `json:"maxUnavailable,omitempty"`
	// sessionTimeout is how long a step may take until all its sessions are Established. When it is over nothing is removed, and the topology
	// reports itself Degraded. Default 3m.
	// +kubebuilder:default="3m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="spec.rollout.sessionTimeout: must be from 10s to 1h"
	// +optional
	SessionTimeout metav1.Duration `json:"sessionTimeout,omitzero"`
}

// RolloutMode says who lets a plan be carried out.
type RolloutMode string

// The rollout modes.
const (
	RolloutAuto   RolloutMode = "Auto"
	RolloutManual RolloutMode = "Manual"
	RolloutDryRun RolloutMode = "DryRun"
)

// MeshPolicy says what becomes of the node-to-node mesh.
// +kubebuilder:validation:Enum=Manage;Observe;Ignore
type MeshPolicy string

// The mesh policies.
const (
	MeshManage  MeshPolicy = "Manage"
	MeshObserve MeshPolicy = "Observe"
	MeshIgnore  MeshPolicy = "Ignore"
)

// SessionOptions are written to the BGPPeers. To change one of them resets every session, so they are best set at the start.
type SessionOptions struct {
	// maxRestartTime is the graceful restart time of the sessions. Absent: BIRD's, 120s.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="spec.session.maxRestartTime: must be from 1s to 1h"
	// +optional
	MaxRestartTime *metav1.Duration `json:"maxRestartTime,omitempty"`
	// passwordRef names the key of a Secret, in the namespace of calico-node, with the sessions' TCP MD5 password.
	// +optional
	PasswordRef *corev1.SecretKeySelector `json:"passwordRef,omitempty"`
	// ttlSecurity is the number of hops between client and reflector (RFC 5082), 1 to 254. Absent: off.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=254
	// +optional
	TTLSecurity *int32 `json:"ttlSecurity,omitempty"`
	// filters are names of BGPFilters, in order.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Filters []string `json:"filters,omitempty"`
	// sourceAddress: UseNodeIP binds sessions to the node's address, None lets the kernel choose. Default UseNodeIP.
	// +kubebuilder:default=UseNodeIP
	// +kubebuilder:validation:Enum=UseNodeIP;None
	// +optional
	SourceAddress string `json:"sourceAddress,omitempty"`
}

// Adoption names what was made by somebody else and shall be this topology's. Nothing else of others is touched. Once it is done, take it out of
// the spec: a BGPPeer that it names and that comes back is deleted again.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodes.matchLabels) && self.nodes.matchLabels.size() > 0 || has(self.nodes.matchExpressions) && self.nodes.matchExpressions.size() > 0",message="spec.adopt.nodes: must say by which labels the reflectors are known, such as matchLabels route-reflector: \"true\""
type Adoption struct {
	// nodes selects the Nodes that are reflectors. They get this topology's label. Those with another cluster ID than spec.clusterID get that as
	// well, one at a time, which cuts off their own pods for some seconds; at least one must have it already. Nodes that it selects and that have no
	// cluster ID are clients like any other.
	// +required
	Nodes metav1.LabelSelector `json:"nodes"`
	// bgpPeers are the BGPPeers by which these reflectors have their sessions, by name; a name that ends with * stands for all that begin so. Each is
	// deleted once the sessions of this topology's own are seen to be Established. Their options must be those of spec.session.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-.a-z0-9]*([a-z0-9]|\*))?$`
	// +listType=set
	// +required
	BGPPeers []string `json:"bgpPeers"`
}

// Phase is the state of a topology in a word.
type Phase string

// The phases.
const (
	PhasePending     Phase = "Pending"
	PhaseProgressing Phase = "Progressing"
	PhaseReady       Phase = "Ready"
	PhaseDegraded    Phase = "Degraded"
	PhaseFrozen      Phase = "Frozen"
	PhaseRefused     Phase = "Refused"
)

// MeshState is the state of the node-to-node mesh.
type MeshState string

// The states of the mesh.
const (
	MeshOn      MeshState = "On"
	MeshOff     MeshState = "Off"
	MeshUnknown MeshState = "Unknown"
)

// RouteReflectorTopologyStatus is the observed state.
type RouteReflectorTopologyStatus struct {
	// observedGeneration is the generation of the spec that this status is about, -1 while the operator has reported nothing.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase is the state in a word.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// mode is the shape in use.
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// clients is the number of nodes that take routes from reflectors, the reflectors not counted.
	// +optional
	Clients int32 `json:"clients,omitempty"`
	// desiredReflectors is how many reflectors are wanted.
	// +optional
	DesiredReflectors int32 `json:"desiredReflectors,omitempty"`
	// readyReflectors is how many reflectors have all their sessions, as far as is known.
	// +optional
	ReadyReflectors int32 `json:"readyReflectors,omitempty"`
	// groups is the number of groups of reflectors.
	// +optional
	Groups int32 `json:"groups,omitempty"`
	// mesh is the state of the node-to-node mesh.
	// +optional
	Mesh MeshState `json:"mesh,omitempty"`
	// sessions counts the sessions between clients and reflectors.
	// +optional
	Sessions SessionCount `json:"sessions,omitempty"`
	// reflectors are the nodes that are reflectors or become one.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=node
	// +optional
	Reflectors []ReflectorStatus `json:"reflectors,omitempty"`
	// silentClients are clients with which none of their reflectors has a session, as the reflectors last reported; the first 16 by name. While
	// there are some, the reflectors are asked again once a minute.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=node
	// +optional
	SilentClients []SilentClient `json:"silentClients,omitempty"`
	// lostReflectors are reflectors that at least two other nodes lost although their Nodes are Ready, and for failure.stabilization those that were; 16 at
	// most.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=node
	// +optional
	LostReflectors []LostReflector `json:"lostReflectors,omitempty"`
	// spares are the nodes that would take the place of a lost reflector, and those that have; 16 at most.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=node
	// +optional
	Spares []Spare `json:"spares,omitempty"`
	// plan is what is to be done next.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// baseline is what was last believed of the cluster. The observed state is compared with it, so that a sudden loss is noticed even after a restart.
	// +optional
	Baseline *Baseline `json:"baseline,omitempty"`
	// record is what the operator has written on Nodes. A Node with the label of a reflector that is not in it was labeled by somebody else. Absent:
	// nothing is recorded yet, as after an upgrade from a version without a record.
	// +optional
	Record *Record `json:"record,omitempty"`
	// emergency is there from when no reflector was left until reflectors carry the clients again. Meanwhile the node-to-node mesh does, if
	// spec.mesh lets it.
	// +optional
	Emergency *Emergency `json:"emergency,omitempty"`
	// conditions are Ready, Reconciling or Stalled, Accepted, Progressing, Degraded, MeshDisabled, Frozen and ForeignMarks.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Emergency is a time in which the mesh takes the place of reflectors.
type Emergency struct {
	// since is when no reflector was left.
	Since metav1.Time `json:"since"`
}

// Record lists what the operator has written on Nodes, or is about to write: each entry is there before the label is.
type Record struct {
	// reflectors are the Nodes that it has made reflectors.
	// +kubebuilder:validation:MaxItems=1024
	// +listType=map
	// +listMapKey=node
	// +optional
	Reflectors []RecordedReflector `json:"reflectors,omitempty"`
}

// RecordedReflector is what the operator has written on one Node.
type RecordedReflector struct {
	// node is the name of the Node.
	Node string `json:"node"`
	// uid is that of the object that has the label: the Node, or with Calico's etcdv3 datastore the Calico Node.
	// +optional
	UID string `json:"uid,omitempty"`
	// group is the group that was written: a number, or spine.
	Group string `json:"group"`
	// clusterID is the cluster ID that was written.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
}

// Baseline counts nodes as they were at a time.
type Baseline struct {
	// time is when they were counted.
	Time metav1.Time `json:"time"`
	// newest is when the newest of them was created, by the clock of the API server. Nodes that were created later are not among them.
	// +optional
	Newest metav1.Time `json:"newest,omitzero"`
	// nodes is the number of Nodes.
	Nodes int32 `json:"nodes"`
	// clients is the number of those with BGP that spec.clientSelector selected, reflectors included.
	Clients int32 `json:"clients"`
	// candidates is the number of those with BGP that spec.reflectors.required selected.
	Candidates int32 `json:"candidates"`
	// reflectors is the number of the topology's reflectors that spec.reflectors.required selected.
	Reflectors int32 `json:"reflectors"`
	// selectors names the two selectors as they were.
	Selectors string `json:"selectors"`
	// doubtedSince is the time since which the observed state is not trusted.
	// +optional
	DoubtedSince *metav1.Time `json:"doubtedSince,omitempty"`
	// fewerSince is since when fewer have been seen, which is believed when it has stood for a while.
	// +optional
	FewerSince *metav1.Time `json:"fewerSince,omitempty"`
}

// SessionCount counts sessions.
type SessionCount struct {
	// established is the number of sessions seen Established.
	Established int32 `json:"established"`
	// expected is the number of sessions that there should be.
	Expected int32 `json:"expected"`
	// summary is established/expected.
	Summary string `json:"summary"`
	// silentClients is the number of clients with which none of their reflectors has a session.
	// +optional
	SilentClients int32 `json:"silentClients,omitempty"`
}

// ReflectorStatus is one reflector.
type ReflectorStatus struct {
	// node is the name of the Node.
	Node string `json:"node"`
	// group is the group of a hierarchy that the reflector belongs to: a number, or spine.
	// +optional
	Group string `json:"group,omitempty"`
	// zone is the value of the first topology key on the node.
	// +optional
	Zone string `json:"zone,omitempty"`
	// clusterID is the cluster ID that the node has.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// role is what is to become of it: Reflector, Joining or Leaving.
	Role string `json:"role"`
	// clients is how many clients it should have.
	Clients int32 `json:"clients"`
	// established is how many of its sessions are Established, as last seen.
	Established int32 `json:"established"`
	// lastObserved is when its sessions were last seen.
	// +optional
	LastObserved *metav1.Time `json:"lastObserved,omitempty"`
}

// PlanStatus is a plan.
type PlanStatus struct {
	// hash names the plan; rollout.approvedPlan repeats it.
	Hash string `json:"hash"`
	// steps are the writes, in order; each waits until the one before it has taken effect.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Steps []PlanStep `json:"steps,omitempty"`
	// waitingFor says what the first step waits for.
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`
}

// PlanStep is one write.
type PlanStep struct {
	// kind is what is done, such as Promote.
	Kind string `json:"kind"`
	// object is what it is done to, as kind/name.
	Object string `json:"object"`
	// reason says why.
	Reason string `json:"reason"`
}
