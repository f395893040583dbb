// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// attack lets kubelets write what NodeRestriction lets them write on their own Nodes: the label of a reflector, a group, a cluster ID, and
// that they are to stay.
func attack(w rr.World, names []string, id, group string) rr.World {
	return with(w, func(n *rr.Node) {
		n.Labels, n.Annotations = maps.Clone(n.Labels), map[string]string{v1alpha1.KeepAnnotation: ""}
		n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = w.Topology.Name, id
		if group != "" {
			n.Labels[v1alpha1.GroupLabel] = group
		}
	}, names...)
}

func foreignNodes(p rr.Plan) []string {
	var out []string
	for _, f := range p.Foreign {
		out = append(out, f.Node)
	}
	return out
}

// Whatever kubelets write and whenever, no step is about their nodes, nobody is demoted for them, nothing is refused
// for them, and the plan converges, also when a reflector dies. They are reported.
func TestForeignMarksChangeNothing(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := cluster(rapid.IntRange(8, 14).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "zones"))
		// A topology that has not begun refuses a cluster ID that somebody has.
		for range rapid.IntRange(1, 8).Draw(t, "steps done") {
			var p rr.Plan
			if w, p = planned(w); len(p.Steps) == 0 {
				break
			}
			w = After(w, p.Steps[0])
		}
		w = w.Recognized()
		bad := others(w)[:rapid.IntRange(1, 3).Draw(t, "attackers")]
		id := rapid.SampledFrom([]string{"", "244.0.0.1", "244.0.0.9", "9.9.9.9"}).Draw(t, "id")
		w = attack(w, bad, id, rapid.SampledFrom([]string{"", "2", "7", rr.SpineValue}).Draw(t, "group"))
		for range 2 {
			var done []rr.Step
			w, done = carryOut(t, w, safe(t))
			for _, s := range done {
				if rr.Is[rr.Demote](s) || slices.Contains(bad, s.Node()) {
					t.Fatalf("%s", s)
				}
			}
			if p := settledPlan(w); len(p.Refusals) > 0 || len(p.Steps) > 0 || len(w.Marked()) != min(3, len(w.Nodes)-len(bad)) || w.Mesh.On ||
				p.Mode != v1alpha1.ModeFlat || !slices.Equal(foreignNodes(p), bad) {
				t.Fatalf("%+v %v %v, %s, foreign %v", p.Refusals, kinds(p.Steps), w.Marked(), p.Mode, p.Foreign)
			}
			w = withoutNodes(w, rapid.SampledFrom(w.Marked()).Draw(t, "dies"))
		}
		// Without a label the cluster ID alone stops nothing either, and is reported.
		p := settledPlan(with(w, func(n *rr.Node) { n.ClusterID = "244.0.0.1" }, others(w)[len(bad)]))
		if len(p.Refusals) > 0 || !slices.Contains(foreignNodes(p), others(w)[len(bad)]) {
			t.Fatalf("refusals %+v, foreign %+v", p.Refusals, p.Foreign)
		}
		w.Topology.DeletionTimestamp = &w.Topology.CreationTimestamp
		if w, _ = carryOut(t, w, nil); len(w.Marked()) > 0 || len(w.Topology.Status.Record.Reflectors) > 0 {
			t.Fatalf("in the end %v, %+v", w.Marked(), w.Topology.Status.Record)
		}
	})
}

