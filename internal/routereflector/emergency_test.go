// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// with changes nodes of a copy of the world.
func (w World) with(change func(n *Node), names ...string) World {
	w.Nodes = slices.Clone(w.Nodes)
	for i := range w.Nodes {
		if slices.Contains(names, w.Nodes[i].Name) {
			change(&w.Nodes[i])
		}
	}
	return w
}

// without removes nodes from a copy of the world.
func (w World) without(names ...string) World {
	w.Nodes = slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool { return slices.Contains(names, n.Name) })
	return w
}

// hearing is the world in which all who have spoken say that they have sessions with some nodes.
func (w World) hearing(names []string) World {
	for i := range w.Sightings {
		for _, name := range names {
			n, _ := factsOf(&w).node(name)
			w.Sightings[i].Established[n.IPv4] = true
		}
	}
	return w
}

// others are the names of the nodes that are not reflectors.
func (w World) others() []string {
	var out []string
	for i := range w.Nodes {
		if !w.Nodes[i].marked(&w.Topology) {
			out = append(out, w.Nodes[i].Name)
		}
	}
	return out
}

func cordon(n *Node) { n.Unschedulable = true }

func taintForRemoval(n *Node) {
	n.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
}

// silent is a node whose kubelet fell silent as long ago as the world's time allows.
func silentSince(at time.Time) func(n *Node) {
	return func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionUnknown, at }
}

// young is a node that has been Ready for a second.
func young(now time.Time) func(n *Node) {
	return func(n *Node) { n.ReadySince = now.Add(-time.Second) }
}

// One pass: a reflector whose Node is gone is replaced by one write.
func TestADeletedReflectorIsReplaced(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	w = w.without(factsOf(&w).marked()[1])
	w, done := carryOut(t, w, nil)
	if len(done) != 1 || done[0].Kind != Promote || len(factsOf(&w).marked()) != 3 {
		t.Errorf("%v", kinds(done))
	}
}

// Anyone who is about to leave is replaced before it does, and stays as long as nobody can take its place.
func TestWhoIsAboutToLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(n *Node)
		why    string
		note   string
	}{
		"cordoned": {change: cordon, why: "it is cordoned"},
		"autoscaler": {
			change: taintForRemoval, why: "it is marked for removal by an autoscaler", note: "only 2 of 3 reflectors: of the other nodes 6 because it is cordoned",
		},
		"being deleted": {
			change: func(n *Node) { n.Deleting = true }, why: "its Node is being deleted", note: "only 2 of 3 reflectors: of the other nodes 6 because it is cordoned",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := carryOut(t, cluster(9, 3), nil)
			who := factsOf(&w).marked()[0]
			w = w.with(c.change, who)
			_, done := carryOut(t, w, nil)
			if len(done) != 2 || done[0].Kind != Promote || done[1].Kind != Demote || done[1].Node != who || done[1].Reason != c.why {
				t.Errorf("%v", done)
			}
			p := Make(w.with(cordon, w.others()...).settled())
			at := slices.IndexFunc(p.Reflectors, func(r Reflector) bool { return r.Node == who })
			if len(p.Steps) != 0 || p.Reflectors[at].Role != RoleReflector || p.Reflectors[at].Reason != c.why+", and stays until another node can replace it" {
				t.Errorf("with nobody to take its place: %v, %+v", p.Steps, p.Reflectors[at])
			}
			if got := strings.Join(Messages(p.Notes), "; "); got != c.note {
				t.Errorf("the notes are %q, want %q", got, c.note)
			}
			node, _ := factsOf(&w).node(who)
			if got := w.Fitness(node); got != c.why {
				t.Errorf("it is said to be %q as a reflector", got)
			}
		})
	}
}

func TestKeepThroughACordon(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	w = w.with(func(n *Node) { n.Unschedulable, n.Annotations = true, map[string]string{v1alpha1.KeepAnnotation: ""} }, factsOf(&w).marked()[0])
	if p := Make(w.settled()); len(p.Steps) != 0 {
		t.Errorf("%v", p.Steps)
	}
}

// Nodes that have not been Ready for long are chosen only when clients would be left with fewer sessions than all but one.
func TestFreshNodesOnlyWhenPressed(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	w = w.with(young(w.Now), w.others()...)
	one := w.with(cordon, factsOf(&w).marked()[0])
	if p := Make(one.settled()); len(p.Steps) != 0 {
		t.Errorf("with one of three cordoned: %v", p.Steps)
	}
	two := w.with(cordon, factsOf(&w).marked()[:2]...)
	if _, done := carryOut(t, two, nil); order(done) != "Promote Demote" {
		t.Errorf("with two of three cordoned: %v", kinds(done))
	}
	two.Mesh.On = true
	for _, s := range Make(two.settled()).Steps {
		if s.Kind == Promote {
			t.Errorf("while the mesh is on: %v", s)
		}
	}
}

