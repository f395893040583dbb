// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

const zoneLabel = "topology.kubernetes.io/zone"

func epoch() time.Time { return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) }

// defaults is the spec that the API server makes of an empty one.
func defaults() v1alpha1.RouteReflectorTopologySpec {
	avoid, hysteresis := true, int32(20)
	return v1alpha1.RouteReflectorTopologySpec{
		Mode: v1alpha1.ModeAuto, ClusterID: "244.0.0.1", ClusterIDRange: "244.0.0.0/16", TopologyKeys: []string{zoneLabel}, Mesh: v1alpha1.MeshManage,
		Reflectors: v1alpha1.ReflectorSelection{
			AvoidWorkloads: &avoid,
			Tolerations:    []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		},
		Sizing: v1alpha1.Sizing{MaxClientsPerReflector: 1000, HysteresisPercent: &hysteresis},
		Failure: v1alpha1.Failure{
			NotReadyGrace: metav1.Duration{Duration: 2 * time.Minute}, UnreachableGrace: metav1.Duration{Duration: time.Minute},
			Stabilization: &metav1.Duration{Duration: 5 * time.Minute}, PromoteAfter: &metav1.Duration{Duration: 3 * time.Second},
		},
		Rollout: v1alpha1.Rollout{Mode: v1alpha1.RolloutAuto, MaxUnavailable: 1, SessionTimeout: metav1.Duration{Duration: 3 * time.Minute}},
		Session: v1alpha1.SessionOptions{SourceAddress: "UseNodeIP"},
	}
}

// cluster is a world of count nodes in zones, with the mesh on.
func cluster(count, zones int) rr.World {
	w := rr.World{
		Now: epoch(), DatastoreReady: true, Mesh: rr.Mesh{On: true},
		Topology: v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main", UID: "t", CreationTimestamp: metav1.NewTime(epoch())}, Spec: defaults()},
	}
	for i := range count {
		w.Nodes = append(w.Nodes, machine(i, zones))
	}
	return w
}

// spareless is the world of a topology without spares, whose reflectors are replaced after the grace period alone.
func spareless(w rr.World) rr.World {
	w.Topology.Spec.Failure.Spares = new(int32(0))
	return w
}

func machine(i, zones int) rr.Node {
	name := fmt.Sprintf("node-%05d", i)
	return rr.Node{
		Name: name, UID: "uid-" + name, ResourceVersion: "1", Ready: corev1.ConditionTrue, ReadySince: epoch().Add(-time.Hour),
		IPv4:   netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
		Labels: map[string]string{zoneLabel: fmt.Sprintf("zone-%d", i%zones), corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
	}
}

// settled is the world once every session that can be is Established, and the reflectors and all witnesses of the plan have said so.
func settled(w rr.World) rr.World {
	w, _ = planned(w)
	return w
}

// settledPlan is the plan of the settled world.
func settledPlan(w rr.World) rr.Plan {
	_, p := planned(w)
	return p
}

// networks are the sessions that there are once everything has settled, by family.
func networks(w rr.World) []*reachability.Network {
	out := make([]*reachability.Network, len(rr.AddressFamilies()))
	for i, f := range rr.AddressFamilies() {
		out[i] = f.Network(w.Nodes, w.Peers, w.Mesh.On)
	}
	return out
}

// planned is the settled world with its plan.
func planned(w rr.World) (rr.World, rr.Plan) {
	w = w.Recognized()
	if len(w.Topology.Status.Record.Reflectors) != len(w.Marked()) { // as the controller keeps it
		w.Topology.Status.Record = rr.Without(w.Topology.Status.Record, MakePlan(w).Stale...)
	}
	w.Sightings = nil
	networks := networks(w)
	asked := map[string]bool{}
	for _, n := range w.Nodes {
		if n.IsReflectorOf(&w.Topology) && n.Ready == corev1.ConditionTrue && n.Speaks() {
			w.Sightings = append(w.Sightings, say(w, n.Name, networks, false))
			asked[n.Name] = true
		}
	}
	for {
		before, p := len(w.Sightings), MakePlan(w)
		for _, name := range p.Witnesses {
			if !asked[name] {
				w.Sightings = append(w.Sightings, say(w, name, networks, slices.Contains(p.Samples, name)))
				asked[name] = true
			}
		}
		if len(w.Sightings) == before {
			return w, p
		}
	}
}

// verdict is what the model says of networks, one for each family.
func verdict(w *rr.World, s model.State, networks []*reachability.Network, exempt string, known ...model.Judged) rr.Checks {
	checks, _ := model.Verdicts(w, s, networks, exempt, known...)
	return checks
}

// say is what a node says of its sessions, and of its routes.
func say(w rr.World, name string, networks []*reachability.Network, routes bool) rr.Sighting {
	at := slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.Name == name })
	s := rr.Sighting{Node: name, At: w.Now, Established: map[netip.Addr]bool{}, Mesh: map[netip.Addr]bool{}}
	if routes {
		s.Routes = &rr.Routes{Mesh: map[netip.Addr][]netip.Prefix{}, By: map[netip.Addr][]netip.Prefix{}}
	}
	for i, f := range rr.AddressFamilies() {
		if !f.Up(&w.Nodes[at]) {
			continue
		}
		for b, other := range w.Nodes {
			switch {
			case at == b:
			case networks[i].HasSession(int32(at), int32(b)):
				s.Established[f(&other)] = true
			case networks[i].Connected(int32(at), int32(b)):
				s.Mesh[f(&other)] = true
			}
		}
		if !routes {
			continue
		}
		networks[i].Learn(int32(at), func(origin int32, mesh bool, from []int32) {
			d := block(f(&w.Nodes[origin]))
			if mesh {
				s.Routes.Mesh[d.Addr()] = append(s.Routes.Mesh[d.Addr()], d)
			}
			for _, r := range from {
				s.Routes.By[f(&w.Nodes[r])] = append(s.Routes.By[f(&w.Nodes[r])], d)
			}
		})
	}
	if routes {
		for _, list := range s.Routes.By {
			slices.SortFunc(list, netip.Prefix.Compare)
		}
	}
	return s
}