// What was written on a reflector and altered is written again, with the group and the ID of the record, and nobody's word is waited for if it does not reflect
// to its clients any more. With another ID it does. No other reflector changes.
func TestAlteredMarksAreWrittenAgain(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	w = w.Recognized()
	const anotherID = "another cluster ID"
	for name, alter := range map[string]func(n *rr.Node){
		"another group": func(n *rr.Node) { n.Labels[v1alpha1.GroupLabel] = "57" },
		"a spine":       func(n *rr.Node) { n.Labels[v1alpha1.GroupLabel] = rr.SpineValue },
		anotherID:       func(n *rr.Node) { n.ClusterID = "9.9.9.9" },
		"no cluster ID": func(n *rr.Node) { n.ClusterID = "" },
		"no label":      func(n *rr.Node) { delete(n.Labels, v1alpha1.ReflectorLabel) },
		"the ID alone": func(n *rr.Node) {
			delete(n.Labels, v1alpha1.ReflectorLabel)
			delete(n.Labels, v1alpha1.GroupLabel)
		},
	} {
		for _, group := range []int{rr.FirstGroup, 2} {
			victim := rr.GroupOf(w.Working(nil), group)[0]
			altered := with(w, func(n *rr.Node) { n.Labels = maps.Clone(n.Labels); alter(n) }, victim.Name)
			unheard := altered
			unheard.Sightings = nil
			if p := MakePlan(unheard); (p.Waiting != "") != (name == anotherID) || (len(p.Witnesses) > 0) != (name == anotherID) ||
				len(p.Steps) == 0 || p.Steps[0].Node() != victim.Name {
				t.Errorf("%s of group %d: %v waits for %q, and asks %v", name, group, kinds(p.Steps), p.Waiting, p.Witnesses)
			}
			end, done := travel(t, altered, nil)
			if len(done) != 1 || !rr.Is[rr.Promote](done[0]) || done[0].Node() != victim.Name {
				t.Errorf("%s of group %d: %v", name, group, kinds(done))
			}
			if n, _ := end.Node(victim.Name); n.ClusterID != victim.ClusterID || n.Labels[v1alpha1.GroupLabel] != victim.Labels[v1alpha1.GroupLabel] {
				t.Errorf("%s of group %d: it has %s %v", name, group, n.ClusterID, n.Labels)
			}
		}
	}
}

// A reflector whose role is taken away again as soon as it is given back does not hold up another one's.
func TestAStrippedReflectorDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	w = w.Recognized()
	w = with(w, func(n *rr.Node) { n.ClusterID = "" }, w.Marked()[:3]...)
	first := MakePlan(w).Steps
	if len(first) != 3 {
		t.Fatalf("three have lost their cluster IDs: %v", kinds(first))
	}
	for i, want := range []int{0, 1, 2, 0} {
		p := MakePlan(w)
		if len(p.Steps) != 3 || p.Steps[0].Node() != first[want].Node() || p.Waiting != "" {
			t.Errorf("after %v: %v wait for %q, want %s first", w.Promoted, p.Steps, p.Waiting, first[want].Node())
		}
		w.Promoted = append(w.Promoted, first[min(i, 2)].Node())
	}
	// A promotion that makes a new reflector keeps its place, as it waits for the others' sessions.
	fresh, p := planned(cluster(9, 3))
	for len(p.Steps) > 0 && !rr.Is[rr.Promote](p.Steps[0]) {
		fresh, p = planned(After(fresh, p.Steps[0]))
	}
	fresh.Promoted = []string{p.Steps[0].Node()}
	if again := MakePlan(fresh); again.Steps[0].Node() != p.Steps[0].Node() {
		t.Errorf("%s goes before %s", again.Steps[0], p.Steps[0])
	}
}

// All reflectors of a group have other cluster IDs, and reflect all the same. They are given back theirs one after the other: each waits for the sessions of the
// one before.
func TestAGroupsAlteredIDsAreRestoredOneByOne(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	w = w.Recognized()
	var group []string
	for _, n := range rr.GroupOf(w.Working(nil), 2) {
		group = append(group, n.Name)
	}
	w = settled(with(w, func(n *rr.Node) { n.ClusterID = "9.9.9.9" }, group...))
	for i := range group {
		var p rr.Plan
		if w, p = planned(w); p.Waiting != "" || len(p.Steps) != len(group)-i || p.AtOnce != 1 ||
			!rr.Is[rr.Promote](p.Steps[0]) || !slices.Contains(group, p.Steps[0].Node()) {
			t.Fatalf("%d of %v are restored: %v, %d at once, wait for %q", i, group, kinds(p.Steps), p.AtOnce, p.Waiting)
		}
		restored := p.Steps[0].Node()
		if w = After(w, p.Steps[0]).Recognized(); i == len(group)-1 {
			break
		}
		w.Sightings = slices.DeleteFunc(slices.Clone(w.Sightings), func(s rr.Sighting) bool { return s.Node == restored })
		if p = MakePlan(w); !strings.Contains(p.Waiting, restored) || !slices.Contains(p.Witnesses, restored) {
			t.Errorf("just after %s was restored: %v wait for %q, and ask %v", restored, kinds(p.Steps), p.Waiting, p.Witnesses)
		}
	}
}

