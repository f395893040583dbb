// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// halfway is a hierarchy that was being made and shall be flat again, with the mesh still on: a reflector of the first group, a spine, a reflector of the
// second group that is not Ready, two clients, one of each group, and nodes without a label.
func halfway() rr.World {
	w := limited(8, 1, 20)
	w.Topology.Spec.Mode = v1alpha1.ModeFlat
	w.Peers = rr.HierarchyPeers(w.Topology, []int{rr.FirstGroup, 2}, rr.FirstGroup)
	for i, is := range []struct{ group, id, client string }{{"", "244.0.0.1", ""}, {rr.SpineValue, "244.0.0.2", ""}, {"2", "244.0.0.3", ""}, {client: "2"}, {client: "1"}} {
		n := &w.Nodes[i]
		for key, value := range map[string]string{v1alpha1.GroupLabel: is.group, v1alpha1.ClientLabel: is.client} {
			if value != "" {
				n.Labels[key] = value
			}
		}
		if n.ClusterID = is.id; is.id != "" {
			n.Labels[v1alpha1.ReflectorLabel] = w.Topology.Name
		}
		n.Workloads = rr.Count(i == 3) // so that another one is promoted
	}
	w.Nodes[2].Ready = corev1.ConditionUnknown
	w.Nodes[2].ReadySince = w.Now
	return w
}

// A node that becomes a reflector leaves the mesh. A client whose group has no working reflector, so that the mesh alone carries it, is given sessions with
// another group before.
func TestAPromotionStrandsNobody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *rr.World)
		want   string
	}{
		"its reflector is silent": {func(*rr.World) {}, "Join Node/node-00003"},
		"its reflector is gone":   {func(w *rr.World) { w.Nodes = slices.Delete(w.Nodes, 2, 3) }, "Assign Node/node-00003"},
		"no reflector of a wanted group works": {
			func(w *rr.World) {
				w.Nodes[0].Ready, w.Nodes[0].ReadySince = corev1.ConditionUnknown, w.Now.Add(-time.Hour)
			}, "Join Node/node-00003",
		},
		"it has no label, and its group takes those": {
			func(w *rr.World) {
				delete(w.Nodes[3].Labels, v1alpha1.ClientLabel)
				w.Peers = rr.HierarchyPeers(w.Topology, []int{rr.FirstGroup, 2}, 2)
				for i := 5; i < len(w.Nodes); i++ {
					w.Nodes[i].Labels[v1alpha1.ClientLabel] = "1"
				}
			}, "Join Node/node-00003",
		},
		"the next reflector of its group is made": {
			func(w *rr.World) {
				w.Nodes[3].Labels[v1alpha1.ClientLabel] = "1"
				w.Nodes = slices.Delete(w.Nodes, 0, 1)
			}, "",
		},
		"its reflector works":  {func(w *rr.World) { w.Nodes[2].Ready = corev1.ConditionTrue }, ""},
		"it is not Ready":      {func(w *rr.World) { w.Nodes[3].Ready = corev1.ConditionUnknown }, ""},
		"the mesh is off":      {func(w *rr.World) { w.Mesh.On = false }, ""},
		"it is in both groups": {func(w *rr.World) { w.Nodes[3].Labels[v1alpha1.JoinsLabel] = "1" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := halfway()
			c.change(&w)
			w, p := planned(w)
			if len(p.Refusals) > 0 || len(p.Steps) == 0 {
				t.Fatalf("%+v, steps %v", p.Refusals, p.Steps)
			}
			first, got := p.Steps[0], kinds(p.Steps[:1])[0]
			if c.want == "" && !rr.Is[rr.Promote](first) || c.want != "" && got != c.want {
				t.Fatalf("the first step is %s, want %q", first, c.want)
			}
			change, _ := first.Change()
			if _, ok := change.Labels[v1alpha1.ReflectorLabel]; ok != rr.Is[rr.Promote](first) {
				t.Errorf("%v", change.Labels)
			}
			travel(t, w, guarded(t, 1))
		})
	}
}