// block is the one network of pods of a node; that it lies around the node's address does no harm in a model.
func block(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// tester is what tests and cases of properties have in common.
type tester interface {
	Helper()
	Fatalf(string, ...any)
}

// look sees a write: the worlds before and after it, and the plan whose first step it is.
type look = func(before, after rr.World, p rr.Plan)

// carryOut plans and applies until nothing remains to be done or it is refused, and returns the steps.
func carryOut(t tester, w rr.World, look look) (rr.World, []rr.Step) {
	t.Helper()
	return carry(t, w, 200, func(rr.Refusal) bool { return false }, look)
}

// travel is carryOut for plans of which nothing may be refused.
func travel(t tester, w rr.World, look look) (rr.World, []rr.Step) {
	t.Helper()
	var last string
	return carry(t, w, 2000, func(rr.Refusal) bool { return true }, func(before, after rr.World, p rr.Plan) {
		if rr.Kind(p.Steps[0]) != last {
			asksWhomItWaitsFor(t, before)
		}
		if last = rr.Kind(p.Steps[0]); look != nil {
			look(before, after, p)
		}
	})
}

// arrive is carryOut for plans that may lack nodes, but have no step that is refused as unsafe.
func arrive(t tester, w rr.World, look look) (rr.World, []rr.Step) {
	t.Helper()
	return carry(t, w, 600, func(r rr.Refusal) bool { return r.Reason == rr.ReasonUnsafe }, look)
}

// carry plans and applies until nothing remains, in at most so many steps, none of which may wait, nor its plan have a
// refusal that is wrong. Clients are on the move for good only where the plan says that there are too few reflectors.
func carry(
	t tester, w rr.World, most int, wrong func(rr.Refusal) bool, look look,
) (rr.World, []rr.Step) {
	t.Helper()
	var done []rr.Step
	for range most {
		var p rr.Plan
		w, p = planned(w)
		if slices.ContainsFunc(p.Refusals, wrong) {
			t.Fatalf("after %d steps: %+v\n%v", len(done), p.Refusals, kinds(done))
		}
		if outlasts(&w, p) {
			continue
		}
		if len(p.Steps) == 0 && p.Waiting == next.Held(&w) && tooFew(p) {
			return w, done
		}
		if p.Waiting != "" {
			t.Fatalf("after %d steps %v waits for %s\n%v", len(done), p.Steps, p.Waiting, kinds(done))
		}
		if len(p.Steps) == 0 {
			return w, done
		}
		w.Topology.Status.Spares = p.Spares // as the controller writes it before the step
		after := After(w, p.Steps[0])
		if look != nil {
			look(w, after, p)
		}
		w, done = after, append(done, p.Steps[0])
	}
	t.Fatalf("no end after %d steps: %v", len(done), kinds(done))
	return w, done
}

// asksWhomItWaitsFor checks that a step which waits for a report asks for it: in a cluster nobody else does.
func asksWhomItWaitsFor(t tester, w rr.World) {
	t.Helper()
	w.Sightings = nil
	p := MakePlan(w)
	if _, who, found := strings.Cut(p.Waiting, "reflector "); found {
		if who, waits := strings.CutSuffix(who, " has not reported its sessions"); waits && !slices.Contains(p.Witnesses, who) {
			t.Fatalf("%s waits for %s, and %v are asked", p.Steps[0], who, p.Witnesses)
		}
	}
}

// tooFew reports that a plan says that there are fewer reflectors than there should be.
func tooFew(p rr.Plan) bool {
	return slices.ContainsFunc(p.Notes, func(n rr.Note) bool { return n.Kind == rr.NoteTooFew })
}

// outlasts lets the time pass that a plan waits for: that for which the mesh stays on after an emergency, and the grace
// periods of the reflectors to which a client is on the move. It is false where the plan does not wait for that.
func outlasts(w *rr.World, p rr.Plan) bool {
	now := w.Now
	switch {
	case p.Waiting == "":
	case p.Emergency != nil && len(p.Steps) > 0 && rr.Is[rr.MeshOff](p.Steps[0]) && p.Waiting == gate.MeshStays(w):
		w.Now = w.Now.Add(health.MeshStays)
	case p.Waiting == next.Held(w):
		for _, t := range health.Troubles(w) {
			if t.Until.After(w.Now) {
				w.Now = t.Until
			}
		}
	}
	return w.Now.After(now)
}

// promotion makes a node a reflector of the first group.
func promotion(w *rr.World, n *rr.Node) rr.Step {
	change := next.NodeStep(n, "", n.Marks(w.Topology.Name))
	return rr.Promote{RoleChange: rr.RoleChange{NodeChange: change, ClusterID: w.Topology.Spec.ClusterID}}
}

func kinds(steps []rr.Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, rr.Kind(s)+" "+s.What().Object)
	}
	return out
}

