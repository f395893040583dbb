// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
)

// Torn is the kind of a change of a Node in which label and cluster ID did not come or go together. There must be none: between the two the
// node's sessions are of one kind by the label and of another by the ID. The other kinds are those of steps, as routereflector.Kind names them.
const Torn = "Torn"

// Change is one write to the role of a Node, to a BGPPeer of the topology or to the switch of the mesh, as the API server told of it.
type Change struct {
	// At is since the topology was written.
	At   probe.Milliseconds `json:"atMs"`
	Kind string             `json:"kind"`
	// Object is what was written, as Kind/name.
	Object string `json:"object"`
	// Reason is the one that the topology's status gave for it, "" if none.
	Reason string `json:"reason,omitempty"`
	// Node is the node of a change of roles.
	Node string `json:"node,omitempty"`
	// MeshOn reports whether the mesh was on before the write.
	MeshOn bool `json:"meshOn"`
	// Reflectors are the nodes that were reflectors before the write, and how many of their sessions with all other nodes had been seen: either
	// end had said so, asked after the last change of a BGPPeer and of the role of either end.
	Reflectors []Witness `json:"reflectors,omitempty"`
	// Members are the other nodes that had said, asked after the write before, which sessions they had in the mesh.
	Members []Witness `json:"members,omitempty"`
}

// Witness is a node and how many of its sessions had been seen.
type Witness struct {
	Node string `json:"node"`
	// Established is how many of the Expected sessions were seen to be; 0 where nobody was asked or nobody answered.
	Established int `json:"established"`
	Expected    int `json:"expected"`
}

// Full reports that no session was missing.
func (w Witness) Full() bool { return w.Established >= w.Expected }

// String is such as "node-1 5/5".
func (w Witness) String() string { return fmt.Sprintf("%s %d/%d", w.Node, w.Established, w.Expected) }

// observation is one event of a watch, or an object as it was before all of them.
type observation struct {
	at time.Duration
	// version is the event's resourceVersion. All kinds of a lab are in one etcd, so that versions order events of different kinds.
	version uint64
	object  client.Object
	deleted bool
	initial bool
}

// member is what matters of a Node.
type member struct {
	label, clusterID string
	// addresses are those of the families, IPv4 first; the zero Addr where it has none.
	addresses [2]netip.Addr
	// written is when the operator last wrote it, by managedFields.
	written time.Time
	// since is the version of the last change of its role, 0 if there was none.
	since uint64
}

// answer is what a node has said last, and the versions at which it was asked and said so.
type answer struct {
	asked, said uint64
	peers, mesh map[netip.Addr]bool
}

// ledger makes changes out of observations, which it takes in the order of their versions. It is plain bookkeeping: no clock, no client.
type ledger struct {
	topology string // its name
	nodes    map[string]member
	meshOn   bool
	// created are the versions at which CalicoNodeStatuses came to be, and heard when the last event of each came, by name.
	created map[string]uint64
	heard   map[string]time.Duration
	answers map[string]answer // by node
	// last is the version of the last change, peered that of the last change of a BGPPeer.
	last, peered uint64
	reasons      map[string]string // by kind and object
	told         string            // what was last said of the topology
	changes      []Change
	// writes are the events since mark that are not somebody else's.
	marked bool
	writes []string
}

func newLedger(topology string) *ledger {
	return &ledger{
		topology: topology, nodes: map[string]member{}, meshOn: true, created: map[string]uint64{}, heard: map[string]time.Duration{},
		answers: map[string]answer{}, reasons: map[string]string{},
	}
}

// take takes in an event and returns what to tell a person of it.
func (l *ledger) take(o observation) (lines []string) {
	before := len(l.changes)
	switch object := o.object.(type) {
	case *corev1.Node:
		l.takeNode(o, object)
	case *calicov3.BGPPeer:
		l.takePeer(o, object)
	case *calicov3.BGPConfiguration:
		l.takeConfiguration(o, object)
	case *calicov3.CalicoNodeStatus:
		l.takeStatus(o, object)
	case *v1alpha1.RouteReflectorTopology:
		lines = l.takeTopology(o, object)
	}
	for _, c := range l.changes[before:] {
		lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.Kind, c.Object, c.Reason), ": "))
	}
	return lines
}

