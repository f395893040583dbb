// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
)

// beforeMeshOff is a world in which nothing but the end of the mesh remains, and all has been said.
func beforeMeshOff(t *testing.T, nodes, zones int) rr.World {
	t.Helper()
	w := cluster(nodes, zones)
	w.Topology.Spec.Mode = v1alpha1.ModeFlat
	for range 20 {
		var p rr.Plan
		w, p = planned(w)
		if len(p.Steps) == 1 && rr.Is[rr.MeshOff](p.Steps[0]) {
			if p.Waiting != "" {
				t.Fatal(p.Waiting)
			}
			return w
		}
		w = After(w, p.Steps[0])
	}
	t.Fatal("the mesh is never the last")
	return w
}

// said changes what one node has said.
func said(w rr.World, node string, change func(*rr.Sighting)) rr.World {
	w.Sightings = slices.Clone(w.Sightings)
	at := slices.IndexFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == node })
	change(&w.Sightings[at])
	return w
}

// apart is the world in which some nodes, or all if none is named, report no session with a node.
func apart(w rr.World, from string, who ...string) rr.World {
	n, _ := w.Node(from)
	w.Sightings = slices.Clone(w.Sightings)
	for i := range w.Sightings {
		if s := &w.Sightings[i]; len(who) == 0 || slices.Contains(who, s.Node) {
			s.Established = without(s.Established, n.IPv4)
		}
	}
	return w
}

// The mesh stays on until each client of a small sample, one of each zone, has from every reflector all that the mesh brings it; and the
// plan says for whom it waits, and what is missing.
func TestTheMeshWaitsForASampleOfClients(t *testing.T) {
	t.Parallel()
	w := beforeMeshOff(t, 12, 3)
	p := MakePlan(w)
	zones := map[string]int{}
	for _, name := range p.Samples {
		n, _ := w.Node(name)
		zones[n.Labels[zoneLabel]]++
		if n.ClusterID != "" || !slices.Contains(p.Witnesses, name) {
			t.Errorf("%s is asked", name)
		}
	}
	if diff := cmp.Diff(map[string]int{"zone-0": 1, "zone-1": 1, "zone-2": 1}, zones); diff != "" {
		t.Errorf("the sample: %s", diff)
	}
	client, reflector := p.Samples[1], p.Reflectors[2].Node
	r, _ := w.Node(reflector)
	other, _ := w.Node(p.Samples[0])
	for name, c := range map[string]struct {
		change func(*rr.Sighting)
		want   string
	}{
		"stale":            {func(s *rr.Sighting) { s.At = w.Now.Add(-rr.Freshness - 1) }, "client %s has not reported its routes"},
		"only sessions":    {func(s *rr.Sighting) { s.Routes = nil }, "client %s has not reported its routes"},
		"a session short":  {func(s *rr.Sighting) { s.Established = without(s.Established, r.IPv4) }, "client %s has no Established session with reflector " + reflector},
		"a route short":    {func(s *rr.Sighting) { s.Routes = but(*s.Routes, r.IPv4, block(other.IPv4)) }, "client %s has from reflector " + reflector + " no route to 1 of 8 destinations that the mesh brings, such as " + block(other.IPv4).String()},
		"no routes at all": {func(s *rr.Sighting) { s.Routes = &rr.Routes{Mesh: s.Routes.Mesh} }, "client %s has from reflector " + p.Reflectors[0].Node + " no route to 8 of 8 destinations that the mesh brings, such as "},
		"what the mesh lacks is not waited for": {func(s *rr.Sighting) {
			s.Routes = &rr.Routes{Mesh: map[netip.Addr][]netip.Prefix{other.IPv4: {block(other.IPv4)}}, By: s.Routes.By}
		}, ""},
	} {
		want := c.want
		if want != "" {
			want = fmt.Sprintf(want, client)
		}
		if got := MakePlan(said(w, client, c.change)).Waiting; got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: it waits for %q, want %q", name, got, want)
		}
	}
}

func without(in map[netip.Addr]bool, but netip.Addr) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for a, yes := range in {
		if a != but {
			out[a] = yes
		}
	}
	return out
}

// but is the routes without one destination from one peer.
func but(r rr.Routes, peer netip.Addr, d netip.Prefix) *rr.Routes {
	out := &rr.Routes{Mesh: r.Mesh, By: map[netip.Addr][]netip.Prefix{}}
	for a, list := range r.By {
		out.By[a] = slices.DeleteFunc(slices.Clone(list), func(x netip.Prefix) bool { return a == peer && x == d })
	}
	return out
}

