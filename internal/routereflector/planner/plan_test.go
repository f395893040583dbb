// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
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

// A new node is selected by what is there already.
func TestANewNodeNeedsNoWrite(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(10, 3), nil)
	for i := 10; i < 30; i++ {
		w.Nodes = append(w.Nodes, machine(i, 3))
	}
	if p := MakePlan(settled(w)); len(p.Steps) != 0 || p.Checks.UnreachablePairs != 0 {
		t.Errorf("%v %+v", p.Steps, p.Checks)
	}
}

func TestADeadReflectorIsReplaced(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, spareless(cluster(10, 3)), nil)
	dead := w.Marked()[0]
	at := slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.Name == dead })
	w.Nodes[at].Ready, w.Nodes[at].ReadySince = corev1.ConditionUnknown, w.Now
	w.Now = w.Now.Add(59 * time.Second)
	if p := MakePlan(settled(w)); len(p.Steps) != 0 {
		t.Fatalf("within its grace period: %v", p.Steps)
	}
	w.Now = w.Now.Add(time.Second)
	talking := settled(w)
	for i := range talking.Sightings {
		talking.Sightings[i].Established[w.Nodes[at].IPv4] = true
	}
	if p := MakePlan(talking); len(p.Steps) != 0 {
		t.Fatalf("the others talk with it: %v", p.Steps)
	}
	silent := w
	silent.Sightings = nil
	if p := MakePlan(silent); len(p.Steps) != 0 {
		t.Fatalf("nobody was asked: %v", p.Steps)
	}
	_, done := carryOut(t, w, nil)
	if len(done) != 2 || done[0].Kind != rr.Promote || done[1].Kind != rr.Demote || done[1].Node != dead {
		t.Errorf("%v", kinds(done))
	}
}

func TestStepsWait(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	for range 2 { // two BGPPeers
		w = After(settled(w), MakePlan(settled(w)).Steps[0])
	}
	before := settled(w)
	promote := MakePlan(before).Steps[0]
	first := promote.Node
	w = After(before, promote)
	w.Sightings = []rr.Sighting{say(before, first, []*reachability.Network{rr.AddressFamilies()[0].Network(before.Nodes, before.Peers, true), rr.AddressFamilies()[1].Network(before.Nodes, before.Peers, true)}, false)}
	// What it said a moment before, as a member of the mesh, is not a response.
	if got := MakePlan(w).Waiting; !strings.HasPrefix(got, "reflector "+first+" has no Established session with ") {
		t.Errorf("%q", got)
	}
	w.Sightings = nil
	if got, want := MakePlan(w).Waiting, "reflector "+first+" has not reported its sessions"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w = settled(w)
	reflector := slices.IndexFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == first })
	var lacking string
	for _, n := range w.Nodes {
		if n.Name != first {
			delete(w.Sightings[reflector].Established, n.IPv4)
			lacking = n.Name
			break
		}
	}
	if got, want := MakePlan(w).Waiting, "reflector "+first+" has no Established session with "+lacking; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.Sightings[reflector].At = w.Now.Add(-rr.Freshness - time.Second)
	if got := MakePlan(w).Waiting; !strings.HasSuffix(got, "has not reported its sessions") {
		t.Errorf("an old sighting counts: %q", got)
	}
}

// The mesh stays on as long as somebody has no other way.
func TestTheMeshStaysForThoseWhoAreNoClients(t *testing.T) {
	t.Parallel()
	w := cluster(6, 1)
	w.Topology.Spec.ClientSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	for i := range 4 {
		w.Nodes[i].Labels["pool"] = "a"
	}
	w.Topology.Spec.Reflectors.Required = w.Topology.Spec.ClientSelector
	w, done := carryOut(t, w, nil)
	if !w.Mesh.On {
		t.Fatalf("%v", kinds(done))
	}
	p := MakePlan(w)
	if len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonUnsafe || !strings.HasPrefix(p.Refusals[0].Message,
		"Promote Node/") {
		t.Errorf("%+v", p.Refusals)
	}
}

func TestExit(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(8, 2), nil)
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp = &now
	w, done := carryOut(t, w, nil)
	if len(done) != 6 || done[0].Kind != rr.MeshOn || done[1].Kind != rr.Demote || done[5].Kind != rr.RemovePeer {
		t.Errorf("%v", kinds(done))
	}
	if len(w.Peers) != 0 || len(w.Marked()) != 0 || !w.Mesh.On {
		t.Errorf("something is left: %+v", w.Peers)
	}
}

// Options of sessions cannot change without resetting them, so the mesh takes over meanwhile.
func TestSessionOptionsChange(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(6, 1), nil)
	w.Topology.Spec.Session.MaxRestartTime = &metav1.Duration{Duration: time.Minute}
	observed := w
	observed.Topology.Spec.Mesh = v1alpha1.MeshObserve
	if p := MakePlan(settled(observed)); len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonSessionOptions {
		t.Errorf("%+v", p.Refusals)
	}
	w, done := carryOut(t, w, nil)
	var order []string
	for _, s := range done {
		order = append(order, string(s.Kind))
	}
	want := "MeshOn Demote Demote Demote EnsurePeer EnsurePeer Promote Promote Promote MeshOff"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("%s", got)
	}
	if p, _ := w.Peer("main-clients"); p.MaxRestartSeconds != 60 {
		t.Errorf("%+v", p)
	}
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
			p := MakePlan(w)
			if len(p.Steps) != 0 {
				t.Errorf("steps: %v", p.Steps)
			}
			if len(p.Refusals) != 1 || string(p.Refusals[0].Reason)+": "+p.Refusals[0].Message != c.want {
				t.Errorf("%+v, want\n%s", p.Refusals, c.want)
			}
		})
	}
}

func TestZonesCallForSpread(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(6, 1), nil)
	before := w.Marked()
	for i := 6; i < 12; i++ {
		n := machine(i, 1)
		n.Labels[zoneLabel] = []string{"zone-1", "zone-2"}[i%2]
		w.Nodes = append(w.Nodes, n)
	}
	w, done := carryOut(t, w, nil)
	kept := 0
	for _, n := range w.Marked() {
		if slices.Contains(before, n) {
			kept++
		}
	}
	if kept != 1 || len(done) != 4 {
		t.Errorf("%d reflectors stayed, %v", kept, kinds(done))
	}
}
