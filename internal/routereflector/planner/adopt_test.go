// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// oldLabel is the label of the upstream project's reflectors, handLabel that of Calico's documentation.
const (
	oldLabel  = "calico-route-reflector"
	handLabel = "route-reflector"
)

// matching is a Matcher.
type matching func(labels map[string]string) bool

func (m matching) Evaluate(labels map[string]string) bool { return m(labels) }

func valued(key, value string) matching {
	return func(labels map[string]string) bool { return labels[key] == value }
}

func having(key string, is bool) matching {
	return func(labels map[string]string) bool { _, has := labels[key]; return has == is }
}

// foreignPeer is somebody's BGPPeer, with the defaults of its options.
func foreignPeer(name string, from, to rr.Matcher) rr.Peer {
	return rr.Peer{Name: name, UID: "uid-" + name, ResourceVersion: "1", NodeMatcher: from, PeerMatcher: to, PeerSpec: rr.PeerSpec{SourceAddress: "UseNodeIP"}}
}

// reflect makes a node somebody's reflector.
func reflect(w rr.World, at int, key, value, id string) {
	n := &w.Nodes[at]
	n.Labels = maps.Clone(n.Labels)
	n.Labels[key], n.ClusterID = value, id
}

// handMade is a cluster with reflectors by Calico's documentation, and the mesh off.
func handMade(w rr.World, reflectors int) rr.World {
	w.Mesh = rr.Mesh{Exists: true}
	for i := range reflectors {
		reflect(w, i, handLabel, "true", "244.0.0.1")
	}
	everybody := matching(func(map[string]string) bool { return true })
	w.Peers = append(w.Peers, foreignPeer("peer-with-route-reflectors", everybody, valued(handLabel, "true")))
	return adopting(w, metav1.LabelSelector{MatchLabels: map[string]string{handLabel: "true"}}, "peer-with-route-reflectors")
}

// simple is a cluster as the upstream project's topology simple leaves it.
func simple(w rr.World, reflectors int) rr.World {
	w.Mesh = rr.Mesh{Exists: true}
	w.Topology.Spec.ClusterID = "224.0.0.0"
	for i := range reflectors {
		reflect(w, i, oldLabel, "", "224.0.0.0")
	}
	w.Peers = append(w.Peers, foreignPeer("rrs-to-rrs", having(oldLabel, true), having(oldLabel, true)),
		foreignPeer("peer-to-rrs-1", having(oldLabel, false), having(oldLabel, true)))
	return adopting(w, metav1.LabelSelector{MatchLabels: map[string]string{oldLabel: ""}}, "rrs-to-rrs", "peer-to-rrs-1")
}

// multi is a cluster as its topology multi leaves it: each reflector has an ID of its own, and each client a BGPPeer for each of up to three of them.
func multi(w rr.World, reflectors int) rr.World {
	w.Mesh = rr.Mesh{Exists: true}
	w.Topology.Spec.ClusterID = "224.0.0.1"
	for i := range reflectors {
		reflect(w, i, oldLabel, fmt.Sprint(i), fmt.Sprintf("224.0.0.%d", i+1))
	}
	w.Peers = append(w.Peers, foreignPeer("rrs-to-rrs", having(oldLabel, true), having(oldLabel, true)))
	for i := reflectors; i < len(w.Nodes); i++ {
		for k := range min(3, reflectors) {
			to := fmt.Sprint((i + k) % reflectors)
			w.Peers = append(w.Peers, foreignPeer(fmt.Sprintf("peer-to-rrs-%s-%s", to, w.Nodes[i].UID),
				valued("kubernetes.io/hostname", w.Nodes[i].Name), valued(oldLabel, to)))
		}
	}
	return adopting(w, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: oldLabel, Operator: metav1.LabelSelectorOpExists}}},
		"rrs-to-rrs", "peer-to-rrs-*")
}

func adopting(w rr.World, nodes metav1.LabelSelector, peers ...string) rr.World {
	w.Topology.Spec.Adopt = &v1alpha1.Adoption{Nodes: nodes, BGPPeers: peers}
	return w
}

func redundant(w rr.World, count int32) rr.World {
	w.Topology.Spec.Redundancy = &count
	return w
}

// sessions are all sessions of the cluster as confd would write them into bird.cfg: who, with whom, and whether as reflector and client.
func sessions(w rr.World) []string {
	var out []string
	for at, f := range rr.SpokenFamilies(w.Nodes) {
		network := f.Network(w.Nodes, w.Peers, w.Mesh.On)
		for a := range w.Nodes {
			for b := range w.Nodes {
				if a != b && network.Connected(int32(a), int32(b)) {
					x, y := w.Nodes[a], w.Nodes[b]
					out = append(out, fmt.Sprint(at, " ", x.Name, "-", y.Name, " ", x.ClusterID, " ", x.ClusterID != "" && y.ClusterID != x.ClusterID))
				}
			}
		}
	}
	return out
}

