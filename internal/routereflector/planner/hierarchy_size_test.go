// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
)

// inTheEnd is a cluster as its plan would leave it: with the reflectors that are chosen, the BGPPeers that are wanted, the clients dealt
// out, and no mesh.
func inTheEnd(w rr.World) rr.World {
	chosen := choose.Choose(&w, design.Decide(&w))
	w.Peers, w.Mesh.On = design.FinalPeers(&w, chosen.Design), false
	groups, dealt := chosen.Design.Groups, 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		switch g, is := chosen.Groups[n.Name]; {
		case is:
			n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = w.Topology.Name, chosen.Design.IDs[g]
			if g != rr.FirstGroup {
				n.Labels[v1alpha1.GroupLabel] = rr.GroupName(g)
			}
		case len(groups) > 1:
			n.Labels[v1alpha1.ClientLabel] = rr.GroupName(groups[dealt%len(groups)])
			dealt++
		}
	}
	return w
}

// 5,000 nodes with the defaults: five groups, 12 reflectors, 13 BGPPeers, 1,000 sessions with clients for each at most, and 8 paths to a prefix at most.
func TestFiveThousandNodes(t *testing.T) {
	t.Parallel()
	w := cluster(5000, 3)
	enable := MakePlan(w)
	if len(enable.Refusals) > 0 || enable.Mode != v1alpha1.ModeHierarchical || len(enable.Groups) != 6 || len(enable.Reflectors) != 12 || len(enable.Peers) != 13 {
		t.Fatalf("%s with %d groups, %d reflectors, %d BGPPeers; %+v", enable.Mode, len(enable.Groups), len(enable.Reflectors), len(enable.Peers), enable.Refusals)
	}
	ids := map[string]bool{}
	for _, g := range enable.Groups {
		ids[g.ClusterID] = true
		zones := map[string]bool{}
		for _, r := range enable.Reflectors {
			if r.Group == g.Name {
				zones[r.Zone] = true
			}
		}
		if len(g.Reflectors) != 2 || len(zones) != 2 {
			t.Errorf("group %s has the reflectors %v in %d zones", g.Name, g.Reflectors, len(zones))
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d cluster IDs", len(ids))
	}
	w = inTheEnd(w)
	p := MakePlan(w)
	network := rr.AddressFamilies()[0].Network(w.Nodes, w.Peers, false)
	paths := network.Judge(func(i int32) bool {
		n := &w.Nodes[i]
		return n.Marked(&w.Topology) && n.Group() == rr.Spines
	}).MaxPaths
	if p.Checks.UnreachablePairs != 0 || paths != 8 || p.Checks.MinSessionsPerClient != 2 {
		t.Errorf("%d paths but to the spines, %+v", paths, p.Checks)
	}
	// What a spine announces comes to the other spine by each of the 10 reflectors, and so to everybody.
	if p.Checks.MaxPathsPerPrefix != 2*(2+4*2) {
		t.Errorf("%d paths to a spine", p.Checks.MaxPathsPerPrefix)
	}
	if len(p.Steps) != 0 || len(p.Refusals) != 0 {
		t.Errorf("%v %+v", p.Steps, p.Refusals)
	}
	most := 0
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.Marked(&w.Topology) {
			most = max(most, network.Sessions(int32(i)))
		}
	}
	if most > 1000+3 {
		t.Errorf("a reflector has %d sessions", most)
	}
	w.Nodes = append(w.Nodes, machine(5000, 3))
	if p := MakePlan(w); len(p.Steps) != 1 || !rr.Is[rr.Assign](p.Steps[0]) || p.Checks.UnreachablePairs != 0 {
		t.Errorf("for a new node: %v %+v", p.Steps, p.Checks)
	}
}

// When one group more is needed, no more clients move than must: at most as many as the new group's share. A bounded number of them is on the move at
// a time, and nobody else is touched.
func TestAGroupIsAdded(t *testing.T) {
	t.Parallel()
	for groups := 1; groups <= 5; groups++ {
		limit := 12
		nodes := groups*limit + 2*groups + 2
		if groups == 1 {
			nodes = limit + 3
		}
		w := inTheEnd(limited(nodes, 3, limit))
		if got := len(w.PresentGroups()); got != groups {
			t.Fatalf("%d groups for %d nodes, want %d", got, nodes, groups)
		}
		for i := range 3 {
			w.Nodes = append(w.Nodes, machine(9000+i, 3))
		}
		clients := w.Clients()
		joined, most := map[string]bool{}, 0
		w, done := travel(t, w, func(_, after rr.World, p rr.Plan) {
			if rr.Is[rr.Join](p.Steps[0]) {
				joined[p.Steps[0].Node()] = true
			}
			moving := 0
			for i := range after.Nodes {
				if _, joins := after.Nodes[i].Membership(); joins != rr.Nowhere {
					moving++
				}
			}
			most = max(most, moving)
		})
		share := rr.CeilDiv(clients, groups+1)
		t.Logf("from %d to %d groups: %d of %d clients move, %d writes", groups, groups+1, len(joined), clients, len(done))
		if len(joined) > share+1 || most > next.MaxJoining || len(w.PresentGroups()) != groups+1 {
			t.Errorf("%d clients moved to %d groups, the share is %d; up to %d at a time", len(joined), len(w.PresentGroups()), share, most)
		}
		bound := next.GroupCap(&w, w.Clients(), groups+1)
		for g, count := range clientsOf(w) {
			if count > bound {
				t.Errorf("%d groups: group %s has %d clients, more than %d: %v", groups+1, g, count, bound, clientsOf(w))
			}
		}
	}
}