// All reflectors are lost: the mesh takes over, others are promoted at once, though they have not been Ready for long, and the mesh goes off again.
func TestEmergency(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, cluster(9, 3), nil)
	lost := factsOf(&steady).marked()
	now := steady.Now.Add(time.Minute)
	dead := steady.with(silentSince(steady.Now), lost...).with(young(now), steady.others()...)
	dead.Now = now
	gone := steady.without(lost...).with(young(now), steady.others()...)
	gone.Now = now
	for _, name := range lost {
		gone.Topology.Status.Reflectors = append(gone.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(RoleReflector)})
	}
	for name, w := range map[string]World{"dead": dead, "gone": gone} {
		first := Make(w)
		if first.AtOnce != 1 || first.Waiting != "" || first.Steps[0].Kind != MeshOn || first.Emergency == nil {
			t.Errorf("%s: first %d at once of %v, waiting for %q", name, first.AtOnce, kinds(first.Steps), first.Waiting)
		}
		after := w.After(first.Steps[0])
		p := Make(after)
		if p.AtOnce != 3 || p.Waiting != "" || p.Steps[0].Kind != Promote || p.Steps[2].Kind != Promote {
			t.Errorf("%s: %d at once of %v, waiting for %q", name, p.AtOnce, kinds(p.Steps), p.Waiting)
		}
		for _, s := range p.Steps[:p.AtOnce] {
			after = after.After(s)
		}
		after, done := carryOut(t, after, nil)
		if got := Make(after).Checks; len(done) != map[string]int{"dead": 4, "gone": 1}[name] || after.Mesh.On || got.UnreachablePairs != 0 || got.MinSessionsPerClient != 3 {
			t.Errorf("%s: afterwards %v, %+v", name, kinds(done), got)
		}
	}
}

// What is not an emergency: there is something to lose, or it is too early to tell.
func TestNoEmergency(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, cluster(9, 3), nil)
	lost := factsOf(&steady).marked()
	dead := steady.with(silentSince(steady.Now), lost...).with(young(steady.Now.Add(time.Minute)), steady.others()...)
	dead.Now = steady.Now.Add(time.Minute)
	if !candidatesOf(&dead).emergency() {
		t.Fatal("all are lost")
	}
	for name, change := range map[string]func(w *World){
		"within the grace period": func(w *World) { w.Now = w.Now.Add(-time.Second) },
		"the mesh is on":          func(w *World) { w.Mesh.On = true },
		"one lives":               func(w *World) { *w = w.with(func(n *Node) { n.Ready = corev1.ConditionTrue }, lost[0]) },
		"somebody else's lives": func(w *World) {
			*w = w.with(func(n *Node) { n.ClusterID = "9.9.9.9" }, w.others()[0])
			other, _ := factsOf(w).node(w.others()[0])
			w.Peers = append(slices.Clone(w.Peers), Peer{Name: "rack", PeerIP: other.IPv4})
		},
		"there never were any": func(w *World) { *w = w.without(lost...) },
		"it is being deleted":  func(w *World) { w.Topology.DeletionTimestamp = &w.Topology.CreationTimestamp },
	} {
		w := dead
		change(&w)
		if candidatesOf(&w).emergency() {
			t.Errorf("%s: it is called an emergency", name)
		}
		p := Make(w.settled())
		drifts := name == "within the grace period" // for which the mesh is there
		on := len(p.Steps) > 0 && p.Steps[0].Kind == MeshOn
		if on != (drifts || w.Topology.DeletionTimestamp != nil) || (p.Emergency != nil) != drifts || p.AtOnce > 1 {
			t.Errorf("%s: %d at once of %v, %+v", name, p.AtOnce, kinds(p.Steps), p.Emergency)
		}
	}
}