// anyWorld draws a cluster: sizes, zones, trouble, workloads, families, foreign peers, and a topology over it.
func anyWorld(t *rapid.T, most int) rr.World {
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	w := cluster(rapid.IntRange(2, most).Draw(t, "nodes"), zones)
	dual := rapid.Bool().Draw(t, "dual stack")
	for i := range w.Nodes {
		n := &w.Nodes[i]
		n.Workloads = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "workloads")
		if dual {
			n.IPv6 = netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})
		}
		trouble(t, n)
	}
	numbers(t, &w)
	if rapid.IntRange(0, 3).Draw(t, "no stabilization") == 0 {
		w.Topology.Spec.Failure.Stabilization = &metav1.Duration{}
	}
	if rapid.Bool().Draw(t, "redundancy set") {
		r := int32(rapid.IntRange(2, 4).Draw(t, "redundancy"))
		w.Topology.Spec.Redundancy = &r
	} else if rapid.Bool().Draw(t, "per zone") {
		w.Topology.Spec.Sizing.PerZone = &v1alpha1.PerZone{
			Min: int32(rapid.IntRange(1, 2).Draw(t, "min")), Max: int32(rapid.IntRange(2, 3).Draw(t, "max")),
			RatioPermille: int32(rapid.IntRange(1, 100).Draw(t, "ratio")),
		}
	}
	return w
}

// numbers draws nodes with AS numbers of their own, and BGPPeers with one that is right or wrong.
func numbers(t *rapid.T, w *rr.World) {
	if rapid.IntRange(0, 3).Draw(t, "AS numbers") != 0 {
		return
	}
	number := rapid.SampledFrom([]uint32{rr.DefaultASNumber, 65001, 65002})
	any := rapid.IntRange(0, len(w.Nodes)-1)
	for range rapid.IntRange(0, 2).Draw(t, "of their own") {
		n := &w.Nodes[any.Draw(t, "who")]
		n.AS = number.Draw(t, "AS")
		n.ForeignAS = n.AS != rr.DefaultASNumber
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "numbered") {
		p := rr.Peer{Name: fmt.Sprintf("number-%d", i), PeerIP: w.Nodes[any.Draw(t, "to")].IPv4, ASNumber: number.Draw(t, "AS")}
		if rapid.Bool().Draw(t, "by a node") {
			p.Node = w.Nodes[any.Draw(t, "from")].Name
		}
		if p.PeerIP.IsValid() {
			w.Peers = append(w.Peers, p)
		}
	}
}

func trouble(t *rapid.T, n *rr.Node) {
	switch rapid.IntRange(0, 19).Draw(t, "trouble") {
	case 0:
		n.Ready, n.ReadySince = corev1.ConditionFalse, epoch().Add(-time.Duration(rapid.IntRange(1, 300).Draw(t, "since"))*time.Second)
	case 1:
		n.Ready, n.ReadySince = corev1.ConditionUnknown, epoch().Add(-time.Duration(rapid.IntRange(1, 300).Draw(t, "since"))*time.Second)
	case 2:
		n.Unschedulable = true
	case 3:
		n.Labels[corev1.LabelOSStable] = "windows"
	case 4:
		n.IPv4, n.IPv6 = netip.Addr{}, netip.Addr{}
	case 5:
		n.Taints = []corev1.Taint{{Key: "special", Effect: corev1.TaintEffectNoSchedule}}
	case 6:
		n.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
	}
}
