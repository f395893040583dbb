// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

func poweredOff(now time.Time) func(n *Node) {
	return func(n *Node) {
		n.Ready, n.ReadySince, n.Taints = corev1.ConditionUnknown, now, []corev1.Taint{{Key: shutdownTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
}

// drifting is a cluster all of whose reflectors fell silent a second ago, with those who are asked about it, and its baseline.
func drifting(t *testing.T) (steady, w World) {
	t.Helper()
	steady, _ = carryOut(t, cluster(9, 3), nil)
	steady = steady.remembering()
	for _, name := range factsOf(&steady).marked() {
		steady.Topology.Status.Reflectors = append(steady.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(RoleReflector)})
	}
	w = steady.with(silentSince(steady.Now), factsOf(&steady).marked()...)
	w.Now = w.Now.Add(time.Second)
	return steady, w
}

// The mesh takes over as soon as no reflector is left, long before a grace period is over; and not before that, nor where it must not.
func TestTheMeshFirst(t *testing.T) {
	t.Parallel()
	steady, lost := drifting(t)
	reflectors := factsOf(&steady).marked()
	large := func(w World, most int32) World {
		w.Topology.Spec.Sizing.MaxMeshNodes = most
		return w
	}
	observed, exiting := lost.settled(), lost.settled()
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	exiting.Topology.DeletionTimestamp = &metav1.Time{Time: lost.Now}
	mixed := lost.settled()
	held, _ := factsOf(&mixed).node(reflectors[0])
	mixed.Sightings[0].Established[held.IPv4] = true
	late := mixed
	late.Now = late.Now.Add(time.Minute)
	for i := range late.Sightings {
		late.Sightings[i].Current = true
	}
	for name, c := range map[string]struct {
		w    World
		mesh bool
	}{
		"the witnesses have lost them":       {lost.settled(), true},
		"the machines are off":               {steady.with(poweredOff(steady.Now), reflectors...), true},
		"the Nodes are gone":                 {steady.without(reflectors...), true},
		"one is off, one gone, one lost":     {lost.with(poweredOff(steady.Now), reflectors[0]).without(reflectors[1]).settled(), true},
		"nobody has spoken":                  {lost, false},
		"the witnesses hear them":            {lost.settled().hearing(reflectors), false},
		"two have lost one, a third has not": {mixed, false},
		"it is beyond its grace period":      {late, true},
		"the witnesses hear one of them":     {lost.settled().hearing(reflectors[:1]), false},
		"one is Ready":                       {steady.with(poweredOff(steady.Now), reflectors[:2]...), false},
		"the mesh is not ours to switch":     {observed, false},
		"the mesh is too large":              {large(lost.settled(), 8), false},
		"it is just not":                     {large(lost.settled(), 9), true},
		"it would be with those that vanish": {large(steady.without(reflectors...), 8), false},
		"most Nodes vanished":                {steady.without(append(reflectors, steady.others()[:2]...)...), false},
	} {
		p := Make(c.w)
		if got := len(p.Steps) > 0 && p.Steps[0].Kind == MeshOn; got != c.mesh {
			t.Errorf("%s: %v, %+v", name, kinds(p.Steps), p.Refusals)
		}
		if c.mesh && (p.AtOnce != 1 || p.Waiting != "" || p.Emergency == nil || !p.Emergency.Since.Time.Equal(c.w.Now) || len(p.Refusals) > 0) ||
			(p.Emergency != nil) != (c.mesh || candidatesOf(&c.w).emergency()) {
			t.Errorf("%s: %d at once, waits for %q, %+v, %+v", name, p.AtOnce, p.Waiting, p.Emergency, p.Refusals)
		}
	}
	if p := Make(exiting); p.Emergency != nil {
		t.Errorf("at its end: %+v", p.Emergency)
	}
	deep := inTheEnd(limited(24, 2, 12)).settled()
	if w := deep.with(poweredOff(deep.Now), factsOf(&deep).marked()...); candidatesOf(&w).adrift() != "" {
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
	before := factsOf(&w).marked()
	w = w.settled()
	w = w.After(Make(w).Steps[0])
	w.Now = w.Now.Add(20 * time.Second)
	if p := Make(w.settled()); len(p.Steps) != 0 || p.Emergency == nil {
		t.Errorf("while they are gone: %v, %+v", kinds(p.Steps), p.Emergency)
	}
	back := w.with(func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, before...)
	p := Make(back.settled())
	want := "all reflectors were lost, and the mesh stays on until " + w.Now.Add(MeshStays).Format(time.RFC3339)
	if order(p.Steps) != "MeshOff" || !strings.HasPrefix(p.Waiting, want) {
		t.Errorf("%v waits for %q", kinds(p.Steps), p.Waiting)
	}
	if !p.Lasting {
		t.Error("a minute's wait counts as one for sessions")
	}
	late := back.with(silentSince(back.Now.Add(MeshStays-10*time.Second)), before[0])
	late.Now = late.Now.Add(MeshStays)
	if p := Make(late.settled()); order(p.Steps) != "MeshOff" || !p.Lasting || !strings.Contains(p.Waiting, "until "+before[0]+" is Ready again") {
		t.Errorf("while one may still come back: %v waits for %q", kinds(p.Steps), p.Waiting)
	}
	back.Now = back.Now.Add(MeshStays)
	back, done := carryOut(t, back, nil)
	if p := Make(back); order(done) != "MeshOff" || !slices.Equal(factsOf(&back).marked(), before) || p.Emergency != nil {
		t.Errorf("%v, reflectors %v, %+v", kinds(done), factsOf(&back).marked(), p.Emergency)
	}
}

// Where no emergency was, the mesh goes off without a minute's wait, whatever the stabilization.
func TestNoFloorWithoutAnEmergency(t *testing.T) {
	t.Parallel()
	w := cluster(9, 3)
	w.Topology.Spec.Failure.Stabilization = &metav1.Duration{}
	for p := Make(w.settled()); len(p.Steps) > 0; p = Make(w.settled()) {
		if p.Waiting != "" {
			t.Fatalf("%s waits for %s", p.Steps[0], p.Waiting)
		}
		w = w.After(p.Steps[0])
	}
	if w.Mesh.On {
		t.Error("the mesh is on")
	}
}

// An emergency is carried to its end by nodes that have not been Ready for long, if there are no others, anyone who goes on with it after each write.
func TestAnEmergencyIsCarriedThrough(t *testing.T) {
	t.Parallel()
	steady, _ := drifting(t)
	w := steady.without(factsOf(&steady).marked()...)
	w.Topology.Spec.Failure.Stabilization = &metav1.Duration{Duration: 24 * time.Hour}
	w, done := carryOut(t, w, func(_, after World, _ Plan) {
		if p := Make(after.settled()); len(p.Steps) == 0 && after.Mesh.On {
			t.Errorf("left half-way: %+v", p.Refusals)
		}
	})
	if got := order(done); got != "MeshOn Promote Promote Promote MeshOff" || w.Mesh.On || len(factsOf(&w).marked()) != 3 {
		t.Errorf("%s", got)
	}
}

// A mesh that somebody turns off in an emergency is turned on again, although the status names no reflector any more.
func TestTheMeshIsTurnedOffInAnEmergency(t *testing.T) {
	t.Parallel()
	steady, _ := drifting(t)
	w := steady.without(factsOf(&steady).marked()...)
	w = w.After(Make(w).Steps[0])
	w.Mesh.On, w.Topology.Status.Reflectors = false, nil
	if p := Make(w); len(p.Steps) == 0 || p.Steps[0].Kind != MeshOn || p.Emergency == nil {
		t.Errorf("%v, %+v", kinds(p.Steps), p.Emergency)
	}
}

// A client that no reflector can have a session with does not switch off the check that others keep enough of theirs.
func TestAJammedClientDoesNotLowerTheLeast(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	jammed := w.others()[0]
	n, _ := factsOf(&w).node(jammed)
	w.Peers = append(slices.Clone(w.Peers), Peer{Name: "wrong", PeerIP: n.IPv4, ASNumber: 65001})
	if got := checksOf(&w).judge(w.state()).checks.MinSessionsPerClient; got != 3 {
		t.Errorf("the least is %d", got)
	}
}

// A node of another AS without a session holds no step up while the mesh is off: it is cut off already.
func TestANodeOfItsOwnASHoldsNothingUp(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	own := w.others()[0]
	w = w.with(func(n *Node) { n.AS, n.ForeignAS = 65001, true }, own).settled()
	n, _ := factsOf(&w).node(own)
	for i := range w.Sightings {
		delete(w.Sightings[i].Established, n.IPv4)
	}
	for _, kind := range []Kind{Promote, Demote} {
		if why := gatesOf(&w).wait(Step{Kind: kind}, Make(w).Reflectors); why != "" {
			t.Errorf("%s waits: %s", kind, why)
		}
	}
	w.Mesh.On = true
	if why := gatesOf(&w).wait(Step{Kind: Promote}, Make(w).Reflectors); !strings.Contains(why, own) {
		t.Errorf("with the mesh on it waits for %q", why)
	}
}

// What is written in an emergency says that there is one, wherever the mesh may not take over, so that the next round knows it although the
// Nodes of all reflectors are gone, as nothing else says that there were any.
func TestAnEmergencyIsRemembered(t *testing.T) {
	t.Parallel()
	steady, _ := drifting(t)
	gone := steady.without(factsOf(&steady).marked()...)
	gone = gone.with(young(gone.Now), gone.others()...)
	observed, large := gone, gone
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	large.Topology.Spec.Sizing.MaxMeshNodes = 8
	for name, w := range map[string]World{"flat": gone, "observed": observed, "too large": large} {
		first := Make(w)
		w.Topology.Status.Emergency, w.Topology.Status.Reflectors = first.Emergency, nil
		p := Make(w)
		if len(p.Steps) == 0 || first.Emergency == nil || p.Emergency == nil || !slices.Equal(kinds(p.Steps), kinds(first.Steps)) || p.AtOnce != first.AtOnce {
			t.Errorf("%s: %d at once of %v, %+v, then %d of %v, %+v", name, first.AtOnce, kinds(first.Steps), first.Emergency, p.AtOnce, kinds(p.Steps), p.Emergency)
		}
		if name == "flat" || len(p.Steps) == 0 {
			continue
		}
		if is := Make(w.After(p.Steps[0])); p.Steps[0].Kind != Promote || is.Emergency != nil {
			t.Errorf("%s: once one lives: %+v", name, is.Emergency)
		}
	}
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
		w = w.with(otherAS, w.others()[:2]...)
		w = w.with(func(n *Node) { n.Created = w.Now.Add(c.created) }, w.others()[0])
		before := factsOf(&w).marked()
		w = w.settled()
		if first := Make(w).Steps[0]; first.Kind != MeshOn {
			t.Fatalf("%s: %s", name, first)
		}
		w = w.After(Make(w).Steps[0])
		w.Now = w.Now.Add(20 * time.Second)
		w = w.with(func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, before...)
		w.Now = w.Now.Add(MeshStays)
		w, done := carryOut(t, w, nil)
		if p := Make(w); w.Mesh.On != c.on || (p.Emergency != nil) != c.on || c.on != (len(p.Refusals) == 1 && p.Refusals[0].Reason == ReasonUnsafe) {
			t.Errorf("%s: the mesh is on: %v after %v, %+v, %+v", name, w.Mesh.On, kinds(done), p.Emergency, p.Refusals)
		}
	}
}

// A reflector of somebody else's, which two nodes of one other AS reached each other by, died in the emergency as well: the mesh stays on until it is back.
func TestAForeignReflectorDiedInTheEmergency(t *testing.T) {
	t.Parallel()
	_, w := drifting(t)
	own, x := factsOf(&w).marked(), w.others()[:3]
	w = w.with(otherAS, x...)
	w = w.with(func(n *Node) { n.ClusterID = "9.9.9.9" }, x[0])
	x0, _ := factsOf(&w).node(x[0])
	w.Peers = append(slices.Clone(w.Peers), Peer{Name: "rack", PeerIP: x0.IPv4, ASNumber: 65001})
	if got := checksOf(&w).judge(w.state()).checks.UnreachablePairs; got == 0 {
		t.Fatal("their reflector does more than its own")
	}
	lived := w.with(func(n *Node) { n.Ready = corev1.ConditionTrue }, own...)
	if got := checksOf(&lived).judge(lived.state()).checks; got.UnreachablePairs != 0 {
		t.Fatalf("before the emergency: %+v", got)
	}
	w = w.with(silentSince(w.Now), x[0]).settled()
	if first := Make(w).Steps[0]; first.Kind != MeshOn {
		t.Fatalf("first %s", first)
	}
	w = w.After(Make(w).Steps[0])
	w.Now = w.Now.Add(20 * time.Second)
	w = w.with(func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, own...)
	w.Now = w.Now.Add(MeshStays)
	w, done := carryOut(t, w, nil)
	if p := Make(w); !w.Mesh.On || p.Emergency == nil || len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonUnsafe {
		t.Errorf("the mesh is on: %v after %v, %+v, %+v", w.Mesh.On, kinds(done), p.Emergency, p.Refusals)
	}
	w = w.with(func(n *Node) { n.Ready, n.ReadySince = corev1.ConditionTrue, w.Now }, x[0])
	w.Now = w.Now.Add(time.Hour)
	w, done = carryOut(t, w, nil)
	if got := Make(w).Checks.UnreachablePairs; order(done) != "MeshOff" || w.Mesh.On || got != 0 {
		t.Errorf("once it is back: %v, %d pairs without a path", kinds(done), got)
	}
}
