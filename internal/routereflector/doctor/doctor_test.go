// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
	"github.com/mooring-dev/mooring/internal/routereflector/doctor"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// nodes are count nodes, n0 and so on, in three zones, each with its name as a label.
func nodes(count int) []routereflector.Node {
	out := make([]routereflector.Node, count)
	for i := range out {
		name := fmt.Sprintf("n%d", i)
		out[i] = routereflector.Node{
			Name: name, Ready: corev1.ConditionTrue, IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			Labels: map[string]string{"name": name, corev1.LabelTopologyZone: string(rune('a' + i%3))}, Annotations: map[string]string{},
		}
	}
	return out
}

// reflect makes nodes reflectors: the first n, the one at i with the ID that id gives.
func reflect(all []routereflector.Node, n int, id func(i int) string) []routereflector.Node {
	for i := range n {
		all[i].ClusterID = id(i)
		all[i].Labels["rr"] = "true"
	}
	return all
}

func shared(int) string { return "244.0.0.1" }

func distinct(i int) string { return fmt.Sprintf("244.0.0.%d", 1+i) }

func peer(t *testing.T, name, from, to string) routereflector.Peer {
	t.Helper()
	p := routereflector.Peer{Name: name, PeerSpec: routereflector.PeerSpec{NodeSelector: from, PeerSelector: to, SourceAddress: "UseNodeIP"}}
	parse := func(text string) routereflector.Matcher {
		m, err := selector.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	p.NodeMatcher, p.PeerMatcher = parse(from), parse(to)
	return p
}

// router is a BGPPeer to a router outside the cluster, for some nodes.
func router(t *testing.T, name, of string) routereflector.Peer {
	t.Helper()
	p := peer(t, name, of, "all()")
	p.PeerMatcher, p.PeerSelector, p.PeerIP, p.ASNumber = nil, "", netip.MustParseAddr("192.0.2.1"), 64999
	return p
}

// pools are IP pools p0 and so on with these encapsulations, in a version of Calico with its defaults.
func pools(version string, all ...clusterroutes.Encapsulation) *clusterroutes.Settings {
	s := &clusterroutes.Settings{Version: version}
	for i, e := range all {
		s.Pools = append(s.Pools, clusterroutes.Pool{Name: fmt.Sprintf("p%d", i), Encapsulation: e})
	}
	return s
}

// usual are the two BGPPeers of Calico's documentation.
func usual(t *testing.T) []routereflector.Peer {
	t.Helper()
	return []routereflector.Peer{peer(t, "clients", "!has(rr)", "has(rr)"), peer(t, "reflectors", "has(rr)", "has(rr)")}
}

// texts are findings as severity, check and what, but for those that are OK.
func texts(all []finding.Finding) []string {
	var out []string
	for _, f := range all {
		if f.Severity != finding.OK {
			out = append(out, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.What))
		}
	}
	return out
}