// Where there is no record, one is made of what an earlier version has written, and of nothing else.
func TestTheFirstRecord(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(9, 3), nil)
	honest := w.Marked()
	bad := others(w)[0]
	w = attack(w, []string{bad}, "244.0.0.1", "")
	w.Topology.Status.Record = nil
	shown := func(w *rr.World, names ...string) {
		for _, name := range names {
			w.Topology.Status.Reflectors = append(w.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Role: string(rr.RoleReflector)})
		}
	}
	everybody := slices.Sorted(slices.Values(append(slices.Clone(honest), bad)))
	for name, c := range map[string]struct {
		change func(w *rr.World)
		want   []string
	}{
		"the status names the reflectors":            {func(w *rr.World) { shown(w, honest...) }, honest},
		"the status is lost, and there are BGPPeers": {func(*rr.World) {}, everybody},
		"nothing has begun":                          {func(w *rr.World) { w.Peers = nil }, nil},
		"it comes from a file":                       {func(w *rr.World) { w.Peers, w.Topology.UID = nil, "" }, everybody},
		"there is a record":                          {func(w *rr.World) { w.Topology.Status.Record = &v1alpha1.Record{}; shown(w, honest...) }, nil},
	} {
		v := w
		c.change(&v)
		p := MakePlan(v)
		var got []string
		for _, e := range p.Record.Reflectors {
			got = append(got, e.Node)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// It is stable: the next plan has the same.
		v.Topology.Status.Record = p.Record
		if diff := cmp.Diff(p.Record, MakePlan(v).Record); diff != "" {
			t.Errorf("%s, again: %s", name, diff)
		}
	}
}

// An entry without a label goes, unless its node is about to be labeled; and an entry of another object of the same name is none.
func TestStaleEntries(t *testing.T) {
	t.Parallel()
	w, p := planned(cluster(9, 3))
	var promote rr.Step
	for _, s := range p.Steps {
		if rr.Is[rr.Promote](s) {
			promote = s
			break
		}
	}
	for len(p.Steps) > 0 && !rr.Is[rr.Promote](p.Steps[0]) {
		w, p = planned(After(w, p.Steps[0]))
	}
	w.Topology.Status.Record = rr.Recorded(w.Topology.Status.Record, promote)
	if p = MakePlan(w); len(p.Stale) > 0 || !rr.Is[rr.Promote](p.Steps[0]) || p.Steps[0].Node() != promote.Node() {
		t.Errorf("the entry of %s: %v, %v", promote.Node(), p.Stale, kinds(p.Steps))
	}
	other := w.Nodes[slices.IndexFunc(w.Nodes, func(n rr.Node) bool {
		return !slices.ContainsFunc(p.Reflectors, func(r rr.Reflector) bool { return r.Node == n.Name })
	})]
	w.Topology.Status.Record = rr.Recorded(w.Topology.Status.Record, promotion(&w, &other))
	if p = MakePlan(w); !slices.Equal(p.Stale, []string{other.Name}) {
		t.Errorf("stale are %v, want %s", p.Stale, other.Name)
	}
	w = After(w, promotion(&w, &other))
	if !slices.Contains(w.Marked(), other.Name) {
		t.Fatalf("%s is none", other.Name)
	}
	w = with(w, func(n *rr.Node) { n.UID = "made again" }, other.Name).Recognized()
	if slices.Contains(w.Marked(), other.Name) {
		t.Error("a Node that was made again has the entry of the old one")
	}
	// With Calico's etcd the label is the Calico Node's, and a new machine under it changes nothing.
	w = with(w, func(n *rr.Node) { n.UID = "uid-" + other.Name + ".machine" }, other.Name).Recognized()
	if !slices.Contains(w.Marked(), other.Name) {
		t.Error("the Calico Node has lost its entry")
	}
}

