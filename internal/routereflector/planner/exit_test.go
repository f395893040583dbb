// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// ending is a cluster with reflectors and without a mesh, whose topology is being deleted.
func ending(t *testing.T, nodes int, mesh v1alpha1.MeshPolicy) rr.World {
	t.Helper()
	w, _ := carryOut(t, cluster(nodes, 2), nil)
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp, w.Topology.Spec.Mesh = &now, mesh
	return w
}

// Where the mesh cannot take over, or must not, the exit is refused with a sentence, and goes on once somebody says so.
func TestExitRefused(t *testing.T) {
	t.Parallel()
	large := ending(t, 12, v1alpha1.MeshManage)
	large.Topology.Spec.Sizing.MaxMeshNodes = 11
	for name, c := range map[string]struct {
		w           rr.World
		reason      rr.Reason
		words, done string
	}{
		"too large": {
			large, rr.ReasonMeshTooLarge,
			"the node-to-node mesh that is to take over would have 12 nodes, more than spec.sizing.maxMeshNodes (11); raise that, divide the cluster otherwise, or " +
				"run `kubectl mooring confirm topology main MeshTooLarge`, which sets the annotation bgp.mooring.dev/force-exit=MeshTooLarge",
			"MeshOn Demote Demote Demote RemovePeer RemovePeer",
		},
		"observed": {
			ending(t, 8, v1alpha1.MeshObserve), rr.ReasonMeshNotManaged,
			"while the node-to-node mesh is off, and spec.mesh is Observe: without its reflectors nodes would lose their routes; turn the mesh on, set spec.mesh to " +
				"Manage, or, if something else carries the routes, run `kubectl mooring confirm topology main MeshNotManaged`, which sets the annotation " +
				"bgp.mooring.dev/force-exit=MeshNotManaged",
			"Demote Demote Demote RemovePeer RemovePeer",
		},
		"ignored": {
			ending(t, 8, v1alpha1.MeshIgnore), rr.ReasonMeshNotManaged, "spec.mesh is Ignore", "Demote Demote Demote RemovePeer RemovePeer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := settledPlan(c.w)
			if len(p.Steps) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != c.reason || !strings.Contains(p.Refusals[0].Message, c.words) {
				t.Errorf("%v, %+v", p.Steps, p.Refusals)
			}
			for _, other := range []rr.Reason{rr.ReasonMeshTooLarge, rr.ReasonMeshNotManaged, "true"} {
				w := c.w
				w.Topology.Annotations = map[string]string{v1alpha1.ForceExitAnnotation: string(other)}
				if p := settledPlan(w); other != c.reason && len(p.Steps) != 0 {
					t.Errorf("with %s: %v", other, p.Steps)
				}
			}
			w := c.w
			w.Topology.Annotations = map[string]string{v1alpha1.ForceExitAnnotation: string(c.reason)}
			w, done := carryOut(t, w, nil)
			if got := order(done); got != c.done || len(w.Marked()) != 0 || len(w.Peers) != 0 {
				t.Errorf("by force: %s", got)
			}
			// With a mesh that somebody has turned on nothing is in the way.
			w = c.w
			w.Mesh.On = true
			if _, done := carryOut(t, w, nil); order(done) != "Demote Demote Demote RemovePeer RemovePeer" {
				t.Errorf("with the mesh on: %v", kinds(done))
			}
		})
	}
}

func order(steps []rr.Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, rr.Kind(s))
	}
	return strings.Join(out, " ")
}

// Two hundred nodes are a mesh that may be turned on, one more is not; and without reflectors nobody needs it.
func TestTheLimitOfTheMesh(t *testing.T) {
	t.Parallel()
	for nodes, refused := range map[int]bool{200: false, 201: true} {
		w := ending(t, nodes, v1alpha1.MeshManage)
		w.Topology.Spec.Sizing.MaxMeshNodes = 0
		if got := len(MakePlan(w).Refusals) > 0; got != refused {
			t.Errorf("%d nodes: refused: %v", nodes, got)
		}
	}
	w := cluster(201, 1)
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp, w.Mesh.On = &now, false
	if p := MakePlan(w); len(p.Refusals) > 0 {
		t.Errorf("without reflectors: %+v", p.Refusals)
	}
}

// Options of sessions are not changed where the mesh would be too large to carry the clients meanwhile.
func TestSessionOptionsOfMany(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(12, 2), nil)
	w.Topology.Spec.Session.MaxRestartTime, w.Topology.Spec.Sizing.MaxMeshNodes = &metav1.Duration{Duration: time.Minute}, 11
	p := settledPlan(w)
	if len(p.Steps) != 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonSessionOptions ||
		!strings.Contains(p.Refusals[0].Message, "would have 12 nodes, more than spec.sizing.maxMeshNodes (11)") {
		t.Errorf("%v, %+v", p.Steps, p.Refusals)
	}
	w.Topology.Spec.Sizing.MaxMeshNodes = 12
	if p := settledPlan(w); len(p.Refusals) != 0 || !slices.ContainsFunc(p.Steps, rr.Is[rr.MeshOn]) {
		t.Errorf("%v, %+v", p.Steps, p.Refusals)
	}
}
