// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// With all sessions up, the mesh stays on as long as one of the sampled clients lacks a route that it would lose, and after the timeout the topology
// says who and which. When the route comes, the mesh goes.
func TestTheMeshWaitsForRoutes(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	p := s.start()
	for i := range 6 {
		s.sim.Withhold(nodeName(i), i == 5)
	}
	s.create("main", "rollout: {sessionTimeout: 10s}\nreflectors: {excluded: {matchLabels: {kubernetes.io/hostname: node-0005}}}")
	topology := s.await("main", v1alpha1.PhaseDegraded)
	expectCondition(t, topology, v1alpha1.ConditionDegraded, "SessionTimeout", "has from reflector node-")
	expectCondition(t, topology, v1alpha1.ConditionDegraded, "SessionTimeout", "no route to 1 of 2 destinations that the mesh brings, such as 240.1.0.5/32")
	if got := s.reflectors(); len(got) != 3 || !s.mesh() {
		t.Errorf("the reflectors are %v, the mesh is on: %t; want three and the mesh", got, s.mesh())
	}
	s.sim.Withhold(nodeName(5), false)
	s.await("main", v1alpha1.PhaseReady)
	if s.mesh() {
		t.Error("the mesh is still on")
	}
	s.expectOnlyStanding()
	p.stop()
}

// The datastore cannot be written to for a while: the topology says so, nothing is lost, and it goes on when it can.
func TestTheDatastoreIsAway(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	p := s.start(func(_ *Reconciler, p *cluster.Program) {
		p.Inject("away", cluster.Fault{Write: true, Path: "/bgppeers", Err: cluster.ErrAway})
	})
	s.create("main", "{}")
	expectCondition(t, s.await("main", v1alpha1.PhaseDegraded), v1alpha1.ConditionDegraded, "WriteFailed", "creating BGPPeer main-clients: ")
	if changes := s.sim.Changes(); len(changes) != 0 {
		t.Errorf("roles have changed: %v", changes)
	}
	p.program.Heal("away")
	s.await("main", v1alpha1.PhaseReady)
}

// Nodes without a BGP address and Windows nodes are neither clients nor reflectors, are waited for by nobody, and are left as they are.
func TestNodesWithoutBGP(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	windows := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "windows", Labels: map[string]string{corev1.LabelOSStable: "windows"}, Annotations: map[string]string{routereflector.IPv4Annotation: "10.9.9.9/8"},
	}}
	for _, n := range []*corev1.Node{bare, windows} {
		if err := s.client.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		s.setReady(n, corev1.ConditionTrue, 1<<40)
	}
	p := s.start()
	s.create("main", "{}")
	if topology := s.await("main", v1alpha1.PhaseReady); topology.Status.Clients != 2 {
		t.Errorf("there are %d clients, want 2", topology.Status.Clients)
	}
	for _, w := range p.program.Written() {
		if strings.Contains(w, "/bare") || strings.Contains(w, "/windows") {
			t.Errorf("it wrote %s", w)
		}
	}
	s.expectOnlyStanding()
}