// Clients are asked for routes only once the reflectors have their sessions, and a reflector is never in the sample.
func TestSamplesComeLast(t *testing.T) {
	t.Parallel()
	w := cluster(9, 3)
	for range 20 {
		var p rr.Plan
		w, p = planned(w)
		if last := len(p.Steps) == 1; last != (len(p.Samples) > 0) {
			t.Fatalf("before %s these are asked for routes: %v", p.Steps[0], p.Samples)
		}
		if len(p.Steps) == 1 {
			silent := w
			silent.Sightings = nil
			if p := MakePlan(silent); len(p.Samples) != 0 || len(p.Witnesses) != 3 {
				t.Errorf("before the reflectors have spoken %v are asked, for routes %v", p.Witnesses, p.Samples)
			}
			// Once asked, they stay so while a reflector is asked again.
			if p := MakePlan(said(w, p.Reflectors[0].Node, func(s *rr.Sighting) { s.At = w.Now.Add(-rr.Freshness - 1) })); len(p.Samples) != 3 {
				t.Errorf("while a reflector's word is old these are asked for routes: %v", p.Samples)
			}
			return
		}
		w = After(w, p.Steps[0])
	}
}

// Where an answer with all routes would not fit into an object, the sample speaks for its sessions, and the plan says so.
func TestTooManyRoutesForAnObject(t *testing.T) {
	t.Parallel()
	for nodes, routes := range map[int]bool{1000: true, 1100: false} {
		w := beforeMeshOff(t, nodes, 3)
		p := MakePlan(w)
		if (len(p.Samples) > 0) != routes || len(p.Witnesses) != 6 || (len(p.Notes) > 0 && strings.HasPrefix(p.Notes[len(p.Notes)-1].Message, "there are more routes")) == routes {
			t.Errorf("with %d nodes the samples are %v of %v, notes %q", nodes, p.Samples, p.Witnesses, p.Notes)
		}
		var client string
		for _, name := range p.Witnesses {
			if n, _ := w.Node(name); n.ClusterID == "" {
				client = name
			}
		}
		want := map[bool]string{true: "client " + client + " has not reported its routes", false: "client " + client + " has not reported its sessions"}[routes]
		if got := MakePlan(said(w, client, func(s *rr.Sighting) { s.Node = "x" })).Waiting; got != want {
			t.Errorf("with %d nodes it waits for %q, want %q", nodes, got, want)
		}
	}
}