// Where the IDs allow it no session changes with any step: bird.cfg of every node stays as it is.
func TestAdoptWithoutAReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		world func(rr.World, int) rr.World
		want  []string
	}{
		"made by hand": {handMade, []string{
			"EnsurePeer BGPPeer/main-clients", "EnsurePeer BGPPeer/main-reflectors", "Adopt Node/node-00000", "Adopt Node/node-00001", "Adopt Node/node-00002",
			"RetirePeer BGPPeer/peer-with-route-reflectors",
		}},
		"the upstream project's simple": {simple, []string{
			"EnsurePeer BGPPeer/main-clients", "EnsurePeer BGPPeer/main-reflectors", "Adopt Node/node-00000", "Adopt Node/node-00001", "Adopt Node/node-00002",
			"RetirePeer BGPPeer/peer-to-rrs-1", "RetirePeer BGPPeer/rrs-to-rrs",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := c.world(cluster(9, 3), 3)
			somebody := foreignPeer("peer-to-rrs-17", having("rack", true), having("rack", true))
			w.Peers = append(w.Peers, somebody)
			before := sessions(w)
			if got := kinds(settledPlan(w).Steps); !slices.Equal(got, c.want) {
				t.Errorf("the plan shows %v", got)
			}
			after, done := carryOut(t, w, func(_, after rr.World, p rr.Plan) {
				if now := sessions(after); !slices.Equal(now, before) {
					t.Errorf("%s changes sessions: %v, were %v", p.Steps[0], now, before)
				}
			})
			if got := kinds(done); !slices.Equal(got, c.want) {
				t.Errorf("the steps are %v", got)
			}
			if !slices.ContainsFunc(after.Peers, func(p rr.Peer) bool { return p.Name == somebody.Name }) {
				t.Error("somebody's BGPPeer is gone, which is not named")
			}
			p := settledPlan(after)
			if len(p.Refusals) > 0 || !slices.Contains(rr.Messages(p.Notes), "nothing is left that spec.adopt names; take it out of the spec") {
				t.Errorf("at the end: %v, %v", p.Refusals, p.Notes)
			}
			// The way back: the old BGPPeers are there again, then the new ones and the labels go.
			after.Topology.Spec.Paused, after.Peers = true, append(after.Peers, w.Peers...)
			if now := sessions(after); !slices.Equal(now, before) {
				t.Errorf("with both sets of BGPPeers: %v, were %v", now, before)
			}
			after.Peers = w.Peers
			if now := sessions(after); !slices.Equal(now, before) {
				t.Errorf("on the way back: %v, were %v", now, before)
			}
		})
	}
}

// Of the upstream project's multi one reflector keeps its ID and the others take it over, one at a time; nobody else loses a path.
func TestAdoptMulti(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reflectors             int
		redundancy             int32
		adopt, promote, demote int
	}{
		{2, 2, 1, 1, 0}, {2, 3, 1, 2, 0}, {3, 3, 1, 2, 0}, {4, 4, 1, 3, 0}, {5, 3, 1, 2, 2}, {6, 6, 1, 5, 0}, {6, 3, 1, 2, 3},
	} {
		t.Run(fmt.Sprintf("%d to %d", c.reflectors, c.redundancy), func(t *testing.T) {
			t.Parallel()
			w := redundant(multi(cluster(11, 3), c.reflectors), c.redundancy)
			most, first := 0, settledPlan(w)
			after, done := carryOut(t, w, func(before, after rr.World, p rr.Plan) {
				safe(t)(before, after, p)
				most = max(most, model.Judge(&after, model.StateOf(after)).Checks.MaxPathsPerPrefix)
			})
			if diff := cmp.Diff(kinds(first.Steps), kinds(done)); diff != "" {
				t.Errorf("the plan showed other steps: %s", diff)
			}
			count := map[string]int{}
			for _, s := range done {
				count[rr.Kind(s)]++
			}
			want := map[string]int{"EnsurePeer": 2, "Adopt": c.adopt, "Promote": c.promote, "RetirePeer": len(w.Peers)}
			if c.demote > 0 {
				want["Demote"] = c.demote
			}
			if diff := cmp.Diff(want, count); diff != "" {
				t.Error(diff)
			}
			if p := settledPlan(after); p.Checks.MaxPathsPerPrefix != int(c.redundancy) || most > 2*first.Checks.MaxPathsPerPrefix {
				t.Errorf("%d paths at the end, %d before, %d meanwhile", p.Checks.MaxPathsPerPrefix, first.Checks.MaxPathsPerPrefix, most)
			}
		})
	}
}

func TestAdoptionRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *rr.World)
		want   string
	}{
		"an ID that nobody has": {func(w *rr.World) { w.Topology.Spec.ClusterID = "244.0.0.9" },
			"no reflector that it names has the cluster ID of spec.clusterID, 244.0.0.9, so that all would lose their sessions; delete this topology, " +
				"which has done nothing yet, and create it with spec.clusterID 244.0.0.1, which 3 of 3 have"},
		"a reflector that is not named": {func(w *rr.World) {
			w.Topology.Spec.Adopt.Nodes.MatchLabels["kubernetes.io/hostname"] = "node-00001"
		},
			"BGPPeer peer-with-route-reflectors gives Node node-00002 a session with Node node-00000, and this topology would not; " +
				"make spec.adopt.nodes select node-00000, which is a reflector"},
		"a client that is none of the topology's": {func(w *rr.World) {
			w.Topology.Spec.ClientSelector.MatchLabels = map[string]string{"role": "worker"}
			for i := range w.Nodes[:8] {
				w.Nodes[i].Labels = maps.Clone(w.Nodes[i].Labels)
				w.Nodes[i].Labels["role"] = "worker"
			}
		}, "BGPPeer peer-with-route-reflectors gives Node node-00008 a session with Node node-00000, and this topology would not; " +
			"make spec.clientSelector select node-00008"},
		"a label without an ID": {func(w *rr.World) { w.Nodes[2].ClusterID = "" },
			"BGPPeer peer-with-route-reflectors gives Node node-00003 a session with Node node-00002, and this topology would not, since neither has a cluster ID " +
				"(annotation projectcalico.org/RouteReflectorClusterID, an IPv4 address); correct or remove the label that selects them first"},
		"a peer by its address": {func(w *rr.World) {
			w.Peers[0].PeerMatcher, w.Peers[0].PeerIP = nil, netip.MustParseAddr("10.0.0.1")
		},
			"BGPPeer peer-with-route-reflectors has no peerSelector, and the sessions of one that names an address are of another kind; " +
				"take it out of spec.adopt.bgpPeers"},
		"a global peer": {func(w *rr.World) { w.Peers[0].NodeMatcher = nil },
			"BGPPeer peer-with-route-reflectors has neither node nor nodeSelector: confd gives the sessions of such a one other names, and would reset them all; " +
				"give it nodeSelector all() first, at a time when sessions may be reset"},
		"fields that topologies do not write": {func(w *rr.World) { w.Peers[0].Other = true },
			"BGPPeer peer-with-route-reflectors has fields that topologies do not write, such as asNumber, nextHopMode or reversePeering; take these out of it first"},
		"other options": {func(w *rr.World) {
			w.Peers[0].PeerSpec = rr.PeerSpec{MaxRestartSeconds: 30, PasswordSecret: "bgp", PasswordKey: "key", TTLSecurity: 1, Filters: "a,b", SourceAddress: "None"}
		}, "BGPPeer peer-with-route-reflectors has other session options than spec.session, which would reset its sessions; set " +
			"spec.session.maxRestartTime to 30s and spec.session.passwordRef to bgp/key and spec.session.ttlSecurity to 1 and spec.session.filters to [a,b] " +
			"and spec.session.sourceAddress to None"},
		"options that it has not": {func(w *rr.World) {
			hops := int32(2)
			w.Topology.Spec.Session = v1alpha1.SessionOptions{
				TTLSecurity: &hops, SourceAddress: "UseNodeIP", MaxRestartTime: &metav1.Duration{Duration: time.Minute},
				PasswordRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "bgp"}, Key: "key"},
			}
		}, "BGPPeer peer-with-route-reflectors has other session options than spec.session, which would reset its sessions; set " +
			"spec.session.maxRestartTime to none and spec.session.passwordRef to none and spec.session.ttlSecurity to none"},
		"another topology's": {func(w *rr.World) { w.Peers[0].Topology = "other" },
			"BGPPeer peer-with-route-reflectors is RouteReflectorTopology other's (label bgp.mooring.dev/topology), and is not there to be adopted; " +
				"name the others one by one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := handMade(cluster(9, 3), 3)
			c.change(&w)
			p := settledPlan(w)
			if want := (rr.Refusal{Reason: rr.ReasonCannotAdopt, Message: "spec.adopt: " + c.want}); !slices.Contains(p.Refusals, want) || len(p.Steps) > 0 {
				t.Errorf("%v, %q\nwant %s", p.Steps, p.Refusals, want.Message)
			}
		})
	}
}

