// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"maps"
	"slices"

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

// maxPathsFactor bounds the paths of a prefix: a state with more than so many times the reflectors is refused, as no flat topology has it.
const maxPathsFactor = 4

// state is what the steps change.
type state struct {
	nodes []Node
	peers []Peer
	mesh  bool
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
		if step.Kind == EnsurePeer {
			s.peers = append(s.peers, step.Peer)
		}
	case Promote, Adopt, Demote:
		s.nodes = slices.Clone(s.nodes)
		at := slices.IndexFunc(s.nodes, func(n Node) bool { return n.Name == step.Node })
		if at < 0 {
			return s
		}
		n := &s.nodes[at]
		n.Labels = maps.Clone(n.Labels)
		if step.Kind != Demote {
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			n.Labels[v1alpha1.ReflectorLabel], n.ClusterID = t.Name, t.Spec.ClusterID
		} else {
			delete(n.Labels, v1alpha1.ReflectorLabel)
			n.ClusterID = ""
		}
	}
	return s
}

// After is the World once a step has been carried out and everything has settled, as [Plan.Simulate] and tests look at it.
func (w World) After(step Step) World {
	s := w.state().after(step, w.Topology)
	w.Nodes, w.Peers, w.Mesh.On = s.nodes, s.peers, s.mesh
	return w
}

// judged is a state with what the model says of it.
type judged struct {
	state
	networks []*reachability.Network
	checks   Checks
}

// judge asks the model about a state in which everything has settled.
func (w World) judge(s state) judged {
	j := judged{state: s}
	for _, f := range familiesOf(s.nodes) {
		j.networks = append(j.networks, f.network(s.nodes, s.peers, s.mesh))
	}
	j.checks = w.verdict(j.state, j.networks, "")
	return j
}

// verdict looks at networks, one for each family. exempt names a node whose own traffic does not count, "" for none.
func (w World) verdict(s state, networks []*reachability.Network, exempt string) Checks {
	out := Checks{MinSessionsPerClient: -1}
	for i, f := range familiesOf(s.nodes) {
		v := networks[i].Judge(func(at int32) bool { return !f.up(&s.nodes[at]) || s.nodes[at].Name == exempt })
		out.UnreachablePairs += v.UnreachablePairs
		out.MaxPathsPerPrefix = max(out.MaxPathsPerPrefix, v.MaxPaths)
		out.Examples = append(out.Examples, v.Examples...)
		if least := w.leastSessions(f, s, networks[i], exempt); least >= 0 && (out.MinSessionsPerClient < 0 || least < out.MinSessionsPerClient) {
			out.MinSessionsPerClient = least
		}
	}
	out.MinSessionsPerClient = max(out.MinSessionsPerClient, 0)
	return out
}

// leastSessions is the least number of sessions that a live client has with the topology's reflectors, -1 without clients.
func (w World) leastSessions(f family, s state, n *reachability.Network, exempt string) int {
	var reflectors []int32
	for i := range s.nodes {
		if node := &s.nodes[i]; node.isReflectorOf(&w.Topology) && f.up(node) {
			reflectors = append(reflectors, int32(i))
		}
	}
	least := -1
	for i := range s.nodes {
		node := &s.nodes[i]
		if node.Name == exempt || !f.up(node) || !node.isClient(&w.Topology) {
			continue
		}
		count := 0
		for _, r := range reflectors {
			if n.HasSession(int32(i), r) {
				count++
			}
		}
		if least < 0 || count < least {
			least = count
		}
	}
	return least
}

// transit says what the model sees between a step and the moment at which new sessions are up: only what is there before and after, and is the
// same session, carries routes.
func (w World) transit(before, after judged, step Step) Checks {
	networks := make([]*reachability.Network, len(before.networks))
	reset := w.resetByStep(before.state, step)
	for i := range networks {
		networks[i] = before.networks[i].Surviving(after.networks[i], reset)
	}
	return w.verdict(after.state, networks, step.Node)
}

// resetByStep says which sessions restart because a step changes their options: those of a BGPPeer whose options change.
func (w World) resetByStep(before state, step Step) func(a, b int32) bool {
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
func (w World) breaks(before, after judged, step Step, wanted int) string {
	others := before.checks
	if step.Node != "" {
		others = w.verdict(before.state, before.networks, step.Node)
	}
	for _, moment := range []struct {
		when    string
		was, is Checks
	}{{"for a moment", others, w.transit(before, after, step)}, {"for good", before.checks, after.checks}} {
		if more := moment.is.UnreachablePairs - moment.was.UnreachablePairs; more > 0 {
			return fmt.Sprintf("it would leave %d pairs of nodes without a path %s%s", more, moment.when, example(moment.is.Examples))
		}
		if least := min(wanted-1, moment.was.MinSessionsPerClient); !after.mesh && moment.is.MinSessionsPerClient < least {
			return fmt.Sprintf("it would leave clients with %d sessions %s, where %d are the least", moment.is.MinSessionsPerClient, moment.when, least)
		}
	}
	if limit := w.mostPaths(step, before.checks.MaxPathsPerPrefix, wanted); after.checks.MaxPathsPerPrefix > limit {
		return fmt.Sprintf("nodes would have up to %d paths to one prefix, where %d are the most", after.checks.MaxPathsPerPrefix, limit)
	}
	return ""
}

func example(pairs []reachability.Pair) string {
	if len(pairs) == 0 {
		return ""
	}
	return fmt.Sprintf(", such as %s to %s", pairs[0].From, pairs[0].To)
}
