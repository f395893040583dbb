// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/topology"
)

const zone = "topology.kubernetes.io/zone"

// six are six nodes in two zones, of which n0 and n1 are reflectors, with a topology that wants two.
func six() routereflector.World {
	w := routereflector.World{Now: now, DatastoreReady: true, Mesh: routereflector.Mesh{On: true, Exists: true}, Confirmed: true}
	w.Topology.Name = "main"
	two := int32(2)
	w.Topology.Spec.Redundancy = &two
	v1alpha1.SetDefaults(&w.Topology)
	w.Topology.Status.Phase = v1alpha1.PhaseReady
	for i := range 6 {
		n := routereflector.Node{
			Name: fmt.Sprintf("n%d", i), UID: fmt.Sprintf("u%d", i), Labels: map[string]string{zone: string(rune('a' + i%2))}, Annotations: map[string]string{},
			Ready: corev1.ConditionTrue, ReadySince: now.Add(-24 * time.Hour), Created: now.Add(-24 * time.Hour),
			IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}),
		}
		if i < 2 {
			n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = "main", w.Topology.Spec.ClusterID
			w.Topology.Status.Reflectors = append(w.Topology.Status.Reflectors, v1alpha1.ReflectorStatus{
				Node: n.Name, Role: "Reflector", ClusterID: n.ClusterID, Clients: 4, Established: 4,
			})
		}
		w.Nodes = append(w.Nodes, n)
	}
	for _, step := range planner.MakePlan(w).Steps {
		if ensure, is := step.(routereflector.EnsurePeer); is {
			p := ensure.Peer
			p.NodeMatcher, p.PeerMatcher = matcher(p.NodeSelector), matcher(p.PeerSelector)
			w.Peers = append(w.Peers, p)
		}
	}
	return w
}

// matcher is a selector of Calico's.
func matcher(text string) routereflector.Matcher {
	m, err := selector.Parse(text)
	if err != nil {
		panic(err)
	}
	return m
}

// drawn is what is shown of the topology.
func drawn(w routereflector.World) topology.Map {
	var nodes []topology.Node
	for _, n := range w.Nodes {
		nodes = append(nodes, topology.Node{
			Name: n.Name, Labels: n.Labels, Speaks: n.IPv4.IsValid(), NotReady: n.Ready != corev1.ConditionTrue, ClusterID: n.ClusterID,
		})
	}
	maps, err := topology.Maps([]v1alpha1.RouteReflectorTopology{w.Topology}, nodes)
	if err != nil {
		panic(err)
	}
	return maps[0]
}

// seen explains one of the nodes.
func seen(w routereflector.World, name string) explain.Explanation {
	e := alive(name)
	e.Reflectors = explain.Reflectors{Topologies: []explain.Topology{{Seen: drawn(w), World: w, Plan: planner.MakePlan(w), Node: name}}}
	return explain.Node(e)
}

// Why a node is a reflector, or is not, and whose client it is; the reasons are the planner's.
func TestReflectorReasons(t *testing.T) {
	t.Parallel()
	says(t, seen(six(), "n0"), false,
		"role: reflector of the only group, in zone a, cluster ID 244.0.0.1: it is a reflector and suitable",
		"topology: Ready, as its operator says")
	silent(t, seen(six(), "n0"), "client")
	w := six()
	w.Nodes[0].Unschedulable = true // so that it leaves
	says(t, seen(w, "n3"), false, "role: not a reflector; it may be one, and there are enough others: n1, "+joining(w))
	e := seen(six(), "n3")
	says(t, e, false, "role: not a reflector; it may be one, and there are enough others: n0, n1",
		"client: of the only group, cluster ID 244.0.0.1, whose desired reflectors are n0, n1")
	silent(t, e, "pending", "cordoned", "keep")
	for name, c := range map[string]struct {
		change    func(w *routereflector.World, n *routereflector.Node)
		node      int
		attention bool
		want      []string
	}{
		"cordoned": {func(_ *routereflector.World, n *routereflector.Node) { n.Unschedulable = true }, 3, false, []string{
			"role: not a reflector, and it may not be one: it is cordoned",
			"cordoned: yes, so that it does not become a reflector, and an existing one is demoted when another can replace it"}},
		"a cordoned reflector": {func(_ *routereflector.World, n *routereflector.Node) { n.Unschedulable = true }, 0, true, []string{
			"!role: it will no longer be a reflector of the only group, in zone a, cluster ID 244.0.0.1: it is cordoned"}},
		"a cordoned reflector that is kept": {func(_ *routereflector.World, n *routereflector.Node) {
			n.Unschedulable, n.Annotations[v1alpha1.KeepAnnotation] = true, ""
		}, 0, false, []string{"cordoned: yes, and annotation bgp.mooring.dev/keep keeps a reflector anyway"}},
		"kept": {func(_ *routereflector.World, n *routereflector.Node) { n.Annotations[v1alpha1.KeepAnnotation] = "" }, 0, false, []string{
			"keep: annotation bgp.mooring.dev/keep: a reflector stays one as long as it is suitable"}},
		"excluded": {func(w *routereflector.World, n *routereflector.Node) {
			n.Labels["role"] = "db"
			w.Topology.Spec.Reflectors.Excluded = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "db"}}
		}, 3, false, []string{"role: not a reflector, and it may not be one: spec.reflectors.excluded selects it"}},
		"no client": {func(w *routereflector.World, n *routereflector.Node) {
			n.Labels["edge"] = "yes"
			w.Topology.Spec.ClientSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "edge", Operator: metav1.LabelSelectorOpDoesNotExist}}}
		}, 3, false, []string{"client: no: spec.clientSelector does not select it, or it does not run this cluster's BGP"}},
		"without BGP": {func(_ *routereflector.World, n *routereflector.Node) { n.IPv4 = netip.Addr{} }, 3, false, []string{
			"role: not a reflector, and it may not be one: calico-node has given it no BGP address", "client: no: calico-node has given it no BGP address"}},
		"with pods": {func(_ *routereflector.World, n *routereflector.Node) { n.Workloads = 4 }, 3, false, []string{"workloads: pods on it that no DaemonSet made: 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := six()
			c.change(&w, &w.Nodes[c.node])
			says(t, seen(w, w.Nodes[c.node].Name), c.attention, c.want...)
		})
	}
}