// A reflector that is demoted is a client without a label. If no reflector of the group that takes those lives, or can be made, another group takes them
// before; if the reflector is silent and may come back, the demoted one alone is labeled with another group.
func TestADemotedReflectorFindsAGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ill    func(n *rr.Node, now time.Time)
		before string
		label  *string
	}{
		"the reflector of the open group speaks no BGP": {
			ill: func(n *rr.Node, _ time.Time) { n.Labels[corev1.LabelOSStable] = "windows" }, before: "BGPPeer/main-clients",
		},
		"it is lost": {
			ill: func(n *rr.Node, now time.Time) {
				n.Ready, n.ReadySince = corev1.ConditionUnknown, now.Add(-time.Hour)
				n.Taints = []corev1.Taint{{Key: rr.ShutdownTaint}}
			}, before: "BGPPeer/main-clients",
		},
		"it is silent": {
			ill: func(n *rr.Node, now time.Time) { n.Ready, n.ReadySince = corev1.ConditionUnknown, now }, label: new("1"),
		},
		"it works": {ill: func(*rr.Node, time.Time) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := limited(7, 1, 3)
			w.Mesh.On = false
			w.Peers = rr.HierarchyPeers(w.Topology, []int{rr.FirstGroup, 2}, 2)
			for i, is := range []struct{ group, id string }{{"2", "244.0.0.3"}, {rr.SpineValue, "244.0.0.2"}, {rr.SpineValue, "244.0.0.2"}, {"", "244.0.0.1"}, {"", "244.0.0.1"}, {"", "244.0.0.1"}} {
				n := &w.Nodes[i]
				n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = w.Topology.Name, is.id
				if is.group != "" {
					n.Labels[v1alpha1.GroupLabel] = is.group
				}
			}
			w.Nodes[6].Labels[v1alpha1.ClientLabel], w.Nodes[6].Unschedulable = "1", true
			c.ill(&w.Nodes[0], w.Now)
			w, p := planned(w)
			at := slices.IndexFunc(p.Steps, func(s rr.Step) bool { return rr.Is[rr.Demote](s) && s.Node() != w.Nodes[0].Name })
			if len(p.Refusals) > 0 || at < 0 {
				t.Fatalf("%+v, steps %v", p.Refusals, kinds(p.Steps))
			}
			if before := kinds(p.Steps[:at]); c.before != "" && !slices.Contains(before, "EnsurePeer "+c.before) || c.before == "" && len(before) > 0 {
				t.Errorf("before the demotion: %v", before)
			}
			change, _ := p.Steps[at].Change()
			want := map[string]*string{v1alpha1.ReflectorLabel: nil}
			if c.label != nil {
				want[v1alpha1.ClientLabel] = c.label
			}
			if diff := cmp.Diff(want, change.Labels); diff != "" {
				t.Error(diff)
			}
			travel(t, w, guarded(t, 1))
		})
	}
}

// While all reflectors of a group are silent and may come back, the mesh stays on without a word of an unsafe step; it goes when they are back.
func TestTheMeshStaysForSilentReflectors(t *testing.T) {
	t.Parallel()
	w, done := carryOut(t, cluster(9, 3), nil)
	if !rr.Is[rr.MeshOff](done[len(done)-1]) {
		t.Fatalf("the last step is %s", done[len(done)-1])
	}
	w.Mesh.On = true
	all := w.Marked()
	silent := with(w, func(n *rr.Node) { n.Ready, n.ReadySince = corev1.ConditionUnknown, w.Now }, all...)
	if _, p := planned(silent); len(p.Refusals) > 0 || len(p.Steps) > 0 || len(p.Troubles) != 3 {
		t.Errorf("%+v, steps %v, troubles %v", p.Refusals, kinds(p.Steps), p.Troubles)
	}
	one := with(silent, func(n *rr.Node) { n.Ready = corev1.ConditionTrue }, all[0])
	if _, p := planned(one); len(p.Steps) != 1 || !rr.Is[rr.MeshOff](p.Steps[0]) {
		t.Errorf("with one back: %+v, steps %v", p.Refusals, kinds(p.Steps))
	}
}
