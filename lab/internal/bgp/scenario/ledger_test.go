// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// history feeds a ledger one event after the other.
type history struct {
	*ledger
	version uint64
	lines   []string
}

// begin is the history of three nodes, n1 to n3, of which the named are reflectors, with the mesh on.
func begin(reflectors ...string) *history {
	s := &history{ledger: newLedger(topologyName)}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("n%d", i)
		role := ""
		if slices.Contains(reflectors, name) {
			role = topologyName
		}
		s.event(node(name, role, role), false, true)
	}
	return s
}

func (s *history) event(object client.Object, deleted, initial bool) {
	s.version++
	s.lines = append(s.lines, s.take(observation{at: time.Duration(s.version) * time.Second, version: s.version, object: object, deleted: deleted, initial: initial})...)
}

func (s *history) happens(objects ...client.Object) *history {
	for _, o := range objects {
		s.event(o, false, false)
	}
	return s
}

// node is n<i> with the address 10.0.0.<i>.
func node(name, label, id string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{
		routereflector.IPv4Annotation: "10.0.0." + name[1:] + "/24",
	}}}
	if label != "" {
		n.Labels[v1alpha1.ReflectorLabel] = label
	}
	if id != "" {
		n.Annotations[routereflector.ClusterIDAnnotation] = id
	}
	return n
}

// question is a CalicoNodeStatus without a response; says is one with sessions by BGPPeers, or of the mesh.
func question(node string) *calicov3.CalicoNodeStatus {
	return &calicov3.CalicoNodeStatus{ObjectMeta: metav1.ObjectMeta{Name: "ask-" + node}, Spec: calicov3.CalicoNodeStatusSpec{Node: node}}
}

func says(node string, kind calicov3.BGPPeerType, peers ...string) *calicov3.CalicoNodeStatus {
	s := question(node)
	s.Status.LastUpdated = metav1.Unix(1, 0)
	for _, p := range peers {
		s.Status.BGP.PeersV4 = append(s.Status.BGP.PeersV4, calicov3.CalicoNodePeer{PeerIP: "10.0.0." + p[1:], Type: kind, State: calicov3.BGPSessionStateEstablished})
	}
	// A session that is not up never counts.
	s.Status.BGP.PeersV4 = append(s.Status.BGP.PeersV4, calicov3.CalicoNodePeer{PeerIP: "10.0.0.9", Type: kind, State: calicov3.BGPSessionStateConnect})
	return s
}

func peer(name string) *calicov3.BGPPeer {
	return &calicov3.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.TopologyLabel: topologyName}}}
}

func mesh(on bool) *calicov3.BGPConfiguration {
	return &calicov3.BGPConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: calicov3.BGPConfigurationSpec{NodeToNodeMeshEnabled: &on}}
}

func (s *history) kinds() (out []string) {
	for _, c := range s.changes {
		out = append(out, c.Kind)
	}
	return out
}

// inBoth gives a node its IPv6 address too, and saysBoth has it say as well which sessions it has by IPv6.
func inBoth(n *corev1.Node) *corev1.Node {
	n.Annotations[routereflector.IPv6Annotation] = "fd00::" + n.Name[1:] + "/64"
	return n
}

func saysBoth(s *calicov3.CalicoNodeStatus, kind calicov3.BGPPeerType, peers ...string) *calicov3.CalicoNodeStatus {
	for _, p := range peers {
		s.Status.BGP.PeersV6 = append(s.Status.BGP.PeersV6, calicov3.CalicoNodePeer{PeerIP: "fd00::" + p[1:], Type: kind, State: calicov3.BGPSessionStateEstablished})
	}
	return s
}

