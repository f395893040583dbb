// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// Checks is what the model says of a state of the cluster.
type Checks struct {
	// UnreachablePairs counts the ordered pairs of live nodes without a path, summed over the address families.
	UnreachablePairs int `json:"unreachablePairs"`
	// MinSessionsPerClient is the least number of sessions with the topology's reflectors that a live client has.
	MinSessionsPerClient int `json:"minSessionsPerClient"`
	// MaxPathsPerPrefix is the greatest number of paths that a node has to one prefix.
	MaxPathsPerPrefix int `json:"maxPathsPerPrefix"`
	// Examples names some of the unreachable pairs.
	Examples []reachability.Pair `json:"examples,omitempty"`
}

// maxPathsFactor bounds the paths of a prefix: a flat state with more than so many times the reflectors is refused, as no flat topology has it.
const maxPathsFactor = 4

// state is what the steps change.
type state struct {
	nodes []Node
	peers []Peer
	mesh  bool
	known known
}

func (w World) state() state {
	return state{nodes: w.Nodes, peers: w.Peers, mesh: w.Mesh.On}
}

// after is the state once a step has been carried out. The state itself stays.
func (s state) after(step Step, t v1alpha1.RouteReflectorTopology) state {
	switch step.Kind {
	case MeshOn, MeshOff:
		s.mesh = step.Kind == MeshOn
	case EnsurePeer, RemovePeer, RetirePeer:
		s.peers = slices.DeleteFunc(slices.Clone(s.peers), func(p Peer) bool { return p.Name == step.Peer.Name })
		s.known = s.known.without(step.Peer.Name)
		if step.Kind == EnsurePeer {
			s.peers = append(s.peers, step.Peer)
		}
	case Promote, Adopt, Demote, Assign, Join, Leave, Release:
		s.nodes = slices.Clone(s.nodes)
		at := slices.IndexFunc(s.nodes, func(n Node) bool { return n.Name == step.Node })
		if at < 0 {
			return s
		}
		n := &s.nodes[at]
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		for key, value := range step.NodeLabels {
			if value == nil {
				delete(n.Labels, key)
				continue
			}
			n.Labels[key] = *value
		}
		switch step.Kind {
		case Promote, Adopt:
			n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = t.Name, cmp.Or(step.ClusterID, t.Spec.ClusterID)
			n.Written, n.ForeignMark = &Mark{Group: n.labeledGroup(), ClusterID: n.ClusterID}, false
		case Demote:
			delete(n.Labels, v1alpha1.ReflectorLabel)
			n.ClusterID, n.Written = "", nil
		default: // no other step changes a role
		}
		s.known = s.known.with(s.nodes, at, s.peers)
	}
	return s
}

// After is the World once a step has been carried out and everything has settled, as [Plan.Simulate] and tests look at it.
func (w World) After(step Step) World {
	w = w.Recognized()
	if n, exists := factsOf(&w).node(step.Node); exists {
		step.UID = cmp.Or(step.UID, n.UID)
	}
	w.Topology.Status.Record = Recorded(w.Topology.Status.Record, step, w.Topology)
	if w.Topology.Status.Emergency = candidatesOf(&w).emergencyStatus(); step.Kind == MeshOff {
		w.Topology.Status.Emergency = nil
	}
	return w.in(w.state().after(step, w.Topology))
}

// in is the World in another state.
func (w World) in(s state) World {
	w.Nodes, w.Peers, w.Mesh.On = s.nodes, s.peers, s.mesh
	return w
}

// judged is a state with what the model says of it.
type judged struct {
	state
	// networks and verdicts are one for each family.
	networks []*reachability.Network
	verdicts []reachability.Verdict
	checks   Checks
}

// paths are the greatest numbers of paths that a node of the cluster's AS, and one of another, has to one prefix.
func (j judged) paths() (own, foreign int) {
	for _, v := range j.verdicts {
		own, foreign = max(own, v.MaxPaths), max(foreign, v.ForeignPaths)
	}
	return own, foreign
}

// judge asks the model about a state in which everything has settled. known are states of the same nodes that it has been asked about.
func (w checks) judge(s state, known ...judged) judged {
	j := judged{state: s.remembering()}
	for i, f := range families() {
		if f.speaks(s.nodes) {
			j.networks = append(j.networks, f.networkOf(s.nodes, s.peers, s.mesh, j.ends(i)))
		}
	}
	j.checks, j.verdicts = w.verdicts(j.state, j.networks, "", known...)
	return j
}

