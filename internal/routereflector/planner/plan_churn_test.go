// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"math/rand/v2"
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
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/gate"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// history is a cluster to which things happen while a plan is carried out.
type history struct {
	*rapid.T
	world  rr.World
	random *rand.Rand
	// cut are pairs of nodes, by their addresses, between which no session comes up.
	cut map[[2]netip.Addr]bool
	// dead are nodes whose BIRD is dead and whose kubelet lives.
	dead map[string]bool
	// foreign are nodes that somebody else made reflectors.
	foreign map[string]bool
	made    int
	// changes counts what happened, writes what the plan did about it.
	changes, writes int
}

// newHistory draws a cluster: mostly small ones, now and then a large one, of more nodes than may have a mesh.
func newHistory(t *rapid.T, large int) *history {
	most := rapid.SampledFrom([]int{8, 8, 16, 16, 16, 30, 30, 60, 60, large}).Draw(t, "most")
	h := &history{
		T: t, random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), cut: map[[2]netip.Addr]bool{}, foreign: map[string]bool{},
		dead: map[string]bool{},
	}
	h.world = cluster(2+h.random.IntN(most-1), 1+h.random.IntN(4))
	h.world.Topology.Spec.Mode = v1alpha1.ModeFlat
	h.made = len(h.world.Nodes)
	for i := range h.world.Nodes {
		n := &h.world.Nodes[i]
		n.Workloads = h.random.IntN(3)
		if h.random.IntN(12) == 0 {
			h.hurt(n)
		}
		if h.random.IntN(100) == 0 {
			n.ClusterID, h.foreign[n.Name] = "9.9.9.9", true
		}
	}
	if h.random.IntN(4) == 0 {
		for i := range h.world.Nodes {
			h.world.Nodes[i].IPv6 = netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})
		}
	}
	h.world.Peers = []rr.Peer{{Name: "rack", PeerSpec: rr.PeerSpec{Filters: "x"}, PeerIP: netip.MustParseAddr("192.0.2.1")}}
	return h
}

// hurt makes a node unfit, or puts it into trouble.
func (h *history) hurt(n *rr.Node) {
	n.Labels = maps.Clone(n.Labels)
	since := h.world.Now.Add(-time.Duration(h.random.IntN(300)) * time.Second)
	switch h.random.IntN(7) {
	case 0:
		n.Ready, n.ReadySince = corev1.ConditionFalse, since
	case 1:
		n.Ready, n.ReadySince = corev1.ConditionUnknown, since
	case 2:
		n.Unschedulable = true
	case 3:
		n.Labels[corev1.LabelOSStable] = "windows"
	case 4:
		n.IPv4, n.IPv6 = netip.Addr{}, netip.Addr{}
	case 5:
		n.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
	case 6:
		n.Deleting = true
	}
}

// happen changes something: nodes come, go, fall ill and get well, sessions are cut and come back, the topology is edited, time passes.
func (h *history) happen() {
	h.changes++
	w := &h.world
	w.Nodes = slices.Clone(w.Nodes)
	at := h.random.IntN(len(w.Nodes))
	if reflectors := w.Marked(); len(reflectors) > 0 && h.random.IntN(2) == 0 {
		// What happens to reflectors is what matters most.
		name := reflectors[h.random.IntN(len(reflectors))]
		at = slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.Name == name })
	}
	switch h.random.IntN(9) {
	case 8:
		h.kill(&w.Nodes[at])
	case 0:
		if len(w.Nodes) > 2 {
			w.Nodes = slices.Delete(w.Nodes, at, at+1)
		}
	case 1:
		fresh := machine(h.made, 4)
		fresh.ReadySince = w.Now
		w.Nodes, h.made = append(w.Nodes, fresh), h.made+1
	case 2:
		h.hurt(&w.Nodes[at])
	case 3:
		well := machine(0, 1)
		n := &w.Nodes[at]
		n.Ready, n.ReadySince, n.Unschedulable, n.Taints, n.Deleting = well.Ready, w.Now.Add(-time.Hour), false, nil, false
		delete(h.dead, n.Name)
	case 4:
		h.cut[[2]netip.Addr{w.Nodes[at].IPv4, w.Nodes[h.random.IntN(len(w.Nodes))].IPv4}] = true
	case 5:
		clear(h.cut)
	case 6:
		h.edit()
	case 7:
		w.Now = w.Now.Add(time.Duration(h.random.IntN(400)) * time.Second)
	}
}

