// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Adoption takes over reflectors that somebody else made, as spec.adopt names them:
//
//	own BGPPeers ── label on reflectors with the right ID ── label and ID on the others, one by one ── their BGPPeers go ── reflectors too many go
//	 no session      no session changes                       each resets its own                       no session changes
//
// Calico's confd makes one session of all BGPPeers that give two nodes one, so that for a while each session has two reasons to be there, and
// loses nothing with the first of them. That holds only where both give it the same options, and where the topology gives all sessions that the
// others do; [World.adoption] refuses everything else.

// adoptedBy reports that the node is a reflector that the topology is to take over and has not yet.
func (n *Node) adoptedBy(t *v1alpha1.RouteReflectorTopology) bool {
	if t.Spec.Adopt == nil || t.DeletionTimestamp != nil || n.ClusterID == "" {
		return false
	}
	_, labeled := n.Labels[v1alpha1.ReflectorLabel]
	return !labeled && selects(t.Spec.Adopt.Nodes, n.Labels)
}

// incumbent reports whether the node is a reflector of the topology, or one that the topology is to take over. The
// choice of reflectors MUST use it: the Adopt step adds the topology's label, and a choice by that label alone would
// change between two steps of one plan.
func (n *Node) incumbent(t *v1alpha1.RouteReflectorTopology) bool {
	return n.marked(t) || n.adoptedBy(t)
}

// adoptedWithID reports whether the Adopt step takes the node over, which changes no session: it has the topology's
// cluster ID.
func (n *Node) adoptedWithID(t *v1alpha1.RouteReflectorTopology) bool {
	return n.adoptedBy(t) && n.ClusterID == t.Spec.ClusterID
}

// namesPeer reports that spec.adopt.bgpPeers names a BGPPeer.
func namesPeer(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if start, open := strings.CutSuffix(pattern, "*"); open {
			return strings.HasPrefix(name, start)
		}
		return pattern == name
	})
}