// joining is the node that is to become a reflector.
func joining(w routereflector.World) string {
	for _, r := range planner.MakePlan(w).Reflectors {
		if r.Role == routereflector.RoleJoining {
			return r.Node
		}
	}
	return "nobody"
}

// What is pending of a node, and what holds the whole topology back.
func TestReflectorSteps(t *testing.T) {
	t.Parallel()
	w := six()
	for i := range 2 {
		delete(w.Nodes[i].Labels, v1alpha1.ReflectorLabel)
		w.Nodes[i].ClusterID = ""
	}
	w.Topology.Status.Plan = &v1alpha1.PlanStatus{WaitingFor: "reflector n9 has not said anything"}
	plan := planner.MakePlan(w)
	var chosen, step string
	for i, s := range plan.Steps {
		if routereflector.Is[routereflector.Promote](s) {
			chosen, step = s.Node(), fmt.Sprintf("!pending: step %d of %d, Promote: %s", i+1, len(plan.Steps), s.What().Reason)
			break
		}
	}
	e := seen(w, chosen)
	says(t, e, true, step, "!waits: reflector n9 has not said anything", fmt.Sprintf("topology: steps to be done: %d, rollout mode Auto", len(plan.Steps)))
	golden(t, "node-joins", e)

	w = six()
	w.Topology.Spec.Paused = true
	says(t, seen(w, "n0"), false, "held back: spec.paused is true; set it to false to go on (Paused)")
	w = six()
	w.DatastoreReady = false
	w.Topology.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: "SessionTimeout", Message: "n1 is silent"}}
	says(t, seen(w, "n3"), true, "!found: Degraded is True, SessionTimeout: n1 is silent",
		"!held back: Calico's ClusterInformation says datastoreReady=false: its datastore is being migrated or upgraded and must not be written to (DatastoreNotReady)")
	// The operator's word that says the same is not repeated.
	w.Topology.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFrozen, Status: metav1.ConditionTrue, Reason: "DatastoreNotReady", Message: planner.MakePlan(w).Refusals[0].Message}}
	silent(t, seen(w, "n3"), "found")
	w = six()
	w.Topology.Status.Phase = ""
	says(t, seen(w, "n0"), true, "!found: its operator has not reported on it")
}

// A hierarchy has groups, between which a client moves; a node of no concern hears nothing of the topology's troubles.
func TestReflectorGroups(t *testing.T) {
	t.Parallel()
	w := six()
	t2 := explain.Topology{World: w, Node: "n3", Plan: routereflector.Plan{
		Reflectors: []routereflector.Reflector{{Node: "n0", Group: "2", Zone: "a", ClusterID: "244.0.0.3", Role: routereflector.RoleJoining, Reason: "because"}},
		Groups:     []routereflector.Group{{Name: "2", ClusterID: "244.0.0.3", Reflectors: []string{"n0", "n2", "n3", "n4", "n5", "n6", "n7"}}},
	}, Unread: []string{"BGPPeer x: no"}, PodsUncounted: "the cluster has more than 1000 Nodes"}
	t2.World.Peers = []routereflector.Peer{{
		Name: "main-clients", Topology: "main", PeerSpec: routereflector.PeerSpec{NodeSelector: "all()", PeerSelector: "no group that is known"},
	}}
	n := &t2.World.Nodes[3]
	n.Labels[v1alpha1.ClientLabel], n.Labels[v1alpha1.JoinsLabel] = "2", "3"
	e := alive("n3")
	e.Reflectors = explain.Reflectors{Topologies: []explain.Topology{t2}}
	says(t, explain.Node(e), true,
		"client: of group 2, cluster ID 244.0.0.3, whose desired reflectors are n0, n2, n3, n4, n5 and 2 more",
		"!client: it moves to group 3 (label bgp.mooring.dev/client-joins)", "!not read: BGPPeer x: no",
		"workloads: not counted, so that all nodes count as free of them: the cluster has more than 1000 Nodes",
	)
	delete(n.Labels, v1alpha1.ClientLabel)
	delete(n.Labels, v1alpha1.JoinsLabel)
	says(t, explain.Node(e), true, "client: of no group yet")
	t2.Node = "n0"
	e.Reflectors.Topologies[0] = t2
	says(t, explain.Node(e), true, "!role: it will become a reflector of group 2, in zone a, cluster ID 244.0.0.3: because")
	n.IPv4, t2.Node = netip.Addr{}, "n3"
	e.Reflectors.Topologies[0] = t2
	got := explain.Node(e)
	says(t, got, false)
	silent(t, got, "not read", "topology")
	t2.Node = "n99"
	e.Reflectors.Topologies[0] = t2
	says(t, explain.Node(e), false, "role: none: there is no such node")
	e.Machine.Verdict = finding.Agree
	e.Reflectors = explain.Reflectors{Side: finding.Side{Problem: "listing bgppeers: forbidden"}}
	says(t, explain.Node(e), true, "!plan: not known: listing bgppeers: forbidden")
}
