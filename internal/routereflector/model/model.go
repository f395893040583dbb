// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
)

// MaxPathsFactor bounds the paths of a prefix: a flat state with more than so many times the reflectors is refused, as
// no flat topology has it.
const MaxPathsFactor = 4

// State is what the steps change.
type State struct {
	Nodes []rr.Node
	Peers []rr.Peer
	Mesh  bool
	known known
	// up says which nodes count, for each family by its index in [rr.AddressFamilies]; nil for one that no node speaks. No
	// step changes that.
	up *[2][]bool
}

// StateOf is what steps change of a World.
func StateOf(w rr.World) State {
	return State{Nodes: w.Nodes, Peers: w.Peers, Mesh: w.Mesh.On}
}

// After is the state once a step has been carried out. The state itself stays.
func (s State) After(step rr.Step) State {
	switch step := step.(type) {
	case rr.MeshOn:
		s.Mesh = true
	case rr.MeshOff:
		s.Mesh = false
	case rr.EnsurePeer:
		s = s.without(step.Peer.Name)
		s.Peers = append(s.Peers, step.Peer)
	case rr.RemovePeer:
		return s.without(step.Name)
	case rr.RetirePeer:
		return s.without(step.Name)
	case rr.Promote, rr.Adopt, rr.Demote, rr.Assign, rr.Join, rr.Leave, rr.Release:
		c, clusterID := step.Change()
		s.Nodes = slices.Clone(s.Nodes)
		at := slices.IndexFunc(s.Nodes, func(n rr.Node) bool { return n.Name == c.Name })
		if at < 0 {
			return s
		}
		n := &s.Nodes[at]
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		for key, value := range c.Labels {
			if value == nil {
				delete(n.Labels, key)
				continue
			}
			n.Labels[key] = *value
		}
		if clusterID != nil {
			n.ClusterID, n.Written = *clusterID, nil
			if c.Labels[v1alpha1.ReflectorLabel] != nil {
				n.Written, n.ForeignMark = &rr.Mark{Group: n.LabeledGroup(), ClusterID: n.ClusterID}, false
			}
		}
		s.known = s.known.with(s.Nodes, at, s.Peers)
	}
	return s
}

// In is the World in another state.
func In(w rr.World, s State) rr.World {
	w.Nodes, w.Peers, w.Mesh.On = s.Nodes, s.Peers, s.Mesh
	return w
}

// Judged is a state with what the model says of it.
type Judged struct {
	State
	// Networks and verdicts are one for each family.
	Networks []*reachability.Network
	Verdicts []reachability.Verdict
	Checks   rr.Checks
}

// paths are the greatest numbers of paths to one prefix, within the cluster's AS and between it and another.
func (j Judged) paths() (own, foreign int) {
	for _, v := range j.Verdicts {
		own, foreign = max(own, v.MaxPaths), max(foreign, v.ForeignPaths)
	}
	return own, foreign
}

// Judge asks the model about a state in which everything has settled. known are states of the same nodes that it has
// been asked about.
func Judge(w *rr.World, s State, known ...Judged) Judged {
	j := Judged{State: s.remembering()}
	for i, up := range j.up {
		if up != nil {
			j.Networks = append(j.Networks, rr.NetworkOf(s.Nodes, s.Peers, s.Mesh, up, j.ends(i)))
		}
	}
	j.Checks, j.Verdicts = Verdicts(w, j.State, j.Networks, "", known...)
	return j
}

// Verdicts looks at networks, one for each family, and returns what was said of each as well. exempt names a node whose
// own traffic does not count, "" for none. What is known of a network is not asked again: most steps change it for few
// nodes or none, no step changes who is up, and to follow all routes is most of the work of a plan.
func Verdicts(w *rr.World, s State, networks []*reachability.Network, exempt string,
	known ...Judged) (rr.Checks, []reachability.Verdict) {
	out := rr.Checks{MinSessionsPerClient: -1}
	var verdicts []reachability.Verdict
	for _, up := range s.up {
		if up == nil {
			continue
		}
		at, i := -1, len(verdicts)
		if exempt == "" {
			at = slices.IndexFunc(known, func(k Judged) bool { return networks[i].Same(k.Networks[i]) })
		}
		var v reachability.Verdict
		if at >= 0 {
			v = known[at].Verdicts[i]
		} else {
			v = networks[i].Judge(func(at int32) bool { return !up[at] || s.Nodes[at].Name == exempt })
		}
		verdicts = append(verdicts, v)
		out.UnreachablePairs += v.UnreachablePairs
		out.MaxPathsPerPrefix = max(out.MaxPathsPerPrefix, v.MaxPaths, v.ForeignPaths)
		out.Examples = append(out.Examples, v.Examples...)
		if least := leastSessions(w, up, s, networks[i], exempt, nil); least >= 0 &&
			(out.MinSessionsPerClient < 0 || least < out.MinSessionsPerClient) {
			out.MinSessionsPerClient = least
		}
	}
	out.MinSessionsPerClient = max(out.MinSessionsPerClient, 0)
	return out, verdicts
}