// Nobody may become a reflector: the mesh takes over, if it is ours to switch and not too large.
func TestTheMeshAsTheLastResort(t *testing.T) {
	t.Parallel()
	steady, _ := carryOut(t, cluster(9, 3), nil)
	w := steady.with(silentSince(steady.Now), factsOf(&steady).marked()...).with(cordon, steady.others()...)
	w.Now = w.Now.Add(time.Minute)
	p := Make(w)
	if got := kinds(p.Steps); len(got) != 1 || got[0] != "MeshOn BGPConfiguration/default" || p.Waiting != "" || len(p.Simulated) != 1 || p.Target.UnreachablePairs != 0 ||
		p.Steps[0].Reason != "no reflector is running, and no node may become one; the mesh takes over" {
		t.Errorf("%v, %+v", p.Steps, p.Target)
	}
	if len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonNoReflectors {
		t.Errorf("%+v", p.Refusals)
	}
	if again := Make(w.After(p.Steps[0])); len(again.Steps) != 0 {
		t.Errorf("then %v", again.Steps)
	}
	observed, large, larger := w, w, steady.remembering()
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	large.Topology.Spec.Sizing.MaxMeshNodes = 8
	larger.Topology.Spec.Sizing.MaxMeshNodes = 8
	for _, name := range factsOf(&steady).marked() {
		larger.Topology.Status.Reflectors = append(larger.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(RoleReflector)})
	}
	larger = larger.without(factsOf(&steady).marked()...).with(cordon, steady.others()...)
	most := larger.without(steady.others()[:2]...)
	most.Topology.Spec.Sizing.MaxMeshNodes = 200
	for name, w := range map[string]World{"observed": observed, "too large": large, "too large with those that vanished": larger, "most Nodes vanished": most} {
		if p := Make(w); len(p.Steps) != 0 {
			t.Errorf("%s: %v", name, p.Steps)
		}
	}
}

// The kubelets of all reflectors die, and BIRD lives: they are replaced once, by nodes whose kubelets live, and not back again.
func TestDeadKubeletsDoNotLoop(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(12, 3), nil)
	old := factsOf(&w).marked()
	w = w.with(silentSince(w.Now), old...)
	w.Now = w.Now.Add(2 * time.Minute)
	writes := 0
	for {
		w = w.settled()
		for i := range w.Sightings {
			for _, name := range old { // these are heard, whatever Kubernetes thinks
				n, _ := factsOf(&w).node(name)
				w.Sightings[i].Established[n.IPv4] = true
			}
		}
		if w.outlasts() {
			continue
		}
		p := Make(w)
		if len(p.Steps) == 0 {
			break
		}
		if p.Waiting != "" || writes > 8 {
			t.Fatalf("after %d writes %v waits for %q", writes, p.Steps, p.Waiting)
		}
		for _, s := range p.Steps[:p.AtOnce] {
			w, writes = w.After(s), writes+1
		}
	}
	for _, name := range factsOf(&w).marked() {
		if slices.Contains(old, name) {
			t.Errorf("%s is still a reflector after %d writes", name, writes)
		}
	}
	if len(factsOf(&w).marked()) != 3 {
		t.Errorf("the reflectors are %v", factsOf(&w).marked())
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
	w = w.with(silentSince(w.Now), zone...)
	w.Now = w.Now.Add(time.Minute)
	w, done := carryOut(t, w, nil)
	if len(done) != 2 || done[0].Kind != Promote || done[1].Kind != Demote || !slices.Contains(zone, done[1].Node) {
		t.Errorf("%v", kinds(done))
	}
	w = w.with(func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, zone...)
	if p := Make(w.settled()); len(p.Steps) != 0 {
		t.Errorf("it has just come back: %v", p.Steps)
	}
	w.Now = w.Now.Add(5 * time.Minute)
	w, done = carryOut(t, w, nil)
	zones := map[string]int{}
	for _, r := range Make(w).Reflectors {
		zones[r.Zone]++
	}
	if len(done) != 2 || fmt.Sprint(zones) != "map[zone-0:1 zone-1:1 zone-2:1]" {
		t.Errorf("%v, %v", kinds(done), zones)
	}
}

// Two of three die at once: both are replaced, one after the other, each on the word of those who live.
func TestTwoOfThree(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	dead := factsOf(&w).marked()[:2]
	w = w.with(silentSince(w.Now), dead...)
	w.Now = w.Now.Add(time.Minute)
	if p := Make(w.settled()); p.AtOnce != 1 {
		t.Errorf("%d at once although one lives", p.AtOnce)
	}
	w, done := carryOut(t, w, nil)
	if got := strings.Join(kinds(done), " "); len(done) != 4 || done[0].Kind != Promote || done[1].Kind != Promote || done[3].Kind != Demote {
		t.Errorf("%s", got)
	}
	if got := Make(w).Checks; got.MinSessionsPerClient != 3 {
		t.Errorf("%+v", got)
	}
}
