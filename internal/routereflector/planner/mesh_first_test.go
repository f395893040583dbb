// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
)

func poweredOff(now time.Time) func(n *rr.Node) {
	return func(n *rr.Node) {
		n.Ready, n.ReadySince, n.Taints = corev1.ConditionUnknown, now, []corev1.Taint{{Key: rr.ShutdownTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
}

// drifting is a cluster all of whose reflectors fell silent a second ago, with those who are asked about it, and its baseline.
func drifting(t *testing.T) (steady, w rr.World) {
	t.Helper()
	steady, _ = carryOut(t, cluster(9, 3), nil)
	steady = remembering(steady)
	for _, name := range steady.Marked() {
		steady.Topology.Status.Reflectors = append(steady.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(rr.RoleReflector)})
	}
	w = with(steady, silentSince(steady.Now), steady.Marked()...)
	w.Now = w.Now.Add(time.Second)
	return steady, w
}

// The mesh takes over as soon as no reflector is left, long before a grace period is over; and not before that, nor where it must not.
func TestTheMeshFirst(t *testing.T) {
	t.Parallel()
	steady, lost := drifting(t)
	reflectors := steady.Marked()
	large := func(w rr.World, most int32) rr.World {
		w.Topology.Spec.Sizing.MaxMeshNodes = most
		return w
	}
	observed, exiting := settled(lost), settled(lost)
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	exiting.Topology.DeletionTimestamp = &metav1.Time{Time: lost.Now}
	mixed := settled(lost)
	held, _ := mixed.Node(reflectors[0])
	mixed.Sightings[0].Established[held.IPv4] = true
	late := mixed
	late.Now = late.Now.Add(time.Minute)
	for i := range late.Sightings {
		late.Sightings[i].Current = true
	}
	for name, c := range map[string]struct {
		w    rr.World
		mesh bool
	}{
		"the witnesses have lost them":       {settled(lost), true},
		"the machines are off":               {with(steady, poweredOff(steady.Now), reflectors...), true},
		"the Nodes are gone":                 {withoutNodes(steady, reflectors...), true},
		"one is off, one gone, one lost":     {settled(withoutNodes(with(lost, poweredOff(steady.Now), reflectors[0]), reflectors[1])), true},
		"nobody has spoken":                  {lost, false},
		"the witnesses hear them":            {hearing(settled(lost), reflectors), false},
		"two have lost one, a third has not": {mixed, false},
		"it is beyond its grace period":      {late, true},
		"the witnesses hear one of them":     {hearing(settled(lost), reflectors[:1]), false},
		"one is Ready":                       {with(steady, poweredOff(steady.Now), reflectors[:2]...), false},
		"the mesh is not ours to switch":     {observed, false},
		"the mesh is too large":              {large(settled(lost), 8), false},
		"it is just not":                     {large(settled(lost), 9), true},
		"it would be with those that vanish": {large(withoutNodes(steady, reflectors...), 8), false},
		"most Nodes vanished":                {withoutNodes(steady, append(reflectors, others(steady)[:2]...)...), false},
	} {
		p := MakePlan(c.w)
		if got := len(p.Steps) > 0 && rr.Is[rr.MeshOn](p.Steps[0]); got != c.mesh {
			t.Errorf("%s: %v, %+v", name, kinds(p.Steps), p.Refusals)
		}
		if c.mesh && (p.AtOnce != 1 || p.Waiting != "" || p.Emergency == nil || !p.Emergency.Since.Time.Equal(c.w.Now) || len(p.Refusals) > 0) ||
			(p.Emergency != nil) != (c.mesh || health.Emergency(&c.w)) {
			t.Errorf("%s: %d at once, waits for %q, %+v, %+v", name, p.AtOnce, p.Waiting, p.Emergency, p.Refusals)
		}
	}
	if p := MakePlan(exiting); p.Emergency != nil {
		t.Errorf("at its end: %+v", p.Emergency)
	}
	deep := settled(inTheEnd(limited(24, 2, 12)))
	if w := with(deep, poweredOff(deep.Now), deep.Marked()...); health.Adrift(&w) != "" {
		t.Error("a hierarchy is not the mesh's to save: its own order is tested elsewhere")
	}
}

// Reflectors that come back keep their roles: the mesh goes on and off, and nothing else is written. It goes off when they have been Ready
// for a minute, and the plan says until when it waits.
func TestReflectorsComeBackFromAnEmergency(t *testing.T) {
	t.Parallel()
	_, w := drifting(t)
	zero := metav1.Duration{}
	w.Topology.Spec.Failure.Stabilization = &zero
	before := w.Marked()
	w = settled(w)
	w = After(w, MakePlan(w).Steps[0])
	w.Now = w.Now.Add(20 * time.Second)
	if p := settledPlan(w); len(p.Steps) != 0 || p.Emergency == nil {
		t.Errorf("while they are gone: %v, %+v", kinds(p.Steps), p.Emergency)
	}
	back := with(w, func(n *rr.Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, before...)
	p := settledPlan(back)
	want := "all reflectors were lost, and the mesh stays on until " + w.Now.Add(health.MeshStays).Format(time.RFC3339)
	if order(p.Steps) != "MeshOff" || !strings.HasPrefix(p.Waiting, want) {
		t.Errorf("%v waits for %q", kinds(p.Steps), p.Waiting)
	}
	if !p.Lasting {
		t.Error("a minute's wait counts as one for sessions")
	}
	late := with(back, silentSince(back.Now.Add(health.MeshStays-10*time.Second)), before[0])
	late.Now = late.Now.Add(health.MeshStays)
	if p := settledPlan(late); order(p.Steps) != "MeshOff" || !p.Lasting || !strings.Contains(p.Waiting, "until "+before[0]+" is Ready again") {
		t.Errorf("while one may still come back: %v waits for %q", kinds(p.Steps), p.Waiting)
	}
	back.Now = back.Now.Add(health.MeshStays)
	back, done := carryOut(t, back, nil)
	if p := MakePlan(back); order(done) != "MeshOff" || !slices.Equal(back.Marked(), before) || p.Emergency != nil {
		t.Errorf("%v, reflectors %v, %+v", kinds(done), back.Marked(), p.Emergency)
	}
}

// A node of another AS without a session holds no step up while the mesh is off: it is cut off already.
func TestANodeOfItsOwnASHoldsNothingUp(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	own := others(w)[0]
	w = apart(settled(with(w, otherAS, own)), own)
	for _, step := range []rr.Step{rr.Promote{}, rr.Demote{}} {
		if why := gate.Wait(&w, step, MakePlan(w).Reflectors); why != "" {
			t.Errorf("%s waits: %s", rr.Kind(step), why)
		}
	}
	w.Mesh.On = true
	if why := gate.Wait(&w, rr.Promote{}, MakePlan(w).Reflectors); !strings.Contains(why, own) {
		t.Errorf("with the mesh on it waits for %q", why)
	}
}

// What is written in an emergency says that there is one, wherever the mesh may not take over, so that the next round knows it although the
// Nodes of all reflectors are gone, as nothing else says that there were any.
func TestAnEmergencyIsRemembered(t *testing.T) {
	t.Parallel()
	steady, _ := drifting(t)
	gone := withoutNodes(steady, steady.Marked()...)
	gone = with(gone, young(gone.Now), others(gone)...)
	observed, large := gone, gone
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	large.Topology.Spec.Sizing.MaxMeshNodes = 8
	for name, w := range map[string]rr.World{"flat": gone, "observed": observed, "too large": large} {
		first := MakePlan(w)
		w.Topology.Status.Emergency, w.Topology.Status.Reflectors = first.Emergency, nil
		p := MakePlan(w)
		if len(p.Steps) == 0 || first.Emergency == nil || p.Emergency == nil || !slices.Equal(kinds(p.Steps), kinds(first.Steps)) || p.AtOnce != first.AtOnce {
			t.Errorf("%s: %d at once of %v, %+v, then %d of %v, %+v", name, first.AtOnce, kinds(first.Steps), first.Emergency, p.AtOnce, kinds(p.Steps), p.Emergency)
		}
		if name == "flat" || len(p.Steps) == 0 {
			continue
		}
		if is := MakePlan(After(w, p.Steps[0])); !rr.Is[rr.Promote](p.Steps[0]) || is.Emergency != nil {
			t.Errorf("%s: once one lives: %+v", name, is.Emergency)
		}
	}
}

// comeBack is the world in which nodes are Ready again after a time, and have been for another.
func comeBack(w rr.World, after, since time.Duration, names ...string) rr.World {
	w.Now = w.Now.Add(after)
	w = with(w, func(n *rr.Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, names...)
	w.Now = w.Now.Add(since)
	return w
}

// Two nodes of one other AS, which came after the mesh had gone, have no path to each other. An emergency gives them one, and is over all the same. What came
// in the emergency keeps the mesh on.
func TestWhatWasPartedBeforeAnEmergency(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		created time.Duration
		on      bool
	}{"before": {-time.Hour, false}, "in it": {time.Hour, true}} {
		_, w := drifting(t)
		w = with(w, otherAS, others(w)[:2]...)
		w = with(w, func(n *rr.Node) { n.Created = w.Now.Add(c.created) }, others(w)[0])
		before := w.Marked()
		w = settled(w)
		if first := MakePlan(w).Steps[0]; !rr.Is[rr.MeshOn](first) {
			t.Fatalf("%s: %s", name, first)
		}
		w, done := carryOut(t, comeBack(After(w, MakePlan(w).Steps[0]), 20*time.Second, health.MeshStays, before...), nil)
		if p := MakePlan(w); w.Mesh.On != c.on || (p.Emergency != nil) != c.on || c.on != (len(p.Refusals) == 1 && p.Refusals[0].Reason == rr.ReasonUnsafe) {
			t.Errorf("%s: the mesh is on: %v after %v, %+v, %+v", name, w.Mesh.On, kinds(done), p.Emergency, p.Refusals)
		}
	}
}

// A reflector of somebody else's, which two nodes of one other AS reached each other by, died in the emergency as well: the mesh stays on until it is back.
func TestAForeignReflectorDiedInTheEmergency(t *testing.T) {
	t.Parallel()
	_, w := drifting(t)
	own, x := w.Marked(), others(w)[:3]
	w = with(w, otherAS, x...)
	w = with(w, func(n *rr.Node) { n.ClusterID = "9.9.9.9" }, x[0])
	x0, _ := w.Node(x[0])
	w.Peers = append(slices.Clone(w.Peers), rr.Peer{Name: "rack", PeerIP: x0.IPv4, ASNumber: 65001})
	if got := model.Judge(&w, model.StateOf(w)).Checks.UnreachablePairs; got == 0 {
		t.Fatal("their reflector does more than its own")
	}
	lived := with(w, func(n *rr.Node) { n.Ready = corev1.ConditionTrue }, own...)
	if got := model.Judge(&lived, model.StateOf(lived)).Checks; got.UnreachablePairs != 0 {
		t.Fatalf("before the emergency: %+v", got)
	}
	w = settled(with(w, silentSince(w.Now), x[0]))
	if first := MakePlan(w).Steps[0]; !rr.Is[rr.MeshOn](first) {
		t.Fatalf("first %s", first)
	}
	w, done := carryOut(t, comeBack(After(w, MakePlan(w).Steps[0]), 20*time.Second, health.MeshStays, own...), nil)
	if p := MakePlan(w); !w.Mesh.On || p.Emergency == nil || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonUnsafe {
		t.Errorf("the mesh is on: %v after %v, %+v, %+v", w.Mesh.On, kinds(done), p.Emergency, p.Refusals)
	}
	w, done = carryOut(t, comeBack(w, 0, time.Hour, x[0]), nil)
	if got := MakePlan(w).Checks.UnreachablePairs; order(done) != "MeshOff" || w.Mesh.On || got != 0 {
		t.Errorf("once it is back: %v, %d pairs without a path", kinds(done), got)
	}
}