// verdicts looks at networks, one for each family, and returns what was said of each as well. exempt names a node whose own traffic does not count, "" for
// none. What is known of a network is not asked again: most steps change it for few nodes or none, no step changes who is up, and to follow all routes is
// most of the work of a plan.
func (w checks) verdicts(s state, networks []*reachability.Network, exempt string, known ...judged) (Checks, []reachability.Verdict) {
	out := Checks{MinSessionsPerClient: -1}
	var verdicts []reachability.Verdict
	for i, f := range familiesOf(s.nodes) {
		at := -1
		if exempt == "" {
			at = slices.IndexFunc(known, func(k judged) bool { return networks[i].Same(k.networks[i]) })
		}
		var v reachability.Verdict
		if at >= 0 {
			v = known[at].verdicts[i]
		} else {
			v = networks[i].Judge(func(at int32) bool { return !f.up(&s.nodes[at]) || s.nodes[at].Name == exempt })
		}
		verdicts = append(verdicts, v)
		out.UnreachablePairs += v.UnreachablePairs
		out.MaxPathsPerPrefix = max(out.MaxPathsPerPrefix, v.MaxPaths, v.ForeignPaths)
		out.Examples = append(out.Examples, v.Examples...)
		if least := w.leastSessions(f, s, networks[i], exempt); least >= 0 && (out.MinSessionsPerClient < 0 || least < out.MinSessionsPerClient) {
			out.MinSessionsPerClient = least
		}
	}
	out.MinSessionsPerClient = max(out.MinSessionsPerClient, 0)
	return out, verdicts
}

// leastSessions is the least number of sessions that a live client has with the topology's reflectors, -1 without clients.
func (w checks) leastSessions(f family, s state, n *reachability.Network, exempt string) int {
	var reflectors []int32
	serves := make([]bool, len(s.nodes))
	for i := range s.nodes {
		if node := &s.nodes[i]; node.isReflectorOf(&w.Topology) && f.up(node) {
			reflectors, serves[i] = append(reflectors, int32(i)), true
		}
	}
	at, least := w.in(s), -1
	clients := factsOf(&at).roster()
	for i := range s.nodes {
		node := &s.nodes[i]
		if node.Name == exempt || !f.up(node) || !node.isClient(&w.Topology) {
			continue
		}
		count := n.SessionsWith(int32(i), serves)
		if count == 0 && partedFromAll(n, int32(i), slices.DeleteFunc(slices.Clone(reflectors), func(r int32) bool {
			return s.nodes[r].Name == exempt || !clients.has(node, s.nodes[r].group())
		})) {
			continue // no step gives it any, and it must not make the others' of no account
		}
		if least < 0 || count < least {
			least = count
		}
	}
	return least
}

// partedFromAll reports that a client has reflectors, and no session comes up with any. The reflector that a step makes has none yet, and is not among them.
func partedFromAll(n *reachability.Network, client int32, reflectors []int32) bool {
	return len(reflectors) > 0 && !slices.ContainsFunc(reflectors, func(r int32) bool { return !n.Parted(client, r) })
}

// transit says what the model sees between a step and the moment at which new sessions are up: only what is there before and after, and is the
// same session, carries routes.
func (w checks) transit(before, after judged, step Step) Checks {
	networks := make([]*reachability.Network, len(before.networks))
	reset := w.resetByStep(before.state, step)
	for i := range networks {
		networks[i] = before.networks[i].Surviving(after.networks[i], reset)
	}
	checks, _ := w.verdicts(after.state, networks, step.exempt(), before, after)
	return checks
}

// changesRole reports that the step makes a node a reflector, or an ordinary one.
func (s Step) changesRole() bool { return s.Kind == Promote || s.Kind == Demote }

// exempt is the node whose own sessions the step cannot but reset, "" if it resets none.
func (s Step) exempt() string {
	if s.changesRole() {
		return s.Node
	}
	return ""
}