// leastSessions is the least number of sessions that a live client has with the topology's reflectors, -1 without
// clients. Those that spared reports, nil for none, and those that are hopeless do not count.
func leastSessions(w *rr.World, up []bool, s State, n *reachability.Network, exempt string,
	spared func(client int32) bool) int {
	_, serves := serving(w, up, s)
	none, least := hopeless(w, up, s, n, exempt), -1
	for i := range s.Nodes {
		node, at := &s.Nodes[i], int32(i)
		count := n.SessionsWith(at, serves)
		if least >= 0 && count >= least { // it would change nothing, and most do not
			continue
		}
		if node.Name == exempt || !up[i] || !node.IsClient(&w.Topology) || none(at) ||
			spared != nil && spared(at) {
			continue
		}
		least = count
	}
	return least
}

// hopeless reports of a client that it has no session with a reflector, and that none comes up with any: no step gives
// it one, and it must not make the others' of no account. A reflector of the name exempt is not among them.
func hopeless(w *rr.World, up []bool, s State, n *reachability.Network, exempt string) func(client int32) bool {
	reflectors, serves := serving(w, up, s)
	at := In(*w, s)
	clients := at.Roster()
	return func(client int32) bool {
		node := &s.Nodes[client]
		return n.SessionsWith(client, serves) == 0 &&
			partedFromAll(n, client, slices.DeleteFunc(slices.Clone(reflectors), func(r int32) bool {
				return s.Nodes[r].Name == exempt || !clients.Has(node, s.Nodes[r].Group())
			}))
	}
}

// KeepsSessions reports whether the clients that were not hopeless before a step have so many sessions each in networks,
// one for each family, which have the nodes and reflectors of after. One that was hopeless and gets its first session
// has fewer than the others, and has lost none.
func KeepsSessions(w *rr.World, before, after Judged, networks []*reachability.Network, exempt string, least int) bool {
	i := -1
	for family, up := range after.up {
		if up == nil {
			continue
		}
		i++
		spared := hopeless(w, before.up[family], before.State, before.Networks[i], exempt)
		if has := leastSessions(w, up, after.State, networks[i], exempt, spared); has >= 0 && has < least {
			return false
		}
	}
	return true
}

// serving are the topology's reflectors that are up, and of each node whether it is one.
func serving(w *rr.World, up []bool, s State) (reflectors []int32, serves []bool) {
	serves = make([]bool, len(s.Nodes))
	for i := range s.Nodes {
		if node := &s.Nodes[i]; up[i] && node.ClusterID != "" && node.IsReflectorOf(&w.Topology) {
			reflectors, serves[i] = append(reflectors, int32(i)), true
		}
	}
	return reflectors, serves
}

// partedFromAll reports that a client has reflectors, and no session comes up with any. The reflector that a step makes
// has none yet, and is not among them.
func partedFromAll(n *reachability.Network, client int32, reflectors []int32) bool {
	return len(reflectors) > 0 && !slices.ContainsFunc(reflectors, func(r int32) bool { return !n.Parted(client, r) })
}

// Surviving are the networks between a step and the moment at which new sessions are up: only what is there before and
// after, and is the same session, carries routes.
func Surviving(w *rr.World, before, after Judged, step rr.Step) []*reachability.Network {
	networks := make([]*reachability.Network, len(before.Networks))
	reset := resetByStep(w, before.State, step)
	for i := range networks {
		networks[i] = before.Networks[i].Surviving(after.Networks[i], reset)
	}
	return networks
}

// resetByStep returns which sessions restart because a step changes their options: those of a BGPPeer whose options
// change.
func resetByStep(w *rr.World, before State, step rr.Step) func(a, b int32) bool {
	ensure, is := step.(rr.EnsurePeer)
	at := slices.IndexFunc(before.Peers, func(p rr.Peer) bool { return p.Name == ensure.Peer.Name })
	if !is || at < 0 || before.Peers[at].SameSessions(ensure.Peer.PeerSpec) {
		return nil
	}
	reflector := func(i int32) bool { return before.Nodes[i].IsReflectorOf(&w.Topology) }
	return func(a, b int32) bool { return reflector(a) || reflector(b) }
}