// What calico-node lists as routes is read as destinations by source; what carries nothing, or comes from elsewhere, does not count.
func TestRoutesFrom(t *testing.T) {
	t.Parallel()
	route := func(d, via string, source calicov3.CalicoNodeRouteSourceType, peer string) calicov3.CalicoNodeRoute {
		return calicov3.CalicoNodeRoute{Destination: d, Interface: via, LearnedFrom: calicov3.CalicoNodeRouteLearnedFrom{SourceType: source, PeerIP: peer}}
	}
	s := &calicov3.CalicoNodeStatus{}
	s.Status.LastUpdated = metav1.NewTime(epoch())
	s.Status.Routes.RoutesV4 = []calicov3.CalicoNodeRoute{
		route("10.1.2.0/26", "eth0", calicov3.RouteSourceTypeNodeMesh, "192.0.2.2"),
		route("10.1.1.0/26", "eth0", calicov3.RouteSourceTypeNodeMesh, "192.0.2.1"),
		route("10.1.1.0/26", "eth0", calicov3.RouteSourceTypeNodeMesh, "192.0.2.3"),
		route("10.1.1.0/26", "eth0", calicov3.RouteSourceTypeBGPPeer, "192.0.2.9"),
		route("10.1.2.0/26", "unreachable", calicov3.RouteSourceTypeBGPPeer, "192.0.2.9"),
		route("10.1.3.0/26", "blackhole", calicov3.RouteSourceTypeBGPPeer, "192.0.2.9"),
		route("10.1.4.0/26", "eth0", calicov3.RouteSourceTypeBGPPeer, "nobody"),
		route("nowhere", "eth0", calicov3.RouteSourceTypeNodeMesh, "192.0.2.1"),
		route("0.0.0.0/0", "eth0", calicov3.RouteSourceTypeKernel, ""),
	}
	s.Status.Routes.RoutesV6 = []calicov3.CalicoNodeRoute{route("fd00::/122", "eth0", calicov3.RouteSourceTypeBGPPeer, "fd01::9")}
	if said, _ := rr.SightingFrom(s); said.Routes != nil {
		t.Error("it was not asked for routes, and says some")
	}
	s.Spec.Classes = []calicov3.NodeStatusClassType{calicov3.NodeStatusClassTypeBGP, calicov3.NodeStatusClassTypeRoutes}
	said, _ := rr.SightingFrom(s)
	p, a := netip.MustParsePrefix, netip.MustParseAddr
	want := &rr.Routes{
		Mesh: map[netip.Addr][]netip.Prefix{a("192.0.2.1"): {p("10.1.1.0/26")}, a("192.0.2.2"): {p("10.1.2.0/26")}, a("192.0.2.3"): {p("10.1.1.0/26")}},
		By:   map[netip.Addr][]netip.Prefix{a("192.0.2.9"): {p("10.1.1.0/26")}, a("fd01::9"): {p("fd00::/122")}},
	}
	if diff := cmp.Diff(want, said.Routes, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

// What a reflector has said holds over promotions of others, and over nothing else; what a client has said holds in its moment alone.
func TestWhatASightingHoldsFor(t *testing.T) {
	t.Parallel()
	w := cluster(6, 3)
	w.Peers = rr.WantedPeers(w.Topology)
	a, b, c := &w.Nodes[0], &w.Nodes[1], &w.Nodes[2]
	one := After(w, promotion(&w, a))
	two := After(one, promotion(&w, b))
	demotion := rr.RoleChange{NodeChange: next.NodeStep(b, "", map[string]*string{v1alpha1.ReflectorLabel: nil})}
	swapped := After(After(two, promotion(&w, c)), rr.Demote{RoleChange: demotion})
	otherOptions := two
	otherOptions.Peers = slices.Clone(two.Peers)
	otherOptions.Peers[0].MaxRestartSeconds = 9
	reborn := two
	reborn.Nodes = slices.Clone(two.Nodes)
	reborn.Nodes[0].UID = "another"
	beat := one
	beat.Nodes = append(slices.Clone(one.Nodes), machine(77, 2))
	beat.Nodes[1].ResourceVersion = "2"
	started := cluster(6, 3)
	adopted := redundant(handMade(cluster(5, 1), 2), 2)
	for range 4 {
		adopted = After(adopted, MakePlan(adopted).Steps[0])
	}
	during, client := moving(t)
	leave := next.NodeStep(&client, "", map[string]*string{v1alpha1.ClientLabel: new("2"), v1alpha1.JoinsLabel: nil})
	moved, reflector := After(during, rr.Leave{NodeChange: leave}), next.Joined(&during, client)[0].Name
	to := slices.IndexFunc(during.Nodes, func(n rr.Node) bool { return n.Name == reflector })
	grown := during
	grown.Nodes = append(slices.Clone(during.Nodes), machine(5000, 1))
	assign := next.NodeStep(&grown.Nodes[len(grown.Nodes)-1], "", map[string]*string{v1alpha1.ClientLabel: new("1")})
	for name, c := range map[string]struct {
		asked, now rr.World
		node       int
		want       bool
	}{
		"a client, a heartbeat and a new client": {one, beat, 5, true},
		"a client, a BGPPeer more":               {started, After(started, rr.EnsurePeer{Peer: w.Peers[0]}), 5, false},
		"a BGPPeer that was adopted goes":        {adopted, After(adopted, MakePlan(adopted).Steps[0]), 0, false},
		"a client joined before":                 {during, moved, to, true},
		"a client joins afterwards":              {moved, during, to, false},
		"a client, a new node has a label":       {grown, After(grown, rr.Assign{NodeChange: assign}), len(grown.Nodes) - 1, true},
		"the same":                               {one, one, 0, true},
		"a client, the same":                     {one, one, 5, true},
		"one more":                               {one, two, 0, true},
		"one more, a client":                     {one, two, 5, false},
		"the one more itself":                    {one, two, 1, false},
		"one less":                               {two, one, 0, false},
		"another instead":                        {two, swapped, 0, false},
		"one more and one less":                  {two, swapped, 2, false},
		"the mesh":                               {two, After(two, rr.MeshOff{}), 0, true},
		"other options":                          {two, otherOptions, 0, false},
		"another machine of the same name":       {two, reborn, 0, false},
		"another machine beside":                 {two, reborn, 1, false},
		"a client, then the mesh went":           {two, After(two, rr.MeshOff{}), 5, false},
		"nothing of the topology's by then":      {w, one, 0, false},
	} {
		asked, ok := rr.ParseMoment(c.asked.Present().String())
		if !ok || !asked.Equal(c.asked.Present()) {
			t.Fatalf("%s: %s is not read", name, c.asked.Present())
		}
		if got := c.now.Present().Holds(asked, &c.now.Nodes[c.node]); got != c.want {
			t.Errorf("%s: it holds: %t, want %t", name, got, c.want)
		}
	}
}

// FuzzParseMoment reads anything without harm, and what it reads it writes again.
func FuzzParseMoment(f *testing.F) {
	f.Add("0123456789ab.mesh.0123456789.abcdef0123")
	f.Add("0123456789ab.none")
	f.Add("")
	f.Add("0123456789ab.")
	f.Fuzz(func(t *testing.T, text string) {
		if m, ok := rr.ParseMoment(text); ok && m.String() != text {
			t.Errorf("%q came back as %q", text, m)
		}
	})
}

// A filter that is not there is named before anything is written; where it is not known which there are, nothing is said.
func TestFilters(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	w.Topology.Spec.Session.Filters = []string{"there", "missing"}
	if p := MakePlan(w); len(p.Refusals) != 0 {
		t.Errorf("nobody knows the filters: %v", p.Refusals)
	}
	w.Filters = map[string]bool{"there": true}
	refuses(t, w, "BGPFilterNotFound: spec.session.filters: there is no BGPFilter missing; create it, or take it out of the list")
	w.Filters["missing"] = true
	if p := MakePlan(w); len(p.Refusals) != 0 || len(p.Steps) == 0 {
		t.Errorf("both are there: %v", p.Refusals)
	}
	delete(w.Filters, "missing")
	now := metav1.NewTime(w.Now)
	w.Topology.DeletionTimestamp = &now
	if p := MakePlan(w); len(p.Refusals) != 0 {
		t.Errorf("on the way out: %v", p.Refusals)
	}
}