// A node that another topology has as its reflector is another topology's only if that one says so.
func TestMarksOfOtherTopologies(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	w.Nodes[0].Labels[v1alpha1.ReflectorLabel] = "other"
	w.Others = []v1alpha1.RouteReflectorTopology{{}}
	w.Others[0].Name = "other"
	for want, record := range map[bool]*v1alpha1.Record{
		true:  {},
		false: {Reflectors: []v1alpha1.RecordedReflector{{Node: w.Nodes[0].Name, UID: w.Nodes[0].UID, Group: "1"}}},
	} {
		w.Others[0].Status.Record = record
		if n := w.Recognized().Nodes[0]; n.ForeignMark != want || n.Written != nil {
			t.Errorf("%+v: foreign %t, written %v", record, n.ForeignMark, n.Written)
		}
	}
	if got := fmt.Sprint(MakePlan(w).Foreign); got != "[]" {
		t.Errorf("it is the other topology's to report: %s", got)
	}
}

// A kubelet that rewrites the labels of its Node as a client is in another group, or on the way to one, and moves nobody else: no label of another client is
// written, no reflector changes, and one that is cordoned is replaced although the session that the forged move would need never comes up.
func TestForgedLabelsOfAClientMoveNobodyElse(t *testing.T) {
	t.Parallel()
	w, _ := travel(t, inTheEnd(limited(24, 2, 12)), nil)
	w = w.Recognized()
	hostile, reflectors := others(w)[0], w.Marked()
	n, _ := w.Node(hostile)
	other := map[string]string{"1": "2", "2": "1"}[n.Labels[v1alpha1.ClientLabel]]
	mute := func(w rr.World) rr.World { return apart(w, hostile) }
	for name, labels := range map[string]map[string]string{
		"joins the other group":     {v1alpha1.JoinsLabel: other},
		"is in the other group":     {v1alpha1.ClientLabel: other},
		"joins a group of no one":   {v1alpha1.JoinsLabel: "57"},
		"is in a group of no one":   {v1alpha1.ClientLabel: "57"},
		"joins the spines":          {v1alpha1.JoinsLabel: rr.SpineValue},
		"is and joins what is none": {v1alpha1.ClientLabel: "x", v1alpha1.JoinsLabel: "-1"},
	} {
		forged := with(w, func(n *rr.Node) { n.Labels = maps.Clone(n.Labels); maps.Copy(n.Labels, labels) }, hostile)
		forged = settled(forged)
		for _, step := range MakePlan(mute(forged)).Steps {
			if step.Node() != hostile {
				t.Errorf("it %s: %s", name, step)
			}
		}
		cordoned, demoted := with(forged, cordon, reflectors[0]), false
		for range 50 {
			cordoned = mute(settled(cordoned))
			p := MakePlan(cordoned)
			if p.Waiting != "" || len(p.Steps) == 0 {
				t.Fatalf("it %s, and %s is cordoned: %v waits for %q", name, reflectors[0], kinds(p.Steps), p.Waiting)
			}
			step := p.Steps[0]
			if demoted = rr.Is[rr.Demote](step) && step.Node() == reflectors[0]; !demoted && !rr.Is[rr.Promote](step) && step.Node() != hostile {
				t.Fatalf("it %s, and %s is cordoned: %s", name, reflectors[0], step)
			}
			if demoted {
				break
			}
			cordoned = After(cordoned, step)
		}
		if !demoted {
			t.Errorf("it %s, and %s is cordoned, and never demoted", name, reflectors[0])
		}
	}
}