// Breaks says in a sentence what a step would break, "" if nothing. What is broken already does not count: a step must
// make nothing worse.
func Breaks(w *rr.World, before, after Judged, step rr.Step, wanted int) string {
	others, exempt := before.Checks, rr.Exempt(step)
	if exempt != "" {
		others, _ = Verdicts(w, before.State, before.Networks, exempt)
	}
	parted := 0
	if rr.Is[rr.MeshOff](step) && w.Topology.Status.Emergency != nil {
		parted = partedBefore(w, before.State)
	}
	transit := Surviving(w, before, after, step)
	meanwhile, _ := Verdicts(w, after.State, transit, exempt, before, after)
	for _, moment := range []struct {
		when, exempt string
		was, is      rr.Checks
		networks     []*reachability.Network
	}{
		{"for a moment", exempt, others, meanwhile, transit},
		{"for good", "", before.Checks, after.Checks, after.Networks},
	} {
		if more := moment.is.UnreachablePairs - max(moment.was.UnreachablePairs, parted); more > 0 {
			return fmt.Sprintf("it would leave %d pairs of nodes without a path %s%s%s", more, moment.when,
				example(moment.is.Examples), w.BecauseOfASNumbers(moment.is.Examples))
		}
		// Where the last client has become a reflector there is nobody to have sessions.
		least := min(wanted-1, moment.was.MinSessionsPerClient)
		if !after.Mesh && LiveClients(w, after.State, exempt) && moment.is.MinSessionsPerClient < least &&
			!KeepsSessions(w, before, after, moment.networks, moment.exempt, least) {
			return fmt.Sprintf("it would leave clients with %d sessions %s, and the minimum is %d%s",
				moment.is.MinSessionsPerClient, moment.when, least, w.BecauseOfASNumbers(nil))
		}
	}
	// A reflector passes on to another AS whatever it has, and to all what it has from another AS, and it has each route
	// from every other reflector as well: as many times more paths as there are reflectors, and no more, since who is of
	// that AS passes nothing on.
	limit := pathLimit(w, after.State, wanted)
	own, foreign := before.paths()
	ownThen, foreignThen := after.paths()
	for _, p := range []struct{ was, is, most int }{{own, ownThen, limit}, {foreign, foreignThen, limit * wanted}} {
		if most := mostPaths(w, step, p.was, p.most); p.is > most {
			return fmt.Sprintf("nodes would have up to %d paths to one prefix, where %d are the most", p.is, most)
		}
	}
	return ""
}

// partedBefore counts the pairs of nodes that had no path before an emergency, and have one by the mesh that is on
// since: the best reflector that there can be, which has a session with every client and every reflector, would give
// them none, and neither would those of somebody else's that are dead now, as if they had lived: they may have died in
// the emergency. A node that came later does not count: it has lost nothing to the emergency.
func partedBefore(w *rr.World, s State) int {
	id, now := w.Topology.Spec.ClusterID, s.Nodes
	s.Nodes = append(slices.Clone(s.Nodes), rr.Node{
		Labels:    map[string]string{v1alpha1.ReflectorLabel: w.Topology.Name},
		ClusterID: id,
		Written:   &rr.Mark{Group: rr.FirstGroup, ClusterID: id},
		Ready:     corev1.ConditionTrue,
		IPv4:      netip.AddrFrom4([4]byte{192, 0, 2, 1}),
		IPv6:      netip.MustParseAddr("2001:db8::1"), // of ranges for documentation, which no node has
	})
	for i := range now {
		if n := &s.Nodes[i]; n.ForeignReflector(&w.Topology) && w.ServesOthers(n) {
			n.Ready = corev1.ConditionTrue
		}
	}
	best, count := len(now), 0
	for _, f := range rr.SpokenFamilies(w.Nodes) {
		count += f.Network(s.Nodes, s.Peers, false).Judge(func(at int32) bool {
			return int(at) == best || !f.Up(&now[at]) || now[at].Created.After(w.Topology.Status.Emergency.Since.Time)
		}).UnreachablePairs
	}
	return count
}

// LiveClients reports whether there is a live client but for one.
func LiveClients(w *rr.World, s State, but string) bool {
	return slices.ContainsFunc(s.Nodes, func(n rr.Node) bool {
		return n.Name != but && n.Ready == corev1.ConditionTrue && n.IsClient(&w.Topology)
	})
}

// pathLimit is the greatest number of paths that a step may lead to. In a hierarchy a path leads from one of the
// origin's reflectors by a spine to one of the receiver's; both may be on the way from a group to another, and a
// reflector more may be in each group and among the spines while one is replaced. What a spine itself announces comes
// to the others by every group, so that there are as many paths to it as there are groups.
func pathLimit(w *rr.World, s State, wanted int) int {
	groups := map[int]bool{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Marked(&w.Topology) {
			groups[n.Group()] = true
		}
	}
	if len(groups) == 0 || len(groups) == 1 && groups[rr.FirstGroup] {
		return MaxPathsFactor * wanted
	}
	each := 2 * (wanted + 1)
	return each * (rr.SpineCount*each + rr.SpineCount + len(groups)*each)
}

func example(pairs []reachability.Pair) string {
	if len(pairs) == 0 {
		return ""
	}
	return fmt.Sprintf(", such as %s to %s", pairs[0].From, pairs[0].To)
}

// mostPaths is how many paths to one prefix a state may bring. Where reflectors with IDs of their own are taken over,
// the first of them gets a session with every client before the number falls with each ID that goes, so that for as
// long it may be twice as many; uncounted ones are too many. The mesh adds one path to each prefix, also where there are
// more reflectors than there shall be. most is what a state like the one after the step may bring.
func mostPaths(w *rr.World, step rr.Step, before, most int) int {
	limit := max(most, before+rr.Count(rr.Is[rr.MeshOn](step)))
	n, _ := w.Node(step.Node())
	if (rr.Is[rr.Adopt](step) || rr.Is[rr.Promote](step)) && n.AdoptedBy(&w.Topology) {
		return min(max(limit, 2*before), reachability.MaxPaths-1)
	}
	return limit
}