// edit changes the topology as users do.
func (h *history) edit() {
	spec := &h.world.Topology.Spec
	switch h.random.IntN(5) {
	case 0:
		number := int32(2 + h.random.IntN(4))
		spec.Redundancy = &number
	case 1:
		spec.Session.MaxRestartTime = &metav1.Duration{Duration: time.Duration(1+h.random.IntN(3)) * time.Minute}
	case 2:
		spec.Reflectors.Excluded = &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: fmt.Sprintf("zone-%d", h.random.IntN(4))}}
	case 3:
		spec.Reflectors.Excluded = nil
	case 4:
		spec.Mesh = []v1alpha1.MeshPolicy{v1alpha1.MeshManage, v1alpha1.MeshObserve}[h.random.IntN(2)]
	}
}

// kill lets the BIRD of a node die, and its witnesses have it lost if it is a reflector.
func (h *history) kill(n *rr.Node) {
	h.dead[n.Name] = true
	for i := range h.world.Topology.Status.LostReflectors {
		if h.world.Topology.Status.LostReflectors[i].Node == n.Name {
			return
		}
	}
	if n.Marked(&h.world.Topology) {
		since := rr.Second(h.world.Now.Add(-time.Duration(h.random.IntN(300)) * time.Second))
		h.world.Topology.Status.LostReflectors = append(h.world.Topology.Status.LostReflectors, v1alpha1.LostReflector{Node: n.Name, Since: since})
	}
}

// witness is the world in which its witnesses report as well, and nobody has a session with a dead BIRD.
func (h *history) witness(w rr.World) rr.World {
	networks := networks(w)
	for _, name := range MakePlan(w).Standing {
		if !slices.ContainsFunc(w.Sightings, func(s rr.Sighting) bool { return s.Node == name }) {
			w.Sightings = append(w.Sightings, say(w, name, networks, false))
		}
	}
	for i := range w.Sightings {
		s := &w.Sightings[i]
		s.Standing, s.Lost = true, map[netip.Addr]time.Time{}
		for _, n := range w.Nodes {
			lost := h.dead[n.Name] || h.dead[s.Node] && s.Node != n.Name
			switch reflector := n.Marked(&w.Topology) && n.Name != s.Node && n.IPv4.IsValid(); {
			case lost && (reflector || s.Established[n.IPv4]):
				delete(s.Established, n.IPv4)
				s.Lost[n.IPv4] = w.Now.Add(-time.Minute)
			case reflector && n.Ready == corev1.ConditionTrue:
				s.Established[n.IPv4] = true // the model takes one for dead that is still noted as lost
			}
		}
	}
	w.Topology.Status.LostReflectors = MakePlan(w).Lost
	return health.Witnessed(w)
}

// settled is the world once all sessions that are not cut have come up and all who are asked have spoken.
func (h *history) settled() rr.World {
	w := settled(h.world)
	// Who is lost changes what sessions there are, and so who is lost.
	for known := len(h.world.Topology.Status.LostReflectors) == 0 && len(h.dead) == 0; !known; {
		w = h.witness(settled(h.world))
		was := h.world
		h.world.Topology.Status.LostReflectors, h.world.Nodes = w.Topology.Status.LostReflectors, w.Nodes
		known = cmp.Equal(was.Topology.Status.LostReflectors, h.world.Topology.Status.LostReflectors) &&
			slices.EqualFunc(was.Nodes, h.world.Nodes, func(a, b rr.Node) bool {
				return a.Dead == b.Dead && a.LostSince.Equal(b.LostSince)
			})
	}
	for _, s := range w.Sightings {
		n, _ := w.Node(s.Node)
		for a := range s.Established {
			if h.isCut(n.IPv4, a) {
				delete(s.Established, a)
			}
		}
		for a := range s.Mesh {
			if h.isCut(n.IPv4, a) {
				delete(s.Mesh, a)
			}
		}
	}
	return w
}

func (h *history) isCut(a, b netip.Addr) bool {
	return h.cut[[2]netip.Addr{a, b}] || h.cut[[2]netip.Addr{b, a}]
}