// adoptedPeers are the BGPPeers that spec.adopt names and that are nobody's topology's, sorted by name.
func (w facts) adoptedPeers() []Peer {
	if w.Topology.Spec.Adopt == nil || w.exiting() {
		return nil
	}
	out := slices.DeleteFunc(slices.Clone(w.Peers), func(p Peer) bool {
		return p.Topology != "" || !namesPeer(w.Topology.Spec.Adopt.BGPPeers, p.Name)
	})
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// adoptedNodes are the nodes that are still to be taken over, sorted by name.
func (w facts) adoptedNodes() []Node {
	out := slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool { return !n.adoptedBy(&w.Topology) })
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// adopted reports that there is a spec.adopt and nothing left of what it names.
func (w facts) adopted() bool {
	return w.Topology.Spec.Adopt != nil && len(w.adoptedPeers()) == 0 && len(w.adoptedNodes()) == 0
}

// takesOver reports that there is something left of what spec.adopt names.
func (w facts) takesOver() bool { return w.Topology.Spec.Adopt != nil && !w.exiting() && !w.adopted() }

// adoptionBonus lets a reflector that keeps its ID stay rather than one that would have to change it.
const adoptionBonus = 2 * idleScore

// adoptionScore is the same before and after a reflector is taken over, so that the choice does not change on the way.
func (w candidates) adoptionScore(n *Node) int {
	if a := w.Topology.Spec.Adopt; a != nil && n.ClusterID == w.Topology.Spec.ClusterID && selects(a.Nodes, n.Labels) {
		return adoptionBonus
	}
	return 0
}

func (w choices) whyAdopted(n *Node) string {
	if n.ClusterID == w.Topology.Spec.ClusterID {
		return "spec.adopt names it; it keeps its cluster ID and its sessions"
	}
	return fmt.Sprintf("spec.adopt names it, and its cluster ID %s becomes %s; its own pods' traffic stops for some seconds", n.ClusterID, w.Topology.Spec.ClusterID)
}

// adoptions are the steps that label reflectors which have the right ID already, be they to stay or not: without the label they would be clients of
// the same ID, which reflectors do not pass on to one another. Those with another ID join as everybody does.
func (w stages) adoptions() []Step {
	var out []Step
	for _, n := range w.adoptedNodes() {
		if !n.adoptedWithID(&w.Topology) {
			continue
		}
		step := w.nodeStep(Adopt, n.Name, w.whyAdopted(&n))
		step.NodeLabels = n.ungrouped()
		out = append(out, step)
	}
	return out
}

// retirements are the steps that delete the BGPPeers which spec.adopt names.
func (w stages) retirements() []Step {
	var out []Step
	for _, p := range w.adoptedPeers() {
		out = append(out, Step{
			Kind: RetirePeer, Object: "BGPPeer/" + p.Name, Peer: p, UID: p.UID, ResourceVersion: p.ResourceVersion,
			Reason: "spec.adopt names it, and the topology's own BGPPeers give the same sessions",
		})
	}
	return out
}

// retireAtOnce is how many BGPPeers that a topology has adopted are deleted in one round. An old cluster has three for each node, and no session
// changes with any of them.
const retireAtOnce = 100

// retiredAtOnce counts the first steps that delete adopted BGPPeers, as far as they are done in one go.
func retiredAtOnce(steps []Step) int {
	count := slices.IndexFunc(steps, func(s Step) bool { return s.Kind != RetirePeer })
	if count < 0 {
		count = len(steps)
	}
	return min(count, retireAtOnce)
}

// unadopted says what is missing until BGPPeers that spec.adopt names can go: a live reflector, and the sessions of all.
func (w gates) unadopted(reflectors []Reflector) string {
	working := w.working(nil)
	if joining := inRole(reflectors, RoleJoining); len(joining) > 0 {
		return joining[0].Node + " is not a reflector yet"
	}
	if len(working) == 0 {
		return "no reflector of this topology is Ready"
	}
	return w.unsettled(working)
}

// adoption refuses what cannot be taken over without resetting sessions that need no reset.
func (w objections) adoption() *Refusal {
	if w.Topology.Spec.Adopt == nil || w.exiting() {
		return nil
	}
	for _, check := range []func() string{w.adoptsFlat, w.adoptsOwned, w.adoptsShape, w.adoptsID, w.adoptsSessions} {
		if why := check(); why != "" {
			return refuse(ReasonCannotAdopt, "spec.adopt: %s", why)
		}
	}
	return nil
}

// adoptsFlat reports that the topology is not a flat one, or must not be: with two groups not every client has a session with those that are
// taken over.
func (w objections) adoptsFlat() string {
	switch _, begun := w.peer(w.peerName(uplinksPeer)); {
	case !w.takesOver():
		return ""
	case begun || len(w.outside(firstGroup)) > 0:
		return "this topology is a hierarchy, and reflectors are taken over by a flat one; take it out, or adopt them with another topology"
	case w.Topology.Spec.Mode == v1alpha1.ModeHierarchical:
		return "spec.mode is Hierarchical, and reflectors are taken over by a flat topology; set spec.mode to Auto until nothing is left that it names"
	}
	return ""
}

// adoptsOwned returns which BGPPeer that spec.adopt names is a topology's.
func (w objections) adoptsOwned() string {
	first := Peer{}
	for _, p := range w.Peers {
		if p.Topology != "" && namesPeer(w.Topology.Spec.Adopt.BGPPeers, p.Name) && (first.Name == "" || p.Name < first.Name) {
			first = p
		}
	}
	if first.Name == "" {
		return ""
	}
	return fmt.Sprintf("BGPPeer %s is RouteReflectorTopology %s's (label %s), and is not there to be adopted; name the others one by one",
		first.Name, first.Topology, v1alpha1.TopologyLabel)
}

// adoptsShape returns which BGPPeer makes sessions that the topology's own would not take over as they are.
func (w objections) adoptsShape() string {
	want := sessionOptions(w.Topology.Spec.Session)
	for _, p := range w.adoptedPeers() {
		switch {
		case p.PeerIP.IsValid() || p.PeerMatcher == nil:
			return fmt.Sprintf("BGPPeer %s has no peerSelector, and the sessions of one that names an address are of another kind; take it out of spec.adopt.bgpPeers",
				p.Name)
		case p.Node == "" && p.NodeMatcher == nil:
			return fmt.Sprintf("BGPPeer %s has neither node nor nodeSelector: confd gives the sessions of such a one other names, and would reset them all; "+
				"give it nodeSelector all() first, at a time when sessions may be reset", p.Name)
		case p.Other:
			return fmt.Sprintf("BGPPeer %s has fields that topologies do not write, such as asNumber, nextHopMode or reversePeering; take these out of it first", p.Name)
		}
		if options := differences(p.PeerSpec, want); options != "" {
			return fmt.Sprintf("BGPPeer %s has other session options than spec.session, which would reset its sessions; set %s", p.Name, options)
		}
	}
	return ""
}

// differences says what spec.session must be for a BGPPeer's options, "" if it is that.
func differences(have, want PeerSpec) string {
	var out []string
	say := func(same bool, field string, value any) {
		if !same {
			out = append(out, fmt.Sprintf("spec.session.%s to %v", field, value))
		}
	}
	orNone := func(text string) string { return cmp.Or(text, "none") }
	seconds := "none"
	if have.MaxRestartSeconds != 0 {
		seconds = (time.Duration(have.MaxRestartSeconds) * time.Second).String()
	}
	say(have.MaxRestartSeconds == want.MaxRestartSeconds, "maxRestartTime", seconds)
	say(have.PasswordSecret == want.PasswordSecret && have.PasswordKey == want.PasswordKey, "passwordRef",
		orNone(strings.Trim(have.PasswordSecret+"/"+have.PasswordKey, "/")))
	say(have.TTLSecurity == want.TTLSecurity, "ttlSecurity", orNone(strings.TrimPrefix(fmt.Sprint(have.TTLSecurity), "0")))
	say(have.Filters == want.Filters, "filters", "["+have.Filters+"]")
	say(have.SourceAddress == want.SourceAddress, "sourceAddress", have.SourceAddress)
	return strings.Join(out, " and ")
}

// adoptsID reports that no reflector has the topology's cluster ID, so that all would have to change theirs.
func (w objections) adoptsID() string {
	id, count := w.Topology.Spec.ClusterID, map[string]int{}
	for _, n := range w.adoptedNodes() {
		count[n.ClusterID]++
	}
	ours := slices.ContainsFunc(w.Nodes, func(n Node) bool { return n.isReflectorOf(&w.Topology) })
	if len(count) == 0 || count[id] > 0 || ours {
		return ""
	}
	ids := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	return fmt.Sprintf("no reflector that it names has the cluster ID of spec.clusterID, %s, so that all would lose their sessions; delete this topology, "+
		"which has done nothing yet, and create it with spec.clusterID %s, which %d of %d have", id, ids[0], count[ids[0]], len(w.adoptedNodes()))
}

// adoptsSessions names a session that a BGPPeer to be deleted makes and the topology's own would not.
func (w objections) adoptsSessions() string {
	peers := w.adoptedPeers()
	if len(peers) == 0 {
		return ""
	}
	s := w.state()
	s.nodes = slices.Clone(s.nodes)
	for i := range s.nodes {
		if n := &s.nodes[i]; n.adoptedBy(&w.Topology) {
			n.Labels = maps.Clone(n.Labels)
			n.Labels[v1alpha1.ReflectorLabel] = w.Topology.Name
		}
	}
	own := wantedPeers(w.Topology)
	for _, f := range familiesOf(w.Nodes) {
		network := f.network(s.nodes, own, false)
		for i := range peers {
			from, to := peers[i].ends(f, w.Nodes)
			for _, b := range to {
				for _, a := range from {
					if a == b || !f.up(&w.Nodes[a]) || !f.up(&w.Nodes[b]) || network.HasSession(a, b) {
						continue
					}
					return w.whyUncovered(peers[i], &w.Nodes[a], &w.Nodes[b])
				}
			}
		}
	}
	return ""
}

// whyUncovered says why the topology gives two nodes no session.
func (w objections) whyUncovered(p Peer, a, b *Node) string {
	client, reflector := a, b
	if client.ClusterID != "" && reflector.ClusterID == "" {
		client, reflector = b, a
	}
	session := fmt.Sprintf("BGPPeer %s gives Node %s a session with Node %s, and this topology would not", p.Name, client.Name, reflector.Name)
	switch {
	case reflector.ClusterID == "":
		return fmt.Sprintf("%s, since neither has a cluster ID (annotation %s, an IPv4 address); correct or remove the label that selects them first",
			session, ClusterIDAnnotation)
	case !reflector.marked(&w.Topology) && !reflector.adoptedBy(&w.Topology):
		return fmt.Sprintf("%s; make spec.adopt.nodes select %s, which is a reflector", session, reflector.Name)
	}
	return fmt.Sprintf("%s; make spec.clientSelector select %s", session, client.Name)
}
