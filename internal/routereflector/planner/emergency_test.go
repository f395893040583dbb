// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/rank"
)

// with changes nodes of a copy of the world.
func with(w rr.World, change func(n *rr.Node), names ...string) rr.World {
	w.Nodes = slices.Clone(w.Nodes)
	for i := range w.Nodes {
		if slices.Contains(names, w.Nodes[i].Name) {
			change(&w.Nodes[i])
		}
	}
	return w
}

// withoutNodes removes nodes from a copy of the world.
func withoutNodes(w rr.World, names ...string) rr.World {
	w.Nodes = slices.DeleteFunc(slices.Clone(w.Nodes), func(n rr.Node) bool { return slices.Contains(names, n.Name) })
	return w
}

// hearing is the world in which all who have spoken say that they have sessions with some nodes.
func hearing(w rr.World, names []string) rr.World {
	for i := range w.Sightings {
		for _, name := range names {
			n, _ := w.Node(name)
			w.Sightings[i].Established[n.IPv4] = true
		}
	}
	return w
}

// others are the names of the nodes that are not reflectors.
func others(w rr.World) []string {
	var out []string
	for i := range w.Nodes {
		if !w.Nodes[i].Marked(&w.Topology) {
			out = append(out, w.Nodes[i].Name)
		}
	}
	return out
}

func cordon(n *rr.Node) { n.Unschedulable = true }

func taintForRemoval(n *rr.Node) {
	n.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
}

// silent is a node whose kubelet fell silent as long ago as the world's time allows.
func silentSince(at time.Time) func(n *rr.Node) {
	return func(n *rr.Node) { n.Ready, n.ReadySince = corev1.ConditionUnknown, at }
}

// young is a node that has been Ready for a second.
func young(now time.Time) func(n *rr.Node) {
	return func(n *rr.Node) { n.ReadySince = now.Add(-time.Second) }
}

// Anyone who is about to leave is replaced before it does, and stays as long as nobody can take its place.
func TestWhoIsAboutToLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(n *rr.Node)
		why    string
		note   string
	}{
		"cordoned": {change: cordon, why: "it is cordoned"},
		"autoscaler": {
			change: taintForRemoval, why: "it is marked for removal by an autoscaler", note: "only 2 of 3 reflectors: of the other nodes 6 because it is cordoned",
		},
		"being deleted": {
			change: func(n *rr.Node) { n.Deleting = true }, why: "its Node is being deleted", note: "only 2 of 3 reflectors: of the other nodes 6 because it is cordoned",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := carryOut(t, cluster(9, 3), nil)
			who := w.Marked()[0]
			w = with(w, c.change, who)
			_, done := carryOut(t, w, nil)
			if len(done) != 2 || !rr.Is[rr.Promote](done[0]) || !rr.Is[rr.Demote](done[1]) || done[1].Node() != who || done[1].What().Reason != c.why {
				t.Errorf("%v", done)
			}
			p := settledPlan(with(w, cordon, others(w)...))
			at := slices.IndexFunc(p.Reflectors, func(r rr.Reflector) bool { return r.Node == who })
			if len(p.Steps) != 0 || p.Reflectors[at].Role != rr.RoleReflector || p.Reflectors[at].Reason != c.why+", and stays until another node can replace it" {
				t.Errorf("with nobody to take its place: %v, %+v", p.Steps, p.Reflectors[at])
			}
			if got := strings.Join(rr.Messages(p.Notes), "; "); got != c.note {
				t.Errorf("the notes are %q, want %q", got, c.note)
			}
			node, _ := w.Node(who)
			if got := rank.Fitness(w, node); got != c.why {
				t.Errorf("it is said to be %q as a reflector", got)
			}
		})
	}
}

// Nodes that have not been Ready for long are chosen only when clients would be left with fewer sessions than all but one.
func TestFreshNodesOnlyWhenPressed(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	w = with(w, young(w.Now), others(w)...)
	one := with(w, cordon, w.Marked()[0])
	if p := settledPlan(one); len(p.Steps) != 0 {
		t.Errorf("with one of three cordoned: %v", p.Steps)
	}
	two := with(w, cordon, w.Marked()[:2]...)
	if _, done := carryOut(t, two, nil); order(done) != "Promote Demote" {
		t.Errorf("with two of three cordoned: %v", kinds(done))
	}
	two.Mesh.On = true
	for _, s := range settledPlan(two).Steps {
		if rr.Is[rr.Promote](s) {
			t.Errorf("while the mesh is on: %v", s)
		}
	}
}