// step carries out the next step if there is one that waits for nothing, and checks it. It is false at the end.
func (h *history) step() bool {
	w := h.settled()
	p := MakePlan(w)
	if outlasts(&w, p) {
		h.world.Now = w.Now
		w = h.settled()
		p = MakePlan(w)
	}
	if again := MakePlan(w); !cmp.Equal(p, again, compared()) {
		h.Fatalf("a new process plans otherwise: %s", cmp.Diff(p, again, compared()))
	}
	if len(p.Steps) == 0 || p.Waiting != "" {
		return false
	}
	step, after := p.Steps[0], After(w, p.Steps[0])
	h.modest(step)
	h.settledBefore(w, step, p)
	safe(h.T)(w, after, p)
	h.bounded(w, after, p)
	h.world, h.writes = after, h.writes+1
	h.world.Sightings = nil
	return true
}

// modest: what is somebody else's is never touched.
func (h *history) modest(step rr.Step) {
	if step.What().Object == "BGPPeer/rack" || h.foreign[step.Node()] {
		h.Fatalf("%s touches what is not the topology's", step)
	}
}

// settledBefore: no reflector is promoted or demoted, and the mesh does not go, while a session of a reflector that stays is cut: but for
// the client that has no session left with any, once the mesh is off. A node that made itself a reflector holds nothing up. A spare that
// replaces a lost reflector passes nothing on before, so that it waits for a session of its own and for nobody else's.
func (h *history) settledBefore(w rr.World, step rr.Step, p rr.Plan) {
	w = w.Honest()
	if !rr.Is[rr.Promote](step) && !rr.Is[rr.MeshOff](step) && (!rr.Is[rr.Demote](step) || gate.GatedByMesh(&w)) {
		return
	}
	leaving := rr.InRole(choose.Reflectors(&w, choose.Choose(&w, design.Decide(&w))), rr.RoleLeaving)
	if !rr.Is[rr.Demote](step) {
		leaving = nil
	}
	stay := slices.DeleteFunc(w.Working(leaving), func(r rr.Node) bool { return !rr.AddressFamilies()[0].Up(&r) })
	spare := rr.Is[rr.Promote](step) && !w.Mesh.On && slices.ContainsFunc(p.Spares, func(s v1alpha1.Spare) bool { return s.Node == step.Node() })
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !rr.AddressFamilies()[0].Up(n) || !n.IsClient(&w.Topology) && !n.IsReflectorOf(&w.Topology) {
			continue
		}
		apart := h.apart(n, stay)
		alone := n.IsClient(&w.Topology) && !w.Mesh.On && (h.dead[n.Name] || len(apart) == len(stay))
		switch {
		case spare && n.Name == step.Node() && alone && len(stay) > 0:
			h.Fatalf("%s is done while it has no session with any reflector", step)
		case !spare && !alone && len(apart) > 0:
			h.Fatalf("%s is done while %s has no session with %s", step, apart[0].Name, n.Name)
		}
	}
}

// apart are those of the reflectors whose session with a node is cut.
func (h *history) apart(n *rr.Node, reflectors []rr.Node) []rr.Node {
	return slices.DeleteFunc(slices.Clone(reflectors), func(r rr.Node) bool {
		return n.Name == r.Name || !h.isCut(n.IPv4, r.IPv4)
	})
}

// bounded: one cluster ID, and no more paths than a flat topology has, but for those that nodes multiply which made themselves reflectors;
// the mesh goes only where the reflectors carry all that it does.
func (h *history) bounded(before, after rr.World, p rr.Plan) {
	for i := range after.Nodes {
		n := &after.Nodes[i]
		if n.Marked(&after.Topology) && n.ClusterID != after.Topology.Spec.ClusterID {
			h.Fatalf("%s: %s has cluster ID %q", p.Steps[0], n.Name, n.ClusterID)
		}
	}
	before, after = before.Honest(), after.Honest()
	was, is := model.Judge(&before, model.StateOf(before)).Checks, model.Judge(&after, model.StateOf(after)).Checks
	if most := max(model.MaxPathsFactor*len(p.Reflectors), was.MaxPathsPerPrefix); is.MaxPathsPerPrefix > most {
		h.Fatalf("%s: %d paths, %d are the most", p.Steps[0], is.MaxPathsPerPrefix, most)
	}
	if rr.Is[rr.MeshOff](p.Steps[0]) && is.UnreachablePairs > was.UnreachablePairs {
		h.Fatalf("the mesh goes, and %d pairs lose their path", is.UnreachablePairs-was.UnreachablePairs)
	}
}

