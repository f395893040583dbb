// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/health"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// label sets a label of a Node, or with null as value takes it away.
func (s *stage) label(node, key, value string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
	object := &corev1.Node{}
	object.Name = node
	if err := s.client.Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// deleteNode deletes a Node, as a cloud controller does whose machine is gone.
func (s *stage) deleteNode(names ...string) {
	s.t.Helper()
	for _, name := range names {
		object := &corev1.Node{}
		object.Name = name
		if err := s.client.Delete(s.t.Context(), object); err != nil {
			s.t.Fatal(err)
		}
	}
}

// patchNode changes a Node.
func (s *stage) patchNode(name, patch string) {
	s.t.Helper()
	object := &corev1.Node{}
	object.Name = name
	if err := s.client.Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

// ordinary are the nodes that are not reflectors.
func (s *stage) ordinary(of int) []string {
	var out []string
	are := s.reflectors()
	for i := range of {
		if !slices.Contains(are, nodeName(i)) {
			out = append(out, nodeName(i))
		}
	}
	return out
}

// told waits until the topology has a condition with a reason, and returns its message.
func (s *stage) told(kind, reason string) (message string) {
	s.t.Helper()
	testkit.Eventually(s.t, kind+" to be "+reason, func() string {
		for _, c := range s.topology("main").Status.Conditions {
			if c.Type != kind {
				continue
			}
			if message = c.Message; c.Reason == reason {
				return ""
			}
			return c.Reason + ": " + c.Message
		}
		return "there is no such condition"
	})
	return message
}

// believed is the annotation that a message asks for.
func (s *stage) believe(message string) {
	s.t.Helper()
	_, word, found := strings.Cut(message, v1alpha1.ConfirmAnnotation+"=")
	if !found {
		s.t.Fatalf("the message names no word: %s", message)
	}
	s.patch("main", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.ConfirmAnnotation, word))
}

// Labels that all nodes lose while no operator runs are noticed by the next one. It writes nothing but the status until they are back, or
// until somebody says that it is meant.
func TestFrozenAcrossARestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	for i := range 6 {
		s.label(nodeName(i), "pool", `"a"`)
	}
	p := s.start()
	s.create("main", "reflectors: {required: {matchLabels: {pool: a}}}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	p.stop()
	before := s.reflectors()
	for i := range 6 {
		s.label(nodeName(i), "pool", "null")
	}
	p = s.start()
	s.told(v1alpha1.ConditionFrozen, "SelectorMatchesNothing")
	if is := s.await("main", v1alpha1.PhaseFrozen).Status; is.Baseline == nil || is.Baseline.Candidates != 6 || is.Baseline.DoubtedSince == nil {
		t.Errorf("the baseline is %+v", is.Baseline)
	}
	// What would be written otherwise: a reflector is about to go.
	s.patchNode(before[0], `{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","effect":"NoSchedule"}]}}`)
	for range 20 {
		if got := s.reflectors(); !slices.Equal(got, before) {
			t.Fatalf("the reflectors are %v, were %v", got, before)
		}
	}
	onlyStatus(t, p)
	for i := range 6 {
		s.label(nodeName(i), "pool", `"a"`)
	}
	s.await("main", v1alpha1.PhaseReady)
	if got := s.reflectors(); slices.Contains(got, before[0]) || len(got) != 3 {
		t.Errorf("afterwards the reflectors are %v", got)
	}
	for i := range 6 {
		s.label(nodeName(i), "pool", "null")
	}
	s.believe(s.told(v1alpha1.ConditionFrozen, "SelectorMatchesNothing"))
	s.told(v1alpha1.ConditionFrozen, "NotFrozen")
	s.told(v1alpha1.ConditionDegraded, "TooFewReflectors")
}

// ahead is a clock that can be set forward.
type ahead struct {
	clock.WithTicker
	by atomic.Int64
}

// Now implements clock.PassiveClock.
func (a *ahead) Now() time.Time { return a.WithTicker.Now().Add(time.Duration(a.by.Load())) }

// Half of the Nodes vanish: nothing is written for minutes. Then a list of the API server is asked for, and what it says is believed: nobody
// is needed.
func TestNodesVanish(t *testing.T) {
	t.Parallel()
	s := newStage(t, 9)
	now := &ahead{WithTicker: clock.RealClock{}}
	p := s.start(func(r *Reconciler, _ *cluster.Program) { r.Clock = now })
	s.create("main", "redundancy: 2")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	before, changes := s.reflectors(), len(s.sim.Changes())
	s.deleteNode(s.ordinary(9)[:5]...)
	if got := s.told(v1alpha1.ConditionFrozen, "NodesVanished"); !strings.Contains(got, "of 9 Nodes at ") || !strings.Contains(got, " there are 4 left") {
		t.Errorf("it says %q", got)
	}
	asked := p.program.Count()
	s.patch("main", `{"spec":{"reflectors":{"excluded":{"matchLabels":{"kubernetes.io/hostname":"`+before[0]+`"}}}}}`)
	s.await("main", v1alpha1.PhaseFrozen)
	for _, r := range p.program.Since(asked) {
		if !strings.HasSuffix(r, "/status") {
			t.Errorf("while it is frozen: %s", r)
		}
	}
	now.by.Store(int64(health.DoubtPeriod + time.Minute))
	s.told(v1alpha1.ConditionFrozen, "NotFrozen")
	if is := s.topology("main").Status.Baseline; is.Nodes != 4 || is.DoubtedSince != nil {
		t.Errorf("the baseline is %+v", is)
	}
	if !slices.Contains(p.program.Since(asked), "GET /api/v1/nodes") {
		t.Error("the API server was not queried")
	}
	now.by.Store(0) // nobody's word would be fresh by the other clock
	testkit.Eventually(t, "the replacement", func() string {
		if got := s.reflectors(); len(got) != 2 || slices.Contains(got, before[0]) {
			return fmt.Sprint(got)
		}
		return ""
	})
	if got := s.changes(changes + 2)[changes:]; len(got) != 2 || got[0].What != "promote" || got[1].Node != before[0] {
		t.Errorf("the changes were %+v", got)
	}
}

// A reflector whose Node is deleted is replaced by one promotion; one that is cordoned by another one, before it goes.
func TestDeletedAndCordoned(t *testing.T) {
	t.Parallel()
	s := newStage(t, 9)
	s.start()
	s.create("main", "{}")
	s.await("main", v1alpha1.PhaseReady)
	s.deleteNode(s.reflectors()[0])
	testkit.Eventually(t, "the replacement", func() string {
		if got := s.reflectors(); len(got) != 3 {
			return fmt.Sprint(got)
		}
		return ""
	})
	s.await("main", v1alpha1.PhaseReady)
	// To the simulator the Node that is gone is a demotion.
	if changes := s.changes(6)[4:]; len(changes) != 2 || changes[1].What != "promote" {
		t.Errorf("the changes were %+v", changes)
	}
	who := s.reflectors()[1]
	s.patchNode(who, `{"spec":{"unschedulable":true}}`)
	testkit.Eventually(t, "the replacement of the one that is cordoned", func() string {
		if got := s.reflectors(); len(got) != 3 || slices.Contains(got, who) {
			return fmt.Sprint(got)
		}
		return ""
	})
	if changes := s.changes(8)[6:]; len(changes) != 2 || changes[0].What != "promote" || changes[1].What != "demote" || changes[1].Node != who {
		t.Errorf("the changes were %+v", changes)
	}
	s.expectOneAtATime()
}

// All reflectors are deleted at once: the mesh takes over, as many others are promoted, and the mesh goes off again, although none has been
// Ready for as long as the spec wants, and although the first of them never says a word.
func TestAllReflectorsGone(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, newStage stageMaker) {
		t.Helper()
		s := newStage(t, 7)
		p := s.start()
		s.create("main", "{}")
		s.await("main", v1alpha1.PhaseReady)
		s.expectOnlyStanding()
		p.stop()
		s.patch("main", `{"spec":{"failure":{"stabilization":"24h"}}}`)
		were := s.reflectors()
		for i := range 7 {
			if name := s.calicoName(i); !slices.Contains(were, name) {
				s.sim.Silence(name, true)
			}
		}
		s.loseMachines(were...)
		s.start(func(r *Reconciler, _ *cluster.Program) {
			r.Workloads = NewWorkloads(kubernetes.NewForConfigOrDie(s.config))
		})
		testkit.Eventually(t, "three others", func() string {
			if got := s.reflectors(); len(got) != 3 {
				return fmt.Sprint(got)
			}
			return ""
		})
		if !s.mesh() {
			t.Error("the mesh is off, and no reflector has been seen with its sessions")
		}
		for i := range 7 {
			s.sim.Silence(s.calicoName(i), false)
		}
		if is := s.await("main", v1alpha1.PhaseReady); s.mesh() || is.Status.Emergency != nil {
			t.Errorf("the topology is Ready, and the mesh is on: %v, %+v", s.mesh(), is.Status.Emergency)
		}
	})
}

