// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// reflect makes a node a reflector as a person does with kubectl.
func (s *stage) reflect(node, label, value, id string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, label, value, routereflector.ClusterIDAnnotation, id)
	n := &corev1.Node{}
	n.Name = node
	if err := s.client.Patch(s.t.Context(), n, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// peering creates a BGPPeer as calicoctl does.
func (s *stage) peering(name, from, to string) {
	s.t.Helper()
	p := calicov3.NewBGPPeer()
	p.Name, p.Spec.NodeSelector, p.Spec.PeerSelector = name, from, to
	if _, err := s.calico.BGPPeers().Create(s.t.Context(), p, options.SetOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) meshOff() {
	s.t.Helper()
	s.configure(func(c *calicov3.BGPConfiguration) { c.Spec.NodeToNodeMeshEnabled = new(bool) })
}

// ids are the cluster IDs of the nodes that have one.
func (s *stage) ids() map[string]string {
	s.t.Helper()
	var nodes corev1.NodeList
	if err := s.client.List(s.t.Context(), &nodes); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range nodes.Items {
		if id := n.Annotations[routereflector.ClusterIDAnnotation]; id != "" {
			out[n.Name] = id
		}
	}
	return out
}

// peerNames are the names of all BGPPeers, sorted.
func (s *stage) peerNames() []string {
	s.t.Helper()
	var out []string
	for _, p := range s.peers() {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// condition is one of a topology's.
func (s *stage) condition(name, kind string) metav1.Condition {
	s.t.Helper()
	c := meta.FindStatusCondition(s.topology(name).Status.Conditions, kind)
	if c == nil {
		s.t.Fatalf("there is no condition %s", kind)
	}
	return *c
}

// byHand is a cluster with reflectors by Calico's documentation.
func byHand(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, 6)
	s.meshOff()
	for i := range 2 {
		s.reflect(nodeName(i), "route-reflector", "true", "244.0.0.7")
	}
	s.peering("peer-with-route-reflectors", "all()", "route-reflector == 'true'")
	s.peering("somebody-elses", "all()", "rack == 'none'")
	return s
}

const adoptByHand = "{clusterID: 244.0.0.7, redundancy: 2, adopt: {nodes: {matchLabels: {route-reflector: 'true'}}, bgpPeers: [peer-with-route-reflectors]}}"

// expectTakenOver sees that the reflectors by hand are the topology's, with their ID, and nothing of them is left but their label.
func (s *stage) expectTakenOver() {
	s.t.Helper()
	if got := s.reflectors(); !slices.Equal(got, []string{nodeName(0), nodeName(1)}) {
		s.t.Errorf("the reflectors are %v", got)
	}
	if diff := cmp.Diff(map[string]string{nodeName(0): "244.0.0.7", nodeName(1): "244.0.0.7"}, s.ids()); diff != "" {
		s.t.Errorf("cluster IDs (-want +got):\n%s", diff)
	}
	if got := s.peerNames(); !slices.Equal(got, []string{"main-clients", "main-reflectors", "somebody-elses"}) {
		s.t.Errorf("the BGPPeers are %v", got)
	}
	// The mesh went off and two nodes became reflectors by hand, and nothing since.
	if changes := s.sim.Changes(); len(changes) != 3 {
		s.t.Errorf("roles or mesh changed: %+v", changes)
	}
}

// Reflectors that were made by hand become a topology's without a change of an ID or of the mesh, and are the operator's from then on.
func TestAdoptByHand(t *testing.T) {
	t.Parallel()
	s := byHand(t)
	p := s.start()
	s.create("main", adoptByHand)
	s.await("main", v1alpha1.PhaseReady)
	s.expectTakenOver()
	s.expectOnlyStanding()
	for _, request := range p.program.Written() {
		if strings.HasPrefix(request, "DELETE") && strings.Contains(request, "bgppeers") && !strings.HasSuffix(request, "/peer-with-route-reflectors") {
			t.Errorf("%s", request)
		}
	}
	degraded := s.condition("main", v1alpha1.ConditionDegraded)
	if want := "nothing is left that spec.adopt names; take it out of the spec"; degraded.Message != want {
		t.Errorf("%+v; want %s", degraded, want)
	}
}

// A process that dies after each of its writes, or before each second one, is followed by one that goes on where it stopped.
func TestAdoptKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*Reconciler, *cluster.Program){
		"after":  func(_ *Reconciler, p *cluster.Program) { p.DieAt(cluster.Death{Write: 1, After: true}) },
		"before": func(_ *Reconciler, p *cluster.Program) { p.DieAt(cluster.Death{Write: 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := byHand(t)
			s.create("main", adoptByHand)
			processes := 0
			for !s.ended("main") {
				p := s.start(configure)
				processes++
				s.awaitDeathOr(p, "main")
				p.stop()
			}
			s.expectTakenOver()
			if t.Logf("%d processes", processes); processes < 6 {
				t.Errorf("%d processes died on the way, which is too few to show anything", processes)
			}
		})
	}
}

// What cannot be taken over is refused with a sentence, and nothing is written but the status.
func TestAdoptRefused(t *testing.T) {
	t.Parallel()
	s := byHand(t)
	p := s.start()
	s.create("main", strings.Replace(adoptByHand, "244.0.0.7", "244.0.0.1", 1))
	s.await("main", v1alpha1.PhaseRefused)
	accepted := s.condition("main", v1alpha1.ConditionAccepted)
	if accepted.Reason != string(routereflector.ReasonCannotAdopt) || !strings.HasSuffix(accepted.Message, "create it with spec.clusterID 244.0.0.7, which 2 of 2 have") {
		t.Errorf("%+v", accepted)
	}
	for _, request := range p.program.Written() {
		if !strings.HasSuffix(request, "/routereflectortopologies/main/status") {
			t.Errorf("it wrote %s", request)
		}
	}
}

// The upstream project's multi has an ID for each reflector and BGPPeers for each client: one reflector keeps its ID, the others take it
// over one at a time, and all those BGPPeers go.
func TestAdoptMulti(t *testing.T) {
	t.Parallel()
	s := newStage(t, 40)
	s.meshOff()
	const label = "calico-route-reflector"
	for i := range 3 {
		s.reflect(nodeName(i), label, fmt.Sprint(i), fmt.Sprintf("224.0.0.%d", i+1))
	}
	s.peering("rrs-to-rrs", "has("+label+")", "has("+label+")")
	for i := 3; i < 40; i++ {
		for k := range 3 {
			s.peering(fmt.Sprintf("peer-to-rrs-%d-%s", k, nodeName(i)), fmt.Sprintf("kubernetes.io/hostname == '%s'", nodeName(i)), fmt.Sprintf("%s == '%d'", label, k))
		}
	}
	p := s.start()
	s.create("main", "{clusterID: 224.0.0.2, adopt: {nodes: {matchExpressions: [{key: "+label+", operator: Exists}]}, bgpPeers: [rrs-to-rrs, peer-to-rrs-*]}}")
	s.await("main", v1alpha1.PhaseReady)
	want := map[string]string{nodeName(0): "224.0.0.2", nodeName(1): "224.0.0.2", nodeName(2): "224.0.0.2"}
	if diff := cmp.Diff(want, s.ids()); diff != "" {
		t.Errorf("cluster IDs (-want +got):\n%s", diff)
	}
	testkit.Eventually(t, "the old BGPPeers to be gone", func() string {
		if got := s.peerNames(); !slices.Equal(got, []string{"main-clients", "main-reflectors"}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	if got := s.reflectors(); len(got) != 3 {
		t.Errorf("the reflectors are %v", got)
	}
	changes := s.sim.Changes()
	for _, c := range changes[len(changes)-2:] {
		if c.What != "promote" || c.Unsettled != 0 || c.MeshOn {
			t.Errorf("%+v came before the other reflectors had their sessions", c)
		}
	}
	written := p.program.Written()
	if nodes := slices.DeleteFunc(slices.Clone(written), func(r string) bool { return !strings.Contains(r, "/nodes/") }); len(nodes) != 3 {
		t.Errorf("Nodes were written %d times, once for each reflector is enough: %v", len(nodes), nodes)
	}
}