// All reflectors are lost: the mesh takes over, others are promoted at once, though they have not been Ready for long, and the mesh goes off again.
func TestEmergency(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, cluster(9, 3), nil)
	lost := steady.Marked()
	now := steady.Now.Add(time.Minute)
	dead := with(with(steady, silentSince(steady.Now), lost...), young(now), others(steady)...)
	dead.Now = now
	gone := with(withoutNodes(steady, lost...), young(now), others(steady)...)
	gone.Now = now
	for _, name := range lost {
		gone.Topology.Status.Reflectors = append(gone.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(rr.RoleReflector)})
	}
	for name, w := range map[string]rr.World{"dead": dead, "gone": gone} {
		first := MakePlan(w)
		if first.AtOnce != 1 || first.Waiting != "" || !rr.Is[rr.MeshOn](first.Steps[0]) || first.Emergency == nil {
			t.Errorf("%s: first %d at once of %v, waiting for %q", name, first.AtOnce, kinds(first.Steps), first.Waiting)
		}
		after := After(w, first.Steps[0])
		p := MakePlan(after)
		if p.AtOnce != 3 || p.Waiting != "" || !rr.Is[rr.Promote](p.Steps[0]) || !rr.Is[rr.Promote](p.Steps[2]) {
			t.Errorf("%s: %d at once of %v, waiting for %q", name, p.AtOnce, kinds(p.Steps), p.Waiting)
		}
		for _, s := range p.Steps[:p.AtOnce] {
			after = After(after, s)
		}
		after, done := carryOut(t, after, nil)
		if got := MakePlan(after).Checks; len(done) != map[string]int{"dead": 4, "gone": 1}[name] || after.Mesh.On || got.UnreachablePairs != 0 || got.MinSessionsPerClient != 3 {
			t.Errorf("%s: afterwards %v, %+v", name, kinds(done), got)
		}
	}
}

// What is not an emergency: there is something to lose, or it is too early to tell.
func TestNoEmergency(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, cluster(9, 3), nil)
	lost := steady.Marked()
	dead := with(with(steady, silentSince(steady.Now), lost...), young(steady.Now.Add(time.Minute)), others(steady)...)
	dead.Now = steady.Now.Add(time.Minute)
	if !health.Emergency(&dead) {
		t.Fatal("all are lost")
	}
	for name, change := range map[string]func(w *rr.World){
		"within the grace period": func(w *rr.World) { w.Now = w.Now.Add(-time.Second) },
		"the mesh is on":          func(w *rr.World) { w.Mesh.On = true },
		"one lives": func(w *rr.World) {
			*w = with(*w, func(n *rr.Node) { n.Ready = corev1.ConditionTrue }, lost[0])
		},
		"somebody else's lives": func(w *rr.World) {
			*w = with(*w, func(n *rr.Node) { n.ClusterID = "9.9.9.9" }, others(*w)[0])
			other, _ := w.Node(others(*w)[0])
			w.Peers = append(slices.Clone(w.Peers), rr.Peer{Name: "rack", PeerIP: other.IPv4})
		},
		"there never were any": func(w *rr.World) { *w = withoutNodes(*w, lost...) },
		"it is being deleted":  func(w *rr.World) { w.Topology.DeletionTimestamp = &w.Topology.CreationTimestamp },
	} {
		w := dead
		change(&w)
		if health.Emergency(&w) {
			t.Errorf("%s: it is called an emergency", name)
		}
		p := settledPlan(w)
		drifts := name == "within the grace period" // for which the mesh is there
		on := len(p.Steps) > 0 && rr.Is[rr.MeshOn](p.Steps[0])
		if on != (drifts || w.Topology.DeletionTimestamp != nil) || (p.Emergency != nil) != drifts || p.AtOnce > 1 {
			t.Errorf("%s: %d at once of %v, %+v", name, p.AtOnce, kinds(p.Steps), p.Emergency)
		}
	}
}