// loseMachines deletes what the machines with these names in Calico have left behind, in both places.
func (s *stage) loseMachines(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.deleteNode(strings.TrimPrefix(name, "calico-"))
		if s.etcd == nil {
			continue
		}
		if _, err := s.calico.Nodes().Delete(s.t.Context(), name, options.DeleteOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Where the mesh is too large for the cluster the end of a topology is refused, and nothing is written but that. By force it ends, though the process
// dies after each write, and leaves nothing.
func TestExitRefusedAndForced(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	p := s.start()
	topology := s.create("main", "sizing: {maxMeshNodes: 5}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	p.stop()
	if err := s.client.Delete(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	p = s.start()
	expectCondition(t, s.await("main", v1alpha1.PhaseRefused), v1alpha1.ConditionAccepted, "MeshTooLarge", "would have 6 nodes, more than spec.sizing.maxMeshNodes (5)")
	onlyStatus(t, p)
	if got := s.reflectors(); len(got) != 3 || s.mesh() {
		t.Errorf("the reflectors are %v, the mesh is on: %v", got, s.mesh())
	}
	p.stop()
	s.patch("main", `{"metadata":{"annotations":{"`+v1alpha1.ForceExitAnnotation+`":"MeshTooLarge"}}}`)
	gone := func() bool {
		return apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKey{Name: "main"}, &v1alpha1.RouteReflectorTopology{}))
	}
	processes := 0
	for !gone() {
		p := s.start(func(_ *Reconciler, p *cluster.Program) { p.DieAt(cluster.Death{Write: 1, After: true}) })
		processes++
		testkit.Eventually(t, "the process to die or the topology to be gone", func() string {
			select {
			case <-p.done:
				return ""
			default:
			}
			if gone() {
				return ""
			}
			return "neither"
		})
		p.stop()
	}
	if processes < 7 { // the mesh, three reflectors, two BGPPeers, the finalizer
		t.Errorf("%d processes died on the way, which is too few to show anything", processes)
	}
	s.expectNothingLeft()
}

// expectNothingLeft fails if anything of a topology is still there.
func (s *stage) expectNothingLeft() {
	s.t.Helper()
	if got := s.reflectors(); len(got) != 0 || !s.mesh() {
		s.t.Errorf("the reflectors are %v, the mesh is on: %v", got, s.mesh())
	}
	var nodes corev1.NodeList
	var peers calicov3.BGPPeerList
	if err := errors.Join(s.client.List(s.t.Context(), &nodes), s.client.List(s.t.Context(), &peers)); err != nil || len(peers.Items) > 0 {
		s.t.Errorf("left are %v, %v", peers.Items, err)
	}
	for _, n := range nodes.Items {
		for key := range n.Labels {
			if strings.Contains(key, "bgp.mooring.dev") {
				s.t.Errorf("%s has the label %s", n.Name, key)
			}
		}
		for key := range n.Annotations {
			if strings.Contains(key, "bgp.mooring.dev") || key == routereflector.ClusterIDAnnotation {
				s.t.Errorf("%s has the annotation %s", n.Name, key)
			}
		}
	}
	if c := s.configuration(); c == nil || c.Annotations[v1alpha1.MeshAnnotation] != "" {
		s.t.Errorf("BGPConfiguration default is %+v", c)
	}
	s.expectOnlyStanding()
}

// With spec.mesh Observe or Ignore and the mesh off the reflectors stay until somebody says that they may go, or turns the mesh on.
func TestExitWithoutAMesh(t *testing.T) {
	t.Parallel()
	for policy, release := range map[string]func(s *stage){
		"Observe": func(s *stage) {
			s.patch("main", `{"metadata":{"annotations":{"`+v1alpha1.ForceExitAnnotation+`":"MeshNotManaged"}}}`)
		},
		"Ignore": func(s *stage) { s.patch("main", `{"spec":{"mesh":"Manage"}}`) },
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, 5)
			p := s.start()
			topology := s.create("main", "redundancy: 2")
			s.await("main", v1alpha1.PhaseReady)
			s.expectOnlyStanding()
			p.stop()
			s.patch("main", `{"spec":{"mesh":"`+policy+`"}}`)
			if err := s.client.Delete(t.Context(), topology); err != nil {
				t.Fatal(err)
			}
			p = s.start()
			expectCondition(t, s.await("main", v1alpha1.PhaseRefused), v1alpha1.ConditionAccepted, "MeshNotManaged", "spec.mesh is "+policy)
			onlyStatus(t, p)
			if got := s.reflectors(); len(got) != 2 {
				t.Errorf("the reflectors are %v", got)
			}
			release(s)
			s.awaitGone("main")
			if got := s.reflectors(); len(got) != 0 || s.mesh() != (policy == "Ignore") {
				t.Errorf("the reflectors are %v, the mesh is on: %v", got, s.mesh())
			}
		})
	}
}

