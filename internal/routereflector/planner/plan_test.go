// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// The order that loses nothing: BGPPeers, reflectors one at a time, the mesh last.
func TestEnableOnARunningMesh(t *testing.T) {
	t.Parallel()
	w, done := carryOut(t, cluster(10, 3), nil)
	got := kinds(done)
	slices.Sort(got[2:5])
	if len(got) != 6 || got[0] != "EnsurePeer BGPPeer/main-clients" || got[1] != "EnsurePeer BGPPeer/main-reflectors" || got[5] != "MeshOff BGPConfiguration/default" {
		t.Fatalf("%v", got)
	}
	p := MakePlan(w)
	zones := map[string]int{}
	for _, r := range p.Reflectors {
		zones[r.Zone]++
		if r.Role != rr.RoleReflector {
			t.Errorf("%+v", r)
		}
	}
	if diff := cmp.Diff(map[string]int{"zone-0": 1, "zone-1": 1, "zone-2": 1}, zones); diff != "" {
		t.Error(diff)
	}
	if want := (rr.Checks{MinSessionsPerClient: 3, MaxPathsPerPrefix: 3}); p.Checks.UnreachablePairs != 0 || p.Checks.MinSessionsPerClient != want.MinSessionsPerClient ||
		p.Checks.MaxPathsPerPrefix != want.MaxPathsPerPrefix {
		t.Errorf("%+v", p.Checks)
	}
}