// resetByStep returns which sessions restart because a step changes their options: those of a BGPPeer whose options change.
func (w checks) resetByStep(before state, step Step) func(a, b int32) bool {
	if step.Kind != EnsurePeer {
		return nil
	}
	at := slices.IndexFunc(before.peers, func(p Peer) bool { return p.Name == step.Peer.Name })
	if at < 0 || before.peers[at].SameSessions(step.Peer.PeerSpec) {
		return nil
	}
	reflector := func(i int32) bool { return before.nodes[i].isReflectorOf(&w.Topology) }
	return func(a, b int32) bool { return reflector(a) || reflector(b) }
}

// breaks says in a sentence what a step would break, "" if nothing. What is broken already does not count: a step must make nothing worse.
func (w checks) breaks(before, after judged, step Step, wanted int) string {
	others := before.checks
	if step.exempt() != "" {
		others, _ = w.verdicts(before.state, before.networks, step.exempt())
	}
	parted := 0
	if step.Kind == MeshOff && w.Topology.Status.Emergency != nil {
		parted = w.partedBefore(before.state)
	}
	for _, moment := range []struct {
		when    string
		was, is Checks
	}{{"for a moment", others, w.transit(before, after, step)}, {"for good", before.checks, after.checks}} {
		if more := moment.is.UnreachablePairs - max(moment.was.UnreachablePairs, parted); more > 0 {
			return fmt.Sprintf("it would leave %d pairs of nodes without a path %s%s%s", more, moment.when, example(moment.is.Examples),
				w.becauseOfASNumbers(moment.is.Examples))
		}
		// Where the last client has become a reflector there is nobody to have sessions.
		if least := min(wanted-1, moment.was.MinSessionsPerClient); !after.mesh && w.liveClients(after.state, step.exempt()) && moment.is.MinSessionsPerClient < least {
			return fmt.Sprintf("it would leave clients with %d sessions %s, and the minimum is %d%s", moment.is.MinSessionsPerClient, moment.when, least,
				w.becauseOfASNumbers(nil))
		}
	}
	// A reflector passes on to another AS whatever it has, and it has each route from every other reflector as well: as many times more paths as there are
	// reflectors, and no more, since who is of that AS passes nothing on.
	limit := w.pathLimit(after.state, wanted)
	own, foreign := before.paths()
	ownThen, foreignThen := after.paths()
	for _, p := range []struct{ was, is, most int }{{own, ownThen, limit}, {foreign, foreignThen, limit * wanted}} {
		if most := w.mostPaths(step, p.was, p.most); p.is > most {
			return fmt.Sprintf("nodes would have up to %d paths to one prefix, where %d are the most", p.is, most)
		}
	}
	return ""
}

// partedBefore counts the pairs of nodes that had no path before an emergency, and have one by the mesh that is on since: the best reflector that there can be,
// which has a session with every client and every reflector, would give them none, and neither would those of somebody else's that are dead now, as if they
// had lived: they may have died in the emergency. A node that came later does not count: it has lost nothing to the emergency.
func (w checks) partedBefore(s state) int {
	id, now := w.Topology.Spec.ClusterID, s.nodes
	s.nodes = append(slices.Clone(s.nodes), Node{
		Labels: map[string]string{v1alpha1.ReflectorLabel: w.Topology.Name}, ClusterID: id, Written: &Mark{Group: firstGroup, ClusterID: id}, Ready: corev1.ConditionTrue,
		IPv4: netip.AddrFrom4([4]byte{192, 0, 2, 1}), IPv6: netip.MustParseAddr("2001:db8::1"), // of ranges for documentation, which no node has
	})
	for i := range now {
		if n := &s.nodes[i]; n.foreignReflector(&w.Topology) && w.servesOthers(n) {
			n.Ready = corev1.ConditionTrue
		}
	}
	best, count := len(now), 0
	for _, f := range familiesOf(w.Nodes) {
		count += f.network(s.nodes, s.peers, false).Judge(func(at int32) bool {
			return int(at) == best || !f.up(&now[at]) || now[at].Created.After(w.Topology.Status.Emergency.Since.Time)
		}).UnreachablePairs
	}
	return count
}

// liveClients reports whether there is a live client but for one.
func (w checks) liveClients(s state, but string) bool {
	return slices.ContainsFunc(s.nodes, func(n Node) bool { return n.Name != but && n.Ready == corev1.ConditionTrue && n.isClient(&w.Topology) })
}