// A group that is to go gives its clients away first, and the number of groups follows the number of nodes with hysteresis.
func TestAGroupIsRemoved(t *testing.T) {
	t.Parallel()
	w := inTheEnd(limited(38, 3, 10))
	if got := len(w.PresentGroups()); got != 3 {
		t.Fatalf("%d groups", got)
	}
	before := idsOf(w)
	fewer := func(count int) {
		clients := others(w)
		w = withoutNodes(w, clients[len(clients)-count:]...)
	}
	fewer(8) // 22 clients; 24 would fit into three groups of eight each, and 20 into two of ten
	if p := settledPlan(w); len(p.Groups) != 4 {
		t.Errorf("within the hysteresis: %+v", p.Groups)
	}
	fewer(7) // with two groups it is 17 clients, more than 16
	if p := settledPlan(w); len(p.Groups) != 4 {
		t.Errorf("within the hysteresis: %+v", p.Groups)
	}
	fewer(1)
	w, done := travel(t, w, guarded(t, 1))
	if got := idsOf(w); len(got) != 3 || got["1"] != before["1"] || got["spine"] != before["spine"] {
		t.Errorf("%v, before %v", got, before)
	}
	demoted := false
	for _, s := range done {
		if demoted = demoted || rr.Is[rr.Demote](s); demoted && (rr.Is[rr.Join](s) || rr.Is[rr.Leave](s)) {
			t.Errorf("%s after a reflector of the group has gone", s)
		}
	}
	if len(w.Peers) != 7 {
		t.Errorf("%v", peerNames(w))
	}
}

// What cannot be is refused, or said.
func TestHierarchyRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*rr.World)
		want   string
	}{
		"per zone": {
			func(w *rr.World) {
				w.Topology.Spec.Sizing.PerZone = &v1alpha1.PerZone{Min: 1, Max: 1, RatioPermille: 1}
			},
			"HierarchyNotPossible: spec.mode Hierarchical and spec.sizing.perZone: set one of them; perZone divides the reflectors of a flat topology among zones",
		},
		"range": {
			func(w *rr.World) { w.Topology.Spec.ClusterIDRange = "244.0.0.0/31" },
			`InvalidClusterID: spec.clusterIDRange "244.0.0.0/31": has no free address for group spine; make it larger`,
		},
		"session options": {
			func(w *rr.World) {
				*w = inTheEnd(*w)
				w.Topology.Spec.Session.MaxRestartTime = &metav1.Duration{Duration: 90e9}
			},
			"SessionOptionsChange: spec.session has changed, which would reset every session at once, and the mesh cannot carry the clients of a hierarchy meanwhile; change it back",
		},
		"foreign peer": {
			func(w *rr.World) { w.Peers = []rr.Peer{{Name: "main-uplinks"}} },
			"ForeignObject: BGPPeer main-uplinks exists and is not this topology's (label bgp.mooring.dev/topology); rename it, delete it, or rename the topology",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cluster(12, 2)
			w.Topology.Spec.Mode = v1alpha1.ModeHierarchical
			c.change(&w)
			refuses(t, w, c.want)
		})
	}
	w := limited(8, 1, 4)
	w.Topology.Spec.Reflectors.Required = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/hostname", Operator: metav1.LabelSelectorOpIn, Values: []string{"node-00000", "node-00001", "node-00002"}},
	}}
	want := "8 nodes ask for 2 groups of 2 reflectors each and 2 spines, and only 3 nodes may be reflectors"
	if p := MakePlan(w); p.Mode != v1alpha1.ModeFlat || len(p.Notes) == 0 || p.Notes[0] != (rr.Note{Kind: rr.NoteAdvice, Message: want}) || len(p.Refusals) > 0 {
		t.Errorf("%s %q %+v", p.Mode, p.Notes, p.Refusals)
	}
}

// Cluster IDs of further groups are the lowest that nobody has, and stay.
func TestClusterIDsOfGroups(t *testing.T) {
	t.Parallel()
	w := limited(30, 3, 8)
	other := v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: defaults()}
	other.Spec.ClusterID = "244.0.0.2"
	other.Spec.ClientSelector.MatchLabels = map[string]string{"no": "body"}
	w.Others = append(w.Others, other)
	w.Nodes = append(w.Nodes, machine(900, 1))
	w.Nodes[30].ClusterID = "244.0.0.4"
	want := fmt.Sprint(map[int]string{rr.Spines: "244.0.0.3", 1: "244.0.0.1", 2: "244.0.0.5", 3: "244.0.0.6"})
	if got := fmt.Sprint(design.Decide(&w).IDs); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w = inTheEnd(w)
	w.Topology.Spec.ClusterIDRange = "10.0.0.0/24"
	w.Others = nil
	if got := fmt.Sprint(design.Decide(&w).IDs); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