func (l *ledger) takeNode(o observation, n *corev1.Node) {
	was, known := l.nodes[n.Name]
	if o.deleted {
		delete(l.nodes, n.Name)
		return
	}
	is := memberFrom(n)
	is.since = was.since
	if kind := turn(was, is); kind != "" && known && !o.initial {
		l.change(o, kind, "Node/"+n.Name, n.Name)
		l.note(o, "Node/"+n.Name)
		is.since = o.version
	} else if is.written.After(was.written) {
		l.note(o, "Node/"+n.Name)
	}
	l.nodes[n.Name] = is
}

func memberFrom(n *corev1.Node) member {
	out := member{label: n.Labels[v1alpha1.ReflectorLabel], clusterID: n.Annotations[routereflector.ClusterIDAnnotation]}
	for i, annotation := range []string{routereflector.IPv4Annotation, routereflector.IPv6Annotation} {
		if prefix, err := netip.ParsePrefix(n.Annotations[annotation]); err == nil {
			out.addresses[i] = prefix.Addr()
		}
	}
	for _, f := range n.ManagedFields {
		if f.Manager == operatorName && f.Time != nil && f.Time.After(out.written) {
			out.written = f.Time.Time
		}
	}
	return out
}

// turn is the kind of a change of roles, "" for none.
func turn(was, is member) string {
	wasNone, isNone := was.label == "" && was.clusterID == "", is.label == "" && is.clusterID == ""
	switch {
	case was.label == is.label && was.clusterID == is.clusterID:
		return ""
	case wasNone && is.label != "" && is.clusterID != "":
		return routereflector.Kind(routereflector.Promote{})
	case was.label != "" && was.clusterID != "" && isNone:
		return routereflector.Kind(routereflector.Demote{})
	}
	return Torn
}

func (l *ledger) takePeer(o observation, p *calicov3.BGPPeer) {
	l.note(o, "BGPPeer/"+p.Name)
	if o.initial || p.Labels[v1alpha1.TopologyLabel] != l.topology {
		return
	}
	kind := routereflector.Kind(routereflector.EnsurePeer{})
	if o.deleted {
		kind = routereflector.Kind(routereflector.RemovePeer{})
	}
	l.change(o, kind, "BGPPeer/"+p.Name, "")
	l.peered = o.version
}

func (l *ledger) takeConfiguration(o observation, c *calicov3.BGPConfiguration) {
	l.note(o, "BGPConfiguration/"+c.Name)
	if c.Name != "default" {
		return
	}
	if o.deleted {
		c = nil // without the object the mesh is on
	}
	on := routereflector.MeshFrom(c).On
	kind := routereflector.Kind(routereflector.MeshOff{})
	if on {
		kind = routereflector.Kind(routereflector.MeshOn{})
	}
	if on != l.meshOn && !o.initial {
		l.change(o, kind, "BGPConfiguration/default", "")
	}
	l.meshOn = on
}

// takeStatus takes in an answer with the version at which it was asked for: where nodes have sessions in both address families, calico-node writes
// nothing while nothing changes, so that what stands in an object that is older than a change may be about the time before.
func (l *ledger) takeStatus(o observation, s *calicov3.CalicoNodeStatus) {
	if !l.repeats(o, s) {
		l.note(o, "CalicoNodeStatus/"+s.Name)
	}
	if o.deleted {
		delete(l.created, s.Name)
		delete(l.heard, s.Name)
		return
	}
	l.heard[s.Name] = o.at
	if _, known := l.created[s.Name]; !known {
		l.created[s.Name] = o.version
	}
	if s.Status.LastUpdated.IsZero() || o.initial {
		return
	}
	a := answer{asked: l.created[s.Name], said: o.version, peers: map[netip.Addr]bool{}, mesh: map[netip.Addr]bool{}}
	for _, p := range slices.Concat(s.Status.BGP.PeersV4, s.Status.BGP.PeersV6) {
		address, err := netip.ParseAddr(p.PeerIP)
		switch {
		case err != nil || p.State != calicov3.BGPSessionStateEstablished:
		case p.Type == calicov3.BGPPeerTypeNodeMesh:
			a.mesh[address] = true
		default:
			a.peers[address] = true
		}
	}
	l.answers[s.Spec.Node] = a
}