// Without spec.adopt nothing of others is touched, and so it is with what spec.adopt does not name.
func TestAdoptionIsAskedFor(t *testing.T) {
	t.Parallel()
	w := handMade(cluster(9, 3), 3)
	w.Topology.Spec.Adopt = nil
	p := settledPlan(w)
	if len(p.Steps) > 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonClusterIDTaken {
		t.Errorf("%v, %v", p.Steps, p.Refusals)
	}
	// Deleted on the way, it demotes those that it has adopted and leaves the others as they are.
	w = handMade(cluster(9, 3), 3)
	for range 3 {
		w = After(w, MakePlan(w).Steps[0])
	}
	w.Topology.DeletionTimestamp = &metav1.Time{Time: epoch()}
	w, done := carryOut(t, w, nil)
	want := []string{"MeshOn BGPConfiguration/default", "Demote Node/node-00000", "RemovePeer BGPPeer/main-clients", "RemovePeer BGPPeer/main-reflectors"}
	if got := kinds(done); !slices.Equal(got, want) || len(w.Peers) != 1 || w.Nodes[1].ClusterID == "" || w.Nodes[2].ClusterID == "" {
		t.Errorf("%v, %v", got, w.Peers)
	}
}

// A plan that takes over somebody else's objects is another plan for approval than one that does not.
func TestAdoptionIsInTheHash(t *testing.T) {
	t.Parallel()
	w := handMade(cluster(9, 3), 3)
	with := settledPlan(w).Hash
	w.Topology.Spec.Adopt.BGPPeers = []string{"peer-with-*"}
	if other := settledPlan(w).Hash; other == with || with == "" {
		t.Errorf("%q and %q", with, other)
	}
}

// Whatever a cluster that was made by somebody else looks like and goes through, taking it over converges, touches nothing that is not named, cuts
// nobody off, and goes on with the same steps after a crash.
func TestAnyAdoption(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyAdoption(t)
		w.Peers = append(w.Peers, foreignPeer("rack", having("rack", true), having("rack", true)))
		reflect(w, len(w.Nodes)-1, "somebody", "else", "9.9.9.9")
		lives(t, w, 3, func(before, _ rr.World, p rr.Plan) {
			step := p.Steps[0]
			n, _ := before.Node(step.Node())
			unnamed := n.ClusterID != "" && !n.Marked(&w.Topology) && !n.AdoptedBy(&w.Topology)
			if step.Node() != "" && unnamed || step.What().Object == "BGPPeer/rack" {
				t.Fatalf("%s touches what nobody named", step)
			}
		})
	})
}

func anyAdoption(t *rapid.T) rr.World {
	w := anyWorld(t, 12)
	for len(w.Nodes) < 5 {
		w.Nodes = append(w.Nodes, machine(len(w.Nodes), 2))
	}
	reflectors := rapid.IntRange(1, 4).Draw(t, "reflectors")
	for i := range reflectors { // what was made before was made of nodes that could
		n := &w.Nodes[i]
		well := machine(i, 3)
		well.IPv6, well.Workloads = n.IPv6, n.Workloads
		*n = well
	}
	shape := rapid.SampledFrom([]func(rr.World, int) rr.World{handMade, simple, multi}).Draw(t, "shape")
	w = shape(w, reflectors)
	w.Mesh.On = rapid.Bool().Draw(t, "mesh")
	return w
}

// The reflectors that a topology takes over count in its choice before they have its label: otherwise the plan shows
// steps that a process started after the Adopt steps does not plan.
func TestAdoptionKeepsTheChoice(t *testing.T) {
	t.Parallel()
	perZone := func(w *rr.World) {
		w.Topology.Spec.Sizing.PerZone = &v1alpha1.PerZone{Min: 1, Max: 2, RatioPermille: 84}
	}
	for name, c := range map[string]struct {
		change func(w *rr.World)
		want   int
	}{
		// The zone's 11 clients need ceil(11 * 0.084) = 1 reflector; with the hysteresis of 20 % ceil(14 * 0.084) = 2
		// may stay.
		"two of a zone within the hysteresis": {perZone, 2},
		"pods run on one, and dedicated is true": {func(w *rr.World) {
			w.Topology.Spec.Reflectors.Dedicated, w.Nodes[0].Workloads = true, 3
		}, 2},
		"the spec excludes one, and no other node may take its place": {func(w *rr.World) {
			first := map[string]string{corev1.LabelHostname: "node-00000"}
			w.Topology.Spec.Reflectors.Excluded = &metav1.LabelSelector{MatchLabels: first}
			for i := range w.Nodes[2:] {
				w.Nodes[2+i].Unschedulable = true
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := redundant(simple(cluster(11, 1), 2), 2)
			c.change(&w)
			first := settledPlan(w)
			after, done := carryOut(t, w, safe(t))
			if diff := cmp.Diff(kinds(first.Steps), kinds(done)); diff != "" {
				t.Errorf("the plan showed other steps: %s", diff)
			}
			if got := len(after.Marked()); got != c.want {
				t.Errorf("%d reflectors at the end, want %d: %v", got, c.want, kinds(done))
			}
		})
	}
}