func TestHazards(t *testing.T) {
	t.Parallel()
	off := routereflector.Mesh{Exists: true}
	on := routereflector.Mesh{On: true}
	black := reflect(nodes(8), 4, shared)
	for name, test := range map[string]struct {
		evidence doctor.Evidence
		want     []string
		why      string // of the first
	}{
		"all is well":               {evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Peers: usual(t), Mesh: off}},
		"a mesh without reflectors": {evidence: doctor.Evidence{Nodes: nodes(9), Mesh: on}},
		"a large mesh that carries nothing": {
			evidence: doctor.Evidence{Nodes: nodes(101), Mesh: on, Routes: pools("v3.31.0", clusterroutes.VXLAN)},
			want:     []string{"note mesh: 101 nodes are in a full mesh of 5050 sessions that carries no route between nodes"},
		},
		"reflectors that carry nothing": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Peers: usual(t), Mesh: off, Routes: pools("v3.33.0", clusterroutes.IPIP)},
			want:     []string{"note cluster-routes: route reflectors are not needed: BGP carries no route between nodes, since Felix programs those of IP pools p0 (IPIP)"},
			why:      "3 nodes with a cluster ID carry at most routes of Services and to routers outside the cluster",
		},
		"the same pools before 3.33": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Peers: usual(t), Mesh: off, Routes: pools("v3.32.1", clusterroutes.IPIP)},
		},
		"routes of two owners and of none": {
			evidence: doctor.Evidence{Nodes: nodes(9), Mesh: on, Routes: func() *clusterroutes.Settings {
				s := pools("v3.33.0", clusterroutes.IPIP, clusterroutes.None)
				s.BGP = clusterroutes.EnabledIPIPOnly
				return s
			}()},
			want: []string{
				"problem cluster-routes: Felix and BIRD both program the routes between nodes of IP pools p0 (IPIP)",
				"problem cluster-routes: nobody programs the routes between nodes of IP pools p1 (no encapsulation)",
			},
			why: "each replaces the other's routes, again and again",
		},
		"a version that is not told": {
			evidence: doctor.Evidence{Nodes: nodes(9), Mesh: on, Routes: pools("", clusterroutes.IPIP)},
			want:     []string{`note cluster-routes: who programs the routes between nodes of IP pools p0 (IPIP) depends on Calico's version, which ClusterInformation default does not tell ("")`},
		},
		"pools that may not be read": {
			evidence: doctor.Evidence{Nodes: nodes(9), Mesh: on, NoRoutes: "forbidden"},
			want:     []string{"note cluster-routes: whether BGP carries routes between nodes is unknown: forbidden"},
		},
		"no BGP where it is not needed": {
			evidence: doctor.Evidence{Nodes: []routereflector.Node{{Name: "n0"}}, Mesh: on, Routes: pools("v3.31.0", clusterroutes.VXLAN)},
			want:     []string{"note reachability: no node has a BGP address"},
		},
		"two nodes with one address": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := nodes(4)
				all[3].IPv4 = all[1].IPv4
				return all
			}(), Mesh: on},
			want: []string{"problem addresses: 2 nodes have the BGP address 10.0.0.1: n1, n3"},
		},
		"a router that hangs on one reflector": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: append(usual(t), router(t, "tor", "name == 'n1'"), router(t, "edge", "has(rr)"), router(t, "client", "name == 'n5'"))},
			want:     []string{"warning external-peers: BGPPeer tor gives 192.0.2.1 outside the cluster a session with reflector n1 alone"},
		},
		"a large mesh": {
			evidence: doctor.Evidence{Nodes: nodes(101), Mesh: on}, want: []string{"warning mesh: 101 nodes are in a full mesh: 5050 sessions"},
		},
		"clients of one cluster ID without a common reflector": {
			evidence: doctor.Evidence{Nodes: black, Mesh: off, Peers: []routereflector.Peer{
				peer(t, "left", "name in {'n4', 'n5'}", "name in {'n0', 'n1'}"), peer(t, "right", "name in {'n6', 'n7'}", "name in {'n2', 'n3'}"),
				peer(t, "reflectors", "has(rr)", "has(rr)"),
			}},
			want: []string{"problem reachability: 8 of 56 ways from a node to another have no route by IPv4, such as n6 to n4 and n4 to n6"},
			why:  "they have no reflector in common: the one has n2, n3, the other n0, n1, all with cluster ID 244.0.0.1",
		},
		"six reflectors with IDs of their own that all peer with each other": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(12), 6, distinct), Peers: usual(t), Mesh: off},
			want:     []string{"problem paths: by the model a node has up to 1956 paths to one prefix; there are 6 reflectors with 6 cluster IDs"},
		},
		"a mesh that was left on": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Peers: usual(t), Mesh: on},
			want:     []string{"warning mesh: the node-to-node mesh is on in addition to 3 reflectors that serve clients (n0, n1, n2)"},
		},
		"one reflector": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(4), 1, shared), Peers: usual(t), Mesh: off},
			want:     []string{"warning redundancy: 3 nodes with n0 as the only reflector by IPv4: n1, n2, n3"},
		},
		"a reflector that is not ready": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := reflect(nodes(5), 2, shared)
				all[0].Ready = corev1.ConditionUnknown
				return all
			}(), Peers: usual(t), Mesh: off},
			want: []string{
				"warning redundancy: 3 nodes with n1 as the only reflector by IPv4: n2, n3, n4", "warning redundancy: reflector n0 is not Ready",
			},
		},
		"all in one zone": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := reflect(nodes(9), 2, shared)
				all[1].Labels[corev1.LabelTopologyZone] = "a"
				return all
			}(), Peers: usual(t), Mesh: off},
			want: []string{`warning zones: all 2 reflectors are in zone "a", and nodes are in 3 zones`},
		},
		"a reflector without a session": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(4), 1, shared), Mesh: on},
			want:     []string{"problem reachability: 6 of 12 ways from a node to another have no route by IPv4, such as n1 to n0 and n0 to n1"},
			why:      "n0 is a route reflector, which the mesh leaves out, and no BGPPeer gives it a session",
		},
		"neither mesh nor BGPPeers": {
			evidence: doctor.Evidence{Nodes: nodes(3), Mesh: off},
			want:     []string{"problem reachability: 6 of 6 ways from a node to another have no route by IPv4, such as n0 to n1"},
			why:      "the mesh is off, and no BGPPeer gives n0 a session",
		},
		"BGPPeers that contradict each other": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: func() []routereflector.Peer {
				other := peer(t, "rack", "name == 'n4'", "has(rr)")
				other.PasswordSecret, other.PasswordKey = "bgp", "password"
				return append(usual(t), other)
			}()},
			want: []string{"warning session-options: BGPPeers clients and rack ask for 3 common sessions with different options, such as that of n0 with n4"},
		},
		"the same session twice": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: append(usual(t), peer(t, "rack", "name == 'n4'", "has(rr)"))},
		},
		"selectors on Kubernetes' own labels, and on none": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: append(usual(t),
				peer(t, "masters", "all()", "has(node-role.kubernetes.io/master)"), peer(t, "nobody", "has(nobody)", "has(rr)"))},
			want: []string{
				"warning selectors: spec.peerSelector of BGPPeer masters depends on a label of Kubernetes: has(node-role.kubernetes.io/master)",
				"warning selectors: spec.peerSelector of BGPPeer masters selects no node: has(node-role.kubernetes.io/master)",
				"note selectors: spec.nodeSelector of BGPPeer nobody selects no node: has(nobody)",
			},
		},
		"an ID that is none": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := reflect(nodes(9), 3, shared)
				all[5].Annotations[routereflector.ClusterIDAnnotation] = "1.2.3.4%!(EXTRA int32=7)"
				return all
			}(), Peers: usual(t), Mesh: off},
			want: []string{`problem cluster-ids: annotation projectcalico.org/RouteReflectorClusterID of Node n5 is "1.2.3.4%!(EXTRA int32=7)", which is not an IPv4 address`},
		},
		"an ID that is none, in etcd": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Peers: usual(t), Mesh: off, Etcd: true, InvalidIDs: map[string]string{"n5": "10.0.0.0/8"}},
			want:     []string{`problem cluster-ids: spec.bgp.routeReflectorClusterID of Calico Node n5 is "10.0.0.0/8", which is not an IPv4 address`},
			why:      "BIRD rejects such a file",
		},
		"an annotation, in etcd": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := reflect(nodes(9), 3, shared)
				all[5].Annotations[routereflector.ClusterIDAnnotation] = "244.0.0.9"
				return all
			}(), Peers: usual(t), Mesh: off, Etcd: true},
		},
		"a wrong AS number": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: append(usual(t), routereflector.Peer{
				Name: "rack", Node: "n4", PeerIP: netip.AddrFrom4([4]byte{10, 0, 0, 5}), ASNumber: 65001,
			})},
			want: []string{"problem as-numbers: BGPPeer rack has spec.asNumber 65001 for Node n5, whose AS number is 64512: no session comes up between n4 and n5"},
		},
		"two nodes of another AS": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := reflect(nodes(9), 3, shared)
				all[7].ForeignAS, all[7].AS, all[8].ForeignAS, all[8].AS = true, 65001, true, 65001
				return all
			}(), Peers: usual(t), Mesh: off},
			want: []string{
				"problem reachability: 2 of 72 ways from a node to another have no route by IPv4, such as n7 to n8",
				"warning as-numbers: 2 nodes have AS number 65001, which is not the cluster's: n7, n8",
			},
		},
		"a label that nobody wrote": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := nodes(9)
				all[4].Labels[v1alpha1.ReflectorLabel], all[5].ClusterID = "main", "244.0.0.1"
				all[4].ClusterID = "244.0.0.1"
				return all
			}(), Mesh: on, Peers: usual(t), Topologies: []v1alpha1.RouteReflectorTopology{{
				ObjectMeta: metav1.ObjectMeta{Name: "main", UID: "t"}, Spec: v1alpha1.RouteReflectorTopologySpec{ClusterID: "244.0.0.1"},
				Status: v1alpha1.RouteReflectorTopologyStatus{Record: &v1alpha1.Record{}},
			}}},
			want: []string{
				"problem reachability: 30 of 72 ways from a node to another have no route by IPv4, such as n4 to n0 and n5 to n0",
				"warning selectors: spec.peerSelector of BGPPeer clients selects no node: has(rr)", "warning selectors: spec.peerSelector of BGPPeer reflectors selects no node: has(rr)",
				"warning foreign-marks: Node n4 has label bgp.mooring.dev/reflector=main, which this program did not write",
				"warning foreign-marks: Node n5 has cluster ID 244.0.0.1, which is that of group main, and is not this topology's",
			},
		},
		"topologies that may not be listed": {
			evidence: doctor.Evidence{Nodes: nodes(3), Mesh: on, NoTopologies: "forbidden"},
			want:     []string{"note foreign-marks: it is unknown which labels of reflectors the operator wrote: forbidden"},
		},
		"what cannot be read": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Peers: usual(t), Mesh: off, Etcd: true, Unread: []string{"BGPPeer x cannot be read"}},
			want:     []string{"problem unreadable: BGPPeer x cannot be read", "note as-numbers: the AS numbers of those nodes and BGPPeers that can be read agree"},
		},
		"two operators": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: func() []routereflector.Peer {
				all := usual(t)
				all[0].Topology, all[1].Topology = "main", "main"
				return append(all, peer(t, "rrs-to-rrs", "has(rr)", "has(rr)"), peer(t, "peer-to-rrs-1", "!has(rr)", "has(rr)"))
			}()},
			want: []string{"problem owners: 2 BGPPeers of the former calico-route-reflector-operator (peer-to-rrs-1, rrs-to-rrs) exist in addition to those of topology main"},
		},
		"the former operator's": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(9), 3, shared), Mesh: off, Peers: []routereflector.Peer{
				peer(t, "rrs-to-rrs", "has(rr)", "has(rr)"), peer(t, "peer-to-rrs-1", "!has(rr)", "has(rr)"),
			}},
			want: []string{"note owners: 2 BGPPeers are of the former calico-route-reflector-operator: peer-to-rrs-1, rrs-to-rrs"},
		},
		"a BGPPeer for each node": {
			evidence: doctor.Evidence{Nodes: reflect(nodes(250), 3, shared), Mesh: off, Peers: func() []routereflector.Peer {
				all := usual(t)
				for i := range 199 {
					all = append(all, peer(t, fmt.Sprintf("p%03d", i), fmt.Sprintf("name == 'n%d'", 3+i), "has(rr)"))
				}
				return all
			}()},
			want: []string{"warning bgppeers: there are 201 BGPPeers for 250 nodes"},
		},
		"nobody speaks": {
			evidence: doctor.Evidence{Nodes: func() []routereflector.Node {
				all := nodes(2)
				all[0].IPv4, all[1].IPv4 = netip.Addr{}, netip.Addr{}
				return all
			}(), Mesh: on},
			want: []string{"problem reachability: no node has a BGP address"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := doctor.Findings(test.evidence)
			if diff := cmp.Diff(test.want, texts(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(got[0].Why, test.why) {
				t.Errorf("why: %s", got[0].Why)
			}
			for _, f := range got {
				if bad := f.Severity == finding.Warning || f.Severity == finding.Problem; bad && (f.Why == "" || f.Do == "") {
					t.Errorf("%+v has no reason or no cure", f)
				}
			}
			random := cases.Rand(t)
			shuffled := test.evidence
			shuffled.Nodes, shuffled.Peers = slices.Clone(shuffled.Nodes), slices.Clone(shuffled.Peers)
			random.Shuffle(len(shuffled.Nodes), func(i, j int) { shuffled.Nodes[i], shuffled.Nodes[j] = shuffled.Nodes[j], shuffled.Nodes[i] })
			random.Shuffle(len(shuffled.Peers), func(i, j int) { shuffled.Peers[i], shuffled.Peers[j] = shuffled.Peers[j], shuffled.Peers[i] })
			if diff := cmp.Diff(got, doctor.Findings(shuffled)); diff != "" {
				t.Errorf("the order matters:\n%s", diff)
			}
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	got := finding.Text([]finding.Finding{
		{Check: "mesh", Severity: finding.Problem, What: "it burns", Why: "fire", Do: "water"}, {Check: "paths", Severity: finding.OK, What: "few"},
	}, 0)
	const want = "PROBLEM  mesh: it burns\n         why: fire\n         do:  water\nok       paths: few\n1 problem, 0 warnings, 0 notes, 1 ok\n"
	if got != want {
		t.Errorf("%q", got)
	}
	if finding.Worst(nil) != finding.OK {
		t.Error("nothing found is not OK")
	}
}