// In dual stack each family's session must have been seen.
func TestWitnessesOfBothFamilies(t *testing.T) {
	t.Parallel()
	s := begin()
	for _, name := range []string{"n1", "n2", "n3"} {
		s.happens(inBoth(node(name, "", "")))
	}
	s.happens(peer("p"), inBoth(node("n1", "lab", "1.1.1.1")), question("n1"))
	kind := calicov3.BGPPeerTypeNodePeer
	s.happens(saysBoth(says("n1", kind, "n2", "n3"), kind, "n2"), mesh(false))
	want := []Witness{{Node: "n1", Established: 3, Expected: 4}}
	if diff := cmp.Diff(want, s.changes[len(s.changes)-1].Reflectors); diff != "" {
		t.Errorf("with a session missing by IPv6 (-want +got):\n%s", diff)
	}
	s.happens(saysBoth(says("n1", kind, "n2", "n3"), kind, "n2", "n3"), mesh(true))
	if diff := cmp.Diff([]Witness{{Node: "n1", Established: 4, Expected: 4}}, s.changes[len(s.changes)-1].Reflectors); diff != "" {
		t.Errorf("with all sessions (-want +got):\n%s", diff)
	}
}

func TestKindsOfChanges(t *testing.T) {
	t.Parallel()
	s := begin().happens(peer("p"), node("n1", "lab", "1.1.1.1"), node("n1", "lab", "1.1.1.1"), mesh(true), mesh(false), mesh(false), mesh(true), node("n1", "", ""))
	foreign := peer("foreign")
	foreign.Labels = nil
	s.happens(foreign)
	s.event(peer("p"), true, false)
	s.happens(mesh(false))
	s.event(mesh(false), true, false)
	want := []string{
		"EnsurePeer", "Promote", "MeshOff", "MeshOn", "Demote", "RemovePeer", "MeshOff", "MeshOn",
	}
	if diff := cmp.Diff(want, s.kinds()); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"n1"}, changed(s.changes)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// Label and cluster ID must come and go in one write.
func TestTornChanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		before []string
		is     *corev1.Node
	}{
		{"the label comes alone", nil, node("n1", "lab", "")},
		{"the ID comes alone", nil, node("n1", "", "1.1.1.1")},
		{"the label goes alone", []string{"n1"}, node("n1", "", "lab")},
		{"the ID goes alone", []string{"n1"}, node("n1", "lab", "")},
		{"both become others", []string{"n1"}, node("n1", "other", "1.1.1.1")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff([]string{Torn}, begin(test.before...).happens(test.is).kinds()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

// Only what was asked for after all that may have reset a session is evidence for it.
func TestWitnesses(t *testing.T) {
	t.Parallel()
	full := says("n1", calicov3.BGPPeerTypeNodePeer, "n2", "n3")
	ofMesh := says("n3", calicov3.BGPPeerTypeNodeMesh, "n2")
	promoted := node("n2", "lab", "1.1.1.1")
	for _, test := range []struct {
		name       string
		events     []client.Object
		reflectors []Witness
		members    []Witness
	}{
		{"nobody is asked", nil, []Witness{{"n1", 0, 2}}, nil},
		{"asked, no response", []client.Object{question("n1")}, []Witness{{"n1", 0, 2}}, nil},
		{"asked and answered", []client.Object{question("n1"), full}, []Witness{{"n1", 2, 2}}, nil},
		{"one session is missing", []client.Object{question("n1"), says("n1", calicov3.BGPPeerTypeNodePeer, "n2")}, []Witness{{"n1", 1, 2}}, nil},
		{"one has gone since", []client.Object{question("n1"), full, says("n1", calicov3.BGPPeerTypeNodePeer, "n2")}, []Witness{{"n1", 1, 2}}, nil},
		{"a session of the mesh is none with a client", []client.Object{says("n1", calicov3.BGPPeerTypeNodeMesh, "n2", "n3")}, []Witness{{"n1", 0, 2}}, nil},
		{"asked before a BGPPeer came", []client.Object{question("n1"), peer("p"), full}, []Witness{{"n1", 0, 2}}, nil},
		{"answered before a BGPPeer came", []client.Object{question("n1"), full, peer("p")}, []Witness{{"n1", 0, 2}}, nil},
		{"another was promoted", []client.Object{full, promoted}, []Witness{{"n1", 1, 2}, {"n2", 0, 2}}, nil},
		{
			"another was promoted and speaks for itself", []client.Object{full, promoted, says("n2", calicov3.BGPPeerTypeNodePeer, "n1", "n3")},
			[]Witness{{"n1", 2, 2}, {"n2", 2, 2}}, nil,
		},
		{
			"the later word counts", []client.Object{promoted, full, says("n2", calicov3.BGPPeerTypeNodePeer, "n3")},
			[]Witness{{"n1", 1, 2}, {"n2", 1, 2}}, nil,
		},
		{"it was asked before its own promotion", []client.Object{question("n2"), promoted, says("n2", calicov3.BGPPeerTypeNodePeer, "n1", "n3")},
			[]Witness{{"n1", 0, 2}, {"n2", 0, 2}}, nil},
		{"the mesh by another", []client.Object{question("n3"), ofMesh}, []Witness{{"n1", 0, 2}}, []Witness{{"n3", 1, 1}}},
		{"the mesh, asked before the change", []client.Object{question("n3"), peer("p"), ofMesh}, []Witness{{"n1", 0, 2}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := begin("n1").happens(test.events...).happens(mesh(false))
			last := s.changes[len(s.changes)-1]
			if diff := cmp.Diff(test.reflectors, last.Reflectors); diff != "" {
				t.Errorf("reflectors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.members, last.Members); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
			if !last.MeshOn {
				t.Error("the mesh was on before it went off")
			}
		})
	}
}

// What a person reads: phases, what is waited for, and each step with the reason that the status gave.
func TestLines(t *testing.T) {
	t.Parallel()
	topology := func(phase v1alpha1.Phase, waiting string) *v1alpha1.RouteReflectorTopology {
		t := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: topologyName, Generation: 1}}
		t.Status = v1alpha1.RouteReflectorTopologyStatus{ObservedGeneration: 1, Phase: phase, Plan: &v1alpha1.PlanStatus{
			WaitingFor: waiting, Steps: []v1alpha1.PlanStep{{Kind: "Promote", Object: "Node/n1", Reason: "it is the best"}},
		}}
		return t
	}
	degraded := topology(v1alpha1.PhaseDegraded, "")
	degraded.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Message: "too slow"}}
	outdated := topology(v1alpha1.PhaseReady, "")
	outdated.Generation = 2
	s := begin().happens(
		topology(v1alpha1.PhaseProgressing, ""), topology(v1alpha1.PhaseProgressing, ""), topology(v1alpha1.PhaseProgressing, "n2"),
		node("n1", "lab", "1.1.1.1"), node("n2", "lab", "1.1.1.1"), degraded, outdated)
	s.event(outdated, true, false)
	want := []string{"Progressing", "Progressing, waiting: n2", "Promote Node/n1: it is the best", "Promote Node/n2", "Degraded, too slow", "the topology is gone"}
	if diff := cmp.Diff(want, s.lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// After mark every write counts but those of others to Nodes.
func TestWrites(t *testing.T) {
	t.Parallel()
	heartbeat := node("n1", "", "")
	heartbeat.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &metav1.Time{Time: time.Unix(9, 0)}}}
	written := node("n1", "", "")
	written.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: operatorName, Time: &metav1.Time{Time: time.Unix(9, 0)}}}
	s := begin().happens(peer("before"))
	s.mark()
	s.happens(heartbeat, written, written, node("n2", "lab", "lab"), peer("p"), mesh(true), question("n1"),
		&v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: topologyName}})
	want := []string{"Node/n1", "Node/n2", "BGPPeer/p", "BGPConfiguration/default", "CalicoNodeStatus/ask-n1", "RouteReflectorTopology/lab"}
	if diff := cmp.Diff(want, s.writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// A report that calico-node writes once more in the period that was asked for is no write without a reason; an earlier one is, and a deletion.
func TestRepeatedReports(t *testing.T) {
	t.Parallel()
	every := func(seconds uint32) *calicov3.CalicoNodeStatus {
		s := says("n1", calicov3.BGPPeerTypeNodeMesh)
		s.Spec.UpdatePeriodSeconds = &seconds
		return s
	}
	s := begin().happens(every(1))
	s.mark()
	s.happens(every(1), every(1), every(2))
	s.event(every(1), true, false)
	if want := []string{"CalicoNodeStatus/ask-n1", "CalicoNodeStatus/ask-n1"}; !slices.Equal(s.writes, want) {
		t.Errorf("writes are %v, want one that came early and the deletion", s.writes)
	}
}