// Whatever happens while a plan is carried out, every write is safe, and in the end, once nothing happens any more and all sessions are up, the plan
// comes to its end, with no more writes than a fixed number for each thing that happened.
func TestChurnDuringThePlan(t *testing.T) {
	t.Parallel()
	large := cases.Number(t, 400, 2000, 2000)
	cases.Check(t, func(t *rapid.T) {
		h := newHistory(t, large)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range h.random.IntN(3) {
				h.step()
			}
			for range h.random.IntN(3) {
				h.happen()
			}
		}
		clear(h.cut)
		clear(h.dead)
		h.world.Now = h.world.Now.Add(time.Hour) // all grace periods are over
		for h.step() {
			if h.writes > 40*(1+h.changes) {
				t.Fatalf("%d writes for %d changes, and no end", h.writes, h.changes)
			}
		}
		if p := MakePlan(h.settled()); p.Waiting != "" {
			t.Fatalf("with all sessions up it waits: %s", p.Waiting)
		}
	})
}

// A client that comes, goes or is relabeled moves nobody else: not one write.
func TestClientsMoveNobody(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w, _ := carryOut(t, cluster(rapid.IntRange(6, 40).Draw(t, "nodes"), 3), nil)
		before := w.Marked()
		for i := range rapid.IntRange(1, 8).Draw(t, "changes") {
			if rapid.Bool().Draw(t, "comes") {
				w.Nodes = append(slices.Clone(w.Nodes), machine(5000+i, 3))
				continue
			}
			at := slices.IndexFunc(w.Nodes, func(n rr.Node) bool { return n.ClusterID == "" })
			if at < 0 {
				continue
			}
			w.Nodes = slices.Delete(slices.Clone(w.Nodes), at, at+1)
		}
		p := settledPlan(w)
		if len(p.Steps) != 0 || !slices.Equal(w.Marked(), before) || p.Checks.UnreachablePairs != 0 {
			t.Fatalf("%v %+v", p.Steps, p.Checks)
		}
	})
}

// The work grows with the number of nodes and not faster: four times the nodes, at most five times the allocations.
func TestThePlanGrowsWithTheNodes(t *testing.T) { //nolint:paralleltest // it counts the allocations of the process
	work := func(nodes int) (enable, steady float64) {
		w := cluster(nodes, 3)
		w.Topology.Spec.Mode = v1alpha1.ModeFlat
		enable = testing.AllocsPerRun(3, func() { MakePlan(w) })
		for p := MakePlan(w); len(p.Steps) > 0; p = MakePlan(w) {
			w = After(w, p.Steps[0])
		}
		return enable, testing.AllocsPerRun(3, func() { MakePlan(w) })
	}
	smallEnable, smallSteady := work(1000)
	bigEnable, bigSteady := work(4000)
	t.Logf("allocations for 1,000 and 4,000 nodes: enable %.0f, %.0f; steady %.0f, %.0f", smallEnable, bigEnable, smallSteady, bigSteady)
	for what, pair := range map[string][2]float64{"enable": {smallEnable, bigEnable}, "steady": {smallSteady, bigSteady}} {
		if pair[1] > 5*pair[0] {
			t.Errorf("%s: %.0f allocations for 1,000 nodes, %.0f for 4,000", what, pair[0], pair[1])
		}
	}
}

// Model checks of a network grow with its sessions: four times the nodes have four times as many.
func TestTheModelGrowsWithTheSessions(t *testing.T) {
	t.Parallel()
	evaluations := func(nodes int) int {
		w, _ := carryOut(t, cluster(nodes, 3), nil)
		count := 0
		for i := range w.Peers {
			w.Peers[i].NodeMatcher = counting{w.Peers[i].NodeMatcher, &count}
			w.Peers[i].PeerMatcher = counting{w.Peers[i].PeerMatcher, &count}
		}
		MakePlan(w)
		return count
	}
	if small, big := evaluations(100), evaluations(400); big > 5*small || small == 0 {
		t.Errorf("%d evaluations of selectors for 100 nodes, %d for 400", small, big)
	}
}

// counting counts evaluations.
type counting struct {
	rr.Matcher
	count *int
}

// Evaluate implements Matcher.
func (c counting) Evaluate(labels map[string]string) bool {
	*c.count++
	return c.Matcher.Evaluate(labels)
}