// repeats reports that an event is calico-node's report again, in the period that was asked for: in a cluster of one address family it writes
// one in each period, because what it has is an empty list and what it reads back is none.
func (l *ledger) repeats(o observation, s *calicov3.CalicoNodeStatus) bool {
	last, known := l.heard[s.Name]
	if !known || o.deleted || s.Spec.UpdatePeriodSeconds == nil {
		return false
	}
	const early = 500 * time.Millisecond // of its ticker
	return o.at-last >= time.Duration(*s.Spec.UpdatePeriodSeconds)*time.Second-early
}

// takeTopology remembers the reasons of the steps to come, and tells what the topology says of itself.
func (l *ledger) takeTopology(o observation, t *v1alpha1.RouteReflectorTopology) []string {
	l.note(o, "RouteReflectorTopology/"+t.Name)
	if t.Name != l.topology || o.initial {
		return nil
	}
	if o.deleted {
		return []string{"the topology is gone"}
	}
	parts := []string{string(t.Status.Phase)}
	if plan := t.Status.Plan; plan != nil {
		for _, s := range plan.Steps {
			l.reasons[s.Kind+" "+s.Object] = s.Reason
		}
		if plan.WaitingFor != "" {
			parts = append(parts, "waiting: "+plan.WaitingFor)
		}
	}
	if c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionDegraded); c != nil && c.Status == metav1.ConditionTrue {
		parts = append(parts, c.Message)
	}
	text := strings.Join(parts, ", ")
	if text == "" || text == l.told || t.Status.ObservedGeneration != t.Generation {
		return nil
	}
	l.told = text
	return []string{text}
}

// change enters a change with what had been seen before it.
func (l *ledger) change(o observation, kind, object, node string) {
	c := Change{At: probe.Milliseconds(o.at), Kind: kind, Object: object, Node: node, MeshOn: l.meshOn, Reason: l.reasons[kind+" "+object]}
	for _, name := range sortedKeys(l.nodes) {
		said := l.answers[name]
		switch {
		case l.nodes[name].clusterID != "":
			c.Reflectors = append(c.Reflectors, l.witness(name, func(other string, family int) (expected, seen bool) { return true, l.seen(name, other, family) }))
		case said.asked > l.last:
			c.Members = append(c.Members, l.witness(name, func(other string, family int) (expected, seen bool) {
				return l.nodes[other].clusterID == "", said.mesh[l.nodes[other].addresses[family]]
			}))
		}
	}
	l.changes = append(l.changes, c)
	l.last = o.version
}

// seen reports whether the session of two nodes by a BGPPeer, in one address family, has been seen to be Established. What either end says
// counts if it was asked after all that may have reset the session; of two the later word.
func (l *ledger) seen(one, other string, family int) bool {
	after := max(l.nodes[one].since, l.nodes[other].since, l.peered)
	a, b := l.answers[one], l.answers[other]
	yes, said := false, uint64(0)
	if a.asked > after {
		yes, said = a.peers[l.nodes[other].addresses[family]], a.said
	}
	if b.asked > after && b.said > said {
		yes = b.peers[l.nodes[one].addresses[family]]
	}
	return yes
}

// witness counts the sessions of a node with the others: one for each address family that both have.
func (l *ledger) witness(name string, with func(other string, family int) (expected, seen bool)) Witness {
	w := Witness{Node: name}
	for other, m := range l.nodes {
		for family, address := range m.addresses {
			if other == name || !address.IsValid() || !l.nodes[name].addresses[family].IsValid() {
				continue
			}
			expected, seen := with(other, family)
			if expected {
				w.Expected++
			}
			if expected && seen {
				w.Established++
			}
		}
	}
	return w
}

// mark begins to note every write of the kinds that the operator writes.
func (l *ledger) mark() { l.marked, l.writes = true, nil }

func (l *ledger) note(o observation, object string) {
	if l.marked && !o.initial {
		l.writes = append(l.writes, object)
	}
}

// changed lists the nodes whose role changed.
func changed(changes []Change) []string {
	var out []string
	for _, c := range changes {
		if c.Node != "" && !slices.Contains(out, c.Node) {
			out = append(out, c.Node)
		}
	}
	slices.Sort(out)
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