// The finalizer stays as long as the API server itself shows a reflector, whatever the informers do.
func TestTheFinalizerGoesLast(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	topology := s.create("main", "{}")
	s.patch("main", `{"metadata":{"finalizers":["`+Finalizer+`"]}}`)
	s.label(nodeName(1), v1alpha1.ReflectorLabel, `"main"`)
	topology = s.topology(topology.Name)
	r := &Reconciler{Calico: &KubernetesDatastore{Live: s.client}, Client: s.client, Metrics: NewMetrics(prometheus.NewRegistry())}
	err := r.hold(t.Context(), &scene{topology: topology, memory: &memory{}}, false)
	if !errors.Is(err, calico.ErrConflict) || !strings.Contains(err.Error(), "node-0001") {
		t.Errorf("the error is %v", err)
	}
	if got := s.topology("main").Finalizers; len(got) != 1 {
		t.Errorf("the finalizers are %v", got)
	}
	s.label(nodeName(1), v1alpha1.ReflectorLabel, "null")
	if err := r.hold(t.Context(), &scene{topology: topology, memory: &memory{}}, false); err != nil {
		t.Error(err)
	}
	if got := s.topology("main").Finalizers; len(got) != 0 {
		t.Errorf("the finalizers are %v", got)
	}
}

// A reflector whose Node is not Ready is reported at once, and is not counted; when it is back it counts once its sessions have been seen
// again. No role changes.
func TestAReflectorInTroubleIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	s.start()
	s.create("main", "redundancy: 2")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	before, changes := s.reflectors(), len(s.sim.Changes())
	set := func(status corev1.ConditionStatus) {
		n := &corev1.Node{}
		if err := s.client.Get(t.Context(), types.NamespacedName{Name: before[0]}, n); err != nil {
			t.Fatal(err)
		}
		s.setReady(n, status, 0)
	}
	set(corev1.ConditionUnknown)
	if got := s.told(v1alpha1.ConditionDegraded, "ReflectorNotReady"); !strings.HasPrefix(got, "the Node of reflector "+before[0]+" has been unreachable since ") ||
		!strings.Contains(got, before[1]) {
		t.Errorf("it says %q", got)
	}
	is := s.topology("main").Status
	at := slices.IndexFunc(is.Reflectors, func(r v1alpha1.ReflectorStatus) bool { return r.Node == before[0] })
	if is.ReadyReflectors != 1 || at < 0 || is.Reflectors[at].Established != 0 || is.Sessions.Established >= is.Sessions.Expected {
		t.Errorf("%d are ready, %s sessions: %+v", is.ReadyReflectors, is.Sessions.Summary, is.Reflectors)
	}
	set(corev1.ConditionTrue)
	s.told(v1alpha1.ConditionDegraded, "NotDegraded")
	testkit.Eventually(t, "both reflectors to count again", func() string {
		is := s.topology("main").Status
		if is.ReadyReflectors != 2 || is.Sessions.Established != is.Sessions.Expected {
			return fmt.Sprintf("%d are ready, %s sessions", is.ReadyReflectors, is.Sessions.Summary)
		}
		return ""
	})
	if got := s.sim.Changes()[changes:]; len(got) > 0 || !slices.Equal(s.reflectors(), before) {
		t.Errorf("roles changed: %+v", got)
	}
}