// Nobody may become a reflector: the mesh takes over, if it is ours to switch and not too large.
func TestTheMeshAsTheLastResort(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, cluster(9, 3), nil)
	w := with(with(steady, silentSince(steady.Now), steady.Marked()...), cordon, others(steady)...)
	w.Now = w.Now.Add(time.Minute)
	p := MakePlan(w)
	if got := kinds(p.Steps); len(got) != 1 || got[0] != "MeshOn BGPConfiguration/default" || p.Waiting != "" || len(p.Simulated) != 1 || p.Target.UnreachablePairs != 0 ||
		p.Steps[0].What().Reason != "no reflector is running, and no node may become one; the mesh takes over" {
		t.Errorf("%v, %+v", p.Steps, p.Target)
	}
	if len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonNoReflectors {
		t.Errorf("%+v", p.Refusals)
	}
	if again := MakePlan(After(w, p.Steps[0])); len(again.Steps) != 0 {
		t.Errorf("then %v", again.Steps)
	}
	observed, large, larger := w, w, remembering(steady)
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	large.Topology.Spec.Sizing.MaxMeshNodes = 8
	larger.Topology.Spec.Sizing.MaxMeshNodes = 8
	for _, name := range steady.Marked() {
		larger.Topology.Status.Reflectors = append(larger.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(rr.RoleReflector)})
	}
	larger = with(withoutNodes(larger, steady.Marked()...), cordon, others(steady)...)
	most := withoutNodes(larger, others(steady)[:2]...)
	most.Topology.Spec.Sizing.MaxMeshNodes = 200
	for name, w := range map[string]rr.World{"observed": observed, "too large": large, "too large with those that vanished": larger, "most Nodes vanished": most} {
		if p := MakePlan(w); len(p.Steps) != 0 {
			t.Errorf("%s: %v", name, p.Steps)
		}
	}
}

// The kubelets of all reflectors die, and BIRD lives: they are replaced once, by nodes whose kubelets live, and not back again.
func TestDeadKubeletsDoNotLoop(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(12, 3), nil)
	old := w.Marked()
	w = with(w, silentSince(w.Now), old...)
	w.Now = w.Now.Add(2 * time.Minute)
	writes := 0
	for {
		w = settled(w)
		for i := range w.Sightings {
			for _, name := range old { // these are heard, whatever Kubernetes thinks
				n, _ := w.Node(name)
				w.Sightings[i].Established[n.IPv4] = true
			}
		}
		p := MakePlan(w)
		if outlasts(&w, p) {
			continue
		}
		if len(p.Steps) == 0 {
			break
		}
		if p.Waiting != "" || writes > 8 {
			t.Fatalf("after %d writes %v waits for %q", writes, p.Steps, p.Waiting)
		}
		for _, s := range p.Steps[:p.AtOnce] {
			w, writes = After(w, s), writes+1
		}
	}
	for _, name := range w.Marked() {
		if slices.Contains(old, name) {
			t.Errorf("%s is still a reflector after %d writes", name, writes)
		}
	}
	if len(w.Marked()) != 3 {
		t.Errorf("the reflectors are %v", w.Marked())
	}
}

// A zone dies, and comes back: its reflector is replaced in another zone, and returns once the zone can be trusted.
func TestAZoneIsLost(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(12, 3), nil)
	var zone []string
	for _, n := range w.Nodes {
		if n.Labels[zoneLabel] == "zone-1" {
			zone = append(zone, n.Name)
		}
	}
	w = with(w, silentSince(w.Now), zone...)
	w.Now = w.Now.Add(time.Minute)
	w, done := carryOut(t, w, nil)
	if len(done) != 2 || !rr.Is[rr.Promote](done[0]) || !rr.Is[rr.Demote](done[1]) || !slices.Contains(zone, done[1].Node()) {
		t.Errorf("%v", kinds(done))
	}
	w = with(w, func(n *rr.Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, zone...)
	if p := settledPlan(w); len(p.Steps) != 0 {
		t.Errorf("it has just come back: %v", p.Steps)
	}
	w.Now = w.Now.Add(5 * time.Minute)
	w, done = carryOut(t, w, nil)
	zones := map[string]int{}
	for _, r := range MakePlan(w).Reflectors {
		zones[r.Zone]++
	}
	if len(done) != 2 || fmt.Sprint(zones) != "map[zone-0:1 zone-1:1 zone-2:1]" {
		t.Errorf("%v, %v", kinds(done), zones)
	}
}