// pathLimit is the greatest number of paths that a step may lead to. In a hierarchy a path leads from one of the origin's reflectors by a
// spine to one of the receiver's; both may be on the way from a group to another, and a reflector more may be in each group and among the
// spines while one is replaced. What a spine itself announces comes to the others by every group, so that there are as many paths to it as
// there are groups.
func (w checks) pathLimit(s state, wanted int) int {
	groups := map[int]bool{}
	for i := range s.nodes {
		if n := &s.nodes[i]; n.marked(&w.Topology) {
			groups[n.group()] = true
		}
	}
	if len(groups) == 0 || len(groups) == 1 && groups[firstGroup] {
		return maxPathsFactor * wanted
	}
	each := 2 * (wanted + 1)
	return each * (spineCount*each + spineCount + len(groups)*each)
}

func example(pairs []reachability.Pair) string {
	if len(pairs) == 0 {
		return ""
	}
	return fmt.Sprintf(", such as %s to %s", pairs[0].From, pairs[0].To)
}

// fallback plans what remains in an emergency in which no node may be a reflector: the mesh, if it is the topology's to switch, and not too large
// with the Nodes that there were.
func (w checks) fallback(p *Plan, now judged) {
	if !w.emergency() && w.adrift() == "" || w.Topology.Spec.Mesh != v1alpha1.MeshManage || w.meshTooLargeByFar() {
		return
	}
	step := w.meshStep(MeshOn, "no reflector is running, and no node may become one; the mesh takes over")
	p.Target = w.judge(now.state.after(step, w.Topology)).checks
	p.Steps, p.Simulated, p.AtOnce = []Step{step}, []Simulated{{Step: step, Checks: p.Target}}, 1
}

// maxClientSteps is how many writes to clients a plan lists: of those that come after them it lists none. Later plans do, as it is carried out.
const maxClientSteps = 8

// check keeps the steps that the model lets pass, up to the first that it does not, and returns the World after them.
func (w checks) check(p *Plan, now judged, chosen choice) (at World) {
	role := map[string]Reflector{}
	for _, r := range p.Reflectors {
		role[r.Node] = r
	}
	clients := 0
	for at = *w.World; ; {
		stage := stagesOf(&at).stage(chosen, role)
		if len(stage) == 0 {
			return at
		}
		for _, step := range stage {
			if step.ofClient() {
				if clients++; clients > maxClientSteps {
					p.More = true
					return at
				}
			}
			next := now
			if !now.retired(step) {
				next = w.judge(w.afterAll(now.state, step), now)
				if broken := w.breaks(now, next, step, chosen.least()); broken != "" && !w.abandons() {
					p.Refusals = append(p.Refusals, Refusal{ReasonUnsafe, fmt.Sprintf("%s %s is not done: %s", step.Kind, step.Object, broken)})
					return at
				}
			}
			p.Steps = append(p.Steps, step)
			p.Simulated = append(p.Simulated, Simulated{Step: step, Checks: next.checks})
			p.Target, now, at = next.checks, next, at.in(next.state)
		}
	}
}

// afterAll is the state after a step, and with the first RetirePeer after all of them: more sessions than those of the last state never take a path
// away, so that what holds when the last one is gone holds at every prefix. An old cluster has thousands of them.
func (w checks) afterAll(s state, step Step) state {
	if step.Kind != RetirePeer {
		return s.after(step, w.Topology)
	}
	for _, p := range w.adoptedPeers() {
		s = s.after(Step{Kind: RetirePeer, Peer: p}, w.Topology)
	}
	return s
}

// mostPaths is how many paths to one prefix a state may bring. Where reflectors with IDs of their own are taken over, the first of them gets a session
// with every client before the number falls with each ID that goes, so that for as long it may be twice as many; uncounted ones are too many.
// most is what a state like the one after the step may bring.
func (w checks) mostPaths(step Step, before, most int) int {
	limit := max(most, before)
	n, _ := w.node(step.Node)
	if (step.Kind == Adopt || step.Kind == Promote) && n.adoptedBy(&w.Topology) {
		return min(max(limit, 2*before), reachability.MaxPaths-1)
	}
	return limit
}

// retired says that the judged state lacks the BGPPeer of a RetirePeer already.
func (j judged) retired(step Step) bool {
	return step.Kind == RetirePeer && !slices.ContainsFunc(j.peers, func(p Peer) bool { return p.Name == step.Peer.Name })
}