func TestPeers(t *testing.T) {
	t.Parallel()
	w := cluster(1, 1)
	w.Topology.Spec.ClientSelector = metav1.LabelSelector{
		MatchLabels:      map[string]string{"b": "2", "a": "1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"y", "x"}}, {Key: "gpu", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
	got := map[string]string{}
	for _, p := range rr.WantedPeers(w.Topology) {
		got[p.Name] = p.NodeSelector + " -> " + p.PeerSelector
	}
	want := map[string]string{
		"main-clients":    "a == '1' && b == '2' && pool in {'x', 'y'} && !has(gpu) && !has(bgp.mooring.dev/reflector) -> bgp.mooring.dev/reflector == 'main'",
		"main-reflectors": "bgp.mooring.dev/reflector == 'main' -> bgp.mooring.dev/reflector == 'main'",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A step waits for the reports of all reflectors that are to stay, and for the sessions of each with all clients and
// with each other: what one said a moment before, as a member of the mesh, is not a response. The mesh waits for
// clients that nobody samples and for those of another AS as well, and what somebody else's reflectors are adopted from
// does not go before the sessions of the topology's own are seen. Who is waited for is asked.
func TestStepsWait(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	for range 2 { // two BGPPeers
		w = After(settled(w), settledPlan(w).Steps[0])
	}
	before := settled(w)
	first := MakePlan(before).Steps[0].Node()
	w = After(before, MakePlan(before).Steps[0])
	silent, member, all := w, w, settled(w)
	silent.Sightings, member.Sightings = nil, []rr.Sighting{say(before, first, networks(before), false)}
	client := others(w)[0]

	four, _ := carryOut(t, cluster(9, 3), nil)
	four.Topology.Spec.Redundancy = new(int32(4))
	four = settled(four)
	reflectors, parted := four.Marked(), four
	for _, name := range reflectors {
		parted = apart(parted, name)
	}

	last := beforeMeshOff(t, 12, 3)
	p := MakePlan(last)
	unsampled := slices.DeleteFunc(others(last), func(name string) bool { return slices.Contains(p.Samples, name) })[0]

	asked := p.Reflectors[1].Node

	foreign, p2 := planned(with(cluster(9, 3), otherAS, "node-00008"))
	for !rr.Is[rr.MeshOff](p2.Steps[0]) {
		foreign, p2 = planned(After(foreign, p2.Steps[0]))
	}

	retiring := redundant(handMade(cluster(5, 1), 2), 2)
	for range 4 {
		retiring = After(retiring, MakePlan(retiring).Steps[0])
	}
	lacks := func(reflector, nodes string) string {
		return "reflector " + reflector + " has no Established session with " + nodes
	}
	for name, c := range map[string]struct {
		w    rr.World
		want string
	}{
		"somebody's BGPPeer, and no report": {retiring, "reflector node-00000 has not reported its sessions"},
		"somebody's BGPPeer, and a session is down": {
			apart(settled(retiring), "node-00004", "node-00000"), lacks("node-00000", "node-00004"),
		},
		"somebody's BGPPeer, and nobody lives": {
			with(retiring, silentSince(retiring.Now), retiring.Marked()...), "no reflector of this topology is Ready",
		},
		"somebody's BGPPeer, and all sessions": {settled(retiring), ""},
		"what it said as a member of the mesh": {member, lacks(first, "")},
		"no report":                            {silent, "reflector " + first + " has not reported its sessions"},
		"all sessions":                         {all, ""},
		"one is lacking":                       {apart(all, client, first), lacks(first, client)},
		"an old report": {
			said(all, first, func(s *rr.Sighting) { s.At = w.Now.Add(-rr.Freshness - time.Second) }),
			"reflector " + first + " has not reported its sessions",
		},
		"all sessions of three":            {four, ""},
		"three without each other":         {parted, lacks(reflectors[0], reflectors[1]+", "+reflectors[2])},
		"a client that nobody samples":     {apart(last, unsampled, asked), lacks(asked, unsampled)},
		"a node of another AS":             {apart(foreign, "node-00008"), lacks(foreign.Marked()[0], "node-00008")},
		"and when it has all its sessions": {foreign, ""},
	} {
		if p := MakePlan(c.w); len(p.Steps) == 0 || (p.Waiting == "") != (c.want == "") || !strings.HasPrefix(p.Waiting, c.want) {
			t.Errorf("%s: %v waits for %q, want %q", name, kinds(p.Steps), p.Waiting, c.want)
		} else if of, is := strings.CutPrefix(c.want, "reflector "); is && !slices.Contains(p.Witnesses, strings.Fields(of)[0]) {
			t.Errorf("%s: it waits for %q, and asks %v", name, p.Waiting, p.Witnesses)
		}
	}
}

// The order of the writes that follow from a change, with nothing but those that it needs: at the end the mesh comes
// first, and where options of sessions change, which resets them, it carries the clients meanwhile.
func TestWhatAChangeCosts(t *testing.T) {
	t.Parallel()
	silent := func(count int, longer time.Duration) func(*rr.World) {
		return func(w *rr.World) {
			*w = with(*w, silentSince(w.Now), w.Marked()[:count]...)
			w.Now = w.Now.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration + longer)
		}
	}
	for name, c := range map[string]struct {
		change func(w *rr.World)
		want   string
	}{
		"it is deleted": {
			func(w *rr.World) { w.Topology.DeletionTimestamp = new(metav1.NewTime(w.Now)) }, "MeshOn Demote Demote Demote RemovePeer RemovePeer",
		},
		"options of sessions": {
			func(w *rr.World) { w.Topology.Spec.Session.MaxRestartTime = &metav1.Duration{Duration: time.Minute} },
			"MeshOn Demote Demote Demote EnsurePeer EnsurePeer Promote Promote Promote MeshOff",
		},
		"nodes that are new": {func(w *rr.World) {
			for i := range 20 {
				w.Nodes = append(w.Nodes, machine(100+i, 3))
			}
		}, ""},
		"a reflector's Node is gone":      {func(w *rr.World) { *w = withoutNodes(*w, w.Marked()[1]) }, "Promote"},
		"one is silent, within its grace": {silent(1, -time.Second), ""},
		"one is silent, and beyond it":    {silent(1, 0), "Promote Demote"},
		"two are silent, one lives":       {silent(2, 0), "Promote Promote Demote Demote"},
		"one is cordoned":                 {func(w *rr.World) { *w = with(*w, cordon, w.Marked()[0]) }, "Promote Demote"},
		"one is cordoned, and is to stay": {func(w *rr.World) { *w = with(*w, keep, w.Marked()[0]) }, ""},
		"all reflectors' Nodes are gone, and no node has been Ready for long": {func(w *rr.World) {
			for _, name := range w.Marked() {
				is := v1alpha1.ReflectorStatus{Node: name, Role: string(rr.RoleReflector)}
				w.Topology.Status.Reflectors = append(w.Topology.Status.Reflectors, is)
			}
			*w = withoutNodes(*w, w.Marked()...)
			w.Topology.Spec.Failure.Stabilization = &metav1.Duration{Duration: 24 * time.Hour}
		}, "MeshOn Promote Promote Promote MeshOff"},
		"clients are of three zones, then": {func(w *rr.World) {
			for i := range w.Nodes {
				w.Nodes[i].Labels[zoneLabel] = fmt.Sprintf("zone-%d", rr.Count(!w.Nodes[i].Marked(&w.Topology))*(1+i%2))
			}
		}, "Promote Promote Demote Demote"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := carryOut(t, spareless(cluster(9, 3)), nil)
			before := w.Marked()
			c.change(&w)
			w, done := carryOut(t, w, func(_, _ rr.World, p rr.Plan) {
				if p.AtOnce != 1 && p.Emergency == nil {
					t.Errorf("%d at once of %v", p.AtOnce, kinds(p.Steps))
				}
			})
			if got := order(done); got != c.want {
				t.Errorf("%v", kinds(done))
			}
			for _, s := range done {
				was, again := slices.Contains(before, s.Node()), strings.Contains(c.want, "EnsurePeer")
				if rr.Is[rr.Demote](s) && !was || rr.Is[rr.Promote](s) && was && !again {
					t.Errorf("the reflectors were %v: %s", before, s)
				}
			}
			switch p := settledPlan(w); {
			case w.Topology.DeletionTimestamp != nil:
				if len(w.Peers) != 0 || len(w.Marked()) != 0 || !w.Mesh.On {
					t.Errorf("something is left: %+v", w.Peers)
				}
			case p.Checks.UnreachablePairs != 0 || p.Checks.MinSessionsPerClient < 2 || w.Mesh.On || len(p.Refusals) > 0:
				t.Errorf("afterwards %+v, %+v", p.Checks, p.Refusals)
			default:
				if peer, _ := w.Peer("main-clients"); w.Topology.Spec.Session.MaxRestartTime != nil && peer.MaxRestartSeconds != 60 {
					t.Errorf("%+v", peer)
				}
			}
		})
	}
	observed, _ := carryOut(t, cluster(6, 1), nil)
	observed.Topology.Spec.Session.MaxRestartTime, observed.Topology.Spec.Mesh = &metav1.Duration{Duration: time.Minute}, v1alpha1.MeshObserve
	if p := settledPlan(observed); len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonSessionOptions {
		t.Errorf("%+v", p.Refusals)
	}
}

// keep cordons a node that its annotation keeps in its role.
func keep(n *rr.Node) {
	n.Unschedulable, n.Annotations = true, map[string]string{v1alpha1.KeepAnnotation: ""}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	older := v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: defaults()}
	older.Spec.ClusterID = "244.0.0.2"
	older.CreationTimestamp = metav1.NewTime(epoch().Add(-time.Hour))
	for name, c := range map[string]struct {
		change func(*rr.World)
		want   string
	}{
		"paused":    {func(w *rr.World) { w.Topology.Spec.Paused = true }, "Paused: spec.paused is true; set it to false to go on"},
		"datastore": {func(w *rr.World) { w.DatastoreReady = false }, "DatastoreNotReady: Calico's ClusterInformation says datastoreReady=false: its datastore is being migrated or upgraded and must not be written to"},
		"hierarchy": {func(w *rr.World) { w.Topology.Spec.Mode = v1alpha1.ModeHierarchical }, "HierarchyNotPossible: spec.mode Hierarchical: 4 nodes ask for 2 groups of 2 reflectors each and 2 spines, and only 4 nodes may be reflectors; use Auto, or let more nodes be reflectors"},
		"id":        {func(w *rr.World) { w.Topology.Spec.ClusterID = "fd00::1" }, `InvalidClusterID: spec.clusterID "fd00::1": must be an IPv4 address other than 0.0.0.0, such as 244.0.0.1`},
		"per zone": {
			func(w *rr.World) {
				w.Topology.Spec.Sizing.PerZone, w.Topology.Spec.TopologyKeys = &v1alpha1.PerZone{Min: 1, Max: 1, RatioPermille: 1}, nil
			},
			"InvalidSizing: spec.sizing.perZone: needs spec.topologyKeys, whose first key names the zones",
		},
		"value with a quote": {
			func(w *rr.World) {
				w.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"a": "x') || all() || has('y"}
			},
			`InvalidSelector: spec.clientSelector.matchLabels: Invalid value: "x') || all() || has('y": a valid label must be an empty string or consist of alphanumeric characters, ` +
				`'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is ` +
				`'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'); correct it`,
		},
		"key that closes": {
			func(w *rr.World) {
				w.Topology.Spec.ClientSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x) || all() || has(y", Operator: metav1.LabelSelectorOpExists}}
			},
			`InvalidSelector: spec.clientSelector.matchExpressions[0].key: Invalid value: "x) || all() || has(y": name part must consist of alphanumeric characters, '-', '_' or '.', ` +
				`and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'); correct it`,
		},
		"In without values": {
			func(w *rr.World) {
				w.Topology.Spec.Reflectors.Excluded = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn}}}
			},
			"InvalidSelector: spec.reflectors.excluded.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'; correct it",
		},
		"unknown operator": {
			func(w *rr.World) {
				w.Topology.Spec.Reflectors.Preferred = []v1alpha1.WeightedSelector{{Weight: 1, Selector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}}}
			},
			`InvalidSelector: spec.reflectors.preferred[0].selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator; correct it`,
		},
		"id taken": {
			func(w *rr.World) { w.Nodes[1].ClusterID = "244.0.0.1" },
			"ClusterIDTaken: spec.clusterID 244.0.0.1: Node node-00001 has it already, and clients that share no reflector would not reach each other; choose another",
		},
		"overlap": {
			func(w *rr.World) { w.Others = append(w.Others, older) },
			"OverlappingTopology: RouteReflectorTopology first is older and has clients of this one, such as Node node-00000; make their spec.clientSelector disjoint",
		},
		"foreign peer": {
			func(w *rr.World) { w.Peers = []rr.Peer{{Name: "main-clients"}} },
			"ForeignObject: BGPPeer main-clients exists and is not this topology's (label bgp.mooring.dev/topology); rename it, delete it, or rename the topology",
		},
		"nobody": {
			func(w *rr.World) {
				w.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"no": "body"}
			},
			"NoClients: spec.clientSelector selects no node on which calico-node has set BGP up",
		},
		"no reflectors": {
			func(w *rr.World) {
				w.Topology.Spec.Reflectors.Required.MatchLabels = map[string]string{"no": "body"}
				w.Nodes[0].Labels[corev1.LabelOSStable] = "windows"
			},
			"NoEligibleReflectors: no node may be a reflector: of the other nodes 1 because it runs Windows, where Calico has no BIRD, 3 because spec.reflectors.required does not select it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := cluster(4, 1)
			c.change(&w)
			refuses(t, w, c.want)
		})
	}
}

// refuses checks that a plan has no steps and one refusal, of which this is the reason and the message.
func refuses(t *testing.T, w rr.World, want string) {
	t.Helper()
	p := MakePlan(w)
	if len(p.Refusals) != 1 || string(p.Refusals[0].Reason)+": "+p.Refusals[0].Message != want || len(p.Steps) > 0 {
		t.Errorf("%+v, %v, want\n%s", p.Refusals, kinds(p.Steps), want)
	}
}
