// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
)

// adoption refuses what cannot be taken over without resetting sessions that need no reset.
func adoption(w *rr.World) *rr.Refusal {
	if w.Topology.Spec.Adopt == nil || w.Exiting() {
		return nil
	}
	for _, check := range []func(*rr.World) string{
		adoptsFlat, adoptsOwned, adoptsShape, adoptsID, adoptsSessions,
	} {
		if why := check(w); why != "" {
			return rr.Refuse(rr.ReasonCannotAdopt, "spec.adopt: %s", why)
		}
	}
	return nil
}

// adoptsFlat reports that the topology is not a flat one, or must not be: with two groups not every client has a
// session with those that are taken over.
func adoptsFlat(w *rr.World) string {
	switch _, begun := w.Peer(w.PeerName(rr.UplinksPeer)); {
	case !w.TakesOver():
		return ""
	case begun || len(w.Outside(rr.FirstGroup)) > 0:
		return "this topology is a hierarchy, and reflectors are taken over by a flat one; take it out, or adopt them with another topology"
	case w.Topology.Spec.Mode == v1alpha1.ModeHierarchical:
		return "spec.mode is Hierarchical, and reflectors are taken over by a flat topology; set spec.mode to Auto until nothing is left that it names"
	}
	return ""
}

// adoptsOwned returns which BGPPeer that spec.adopt names is a topology's.
func adoptsOwned(w *rr.World) string {
	first := rr.Peer{}
	for _, p := range w.Peers {
		if p.Topology != "" && rr.NamesPeer(w.Topology.Spec.Adopt.BGPPeers, p.Name) &&
			(first.Name == "" || p.Name < first.Name) {
			first = p
		}
	}
	if first.Name == "" {
		return ""
	}
	return fmt.Sprintf(
		"BGPPeer %s is RouteReflectorTopology %s's (label %s), and is not there to be adopted; name the others one by one",
		first.Name, first.Topology, v1alpha1.TopologyLabel)
}

// adoptsShape returns which BGPPeer makes sessions that the topology's own would not take over as they are.
func adoptsShape(w *rr.World) string {
	want := rr.SessionOptions(w.Topology.Spec.Session)
	for _, p := range w.AdoptedPeers() {
		switch {
		case p.PeerIP.IsValid() || p.PeerMatcher == nil:
			return fmt.Sprintf(
				"BGPPeer %s has no peerSelector, and the sessions of one that names an address are of another kind; take it out of spec.adopt.bgpPeers",
				p.Name)
		case p.Node == "" && p.NodeMatcher == nil:
			return fmt.Sprintf(
				"BGPPeer %s has neither node nor nodeSelector: confd gives the sessions of such a one other names, and would reset them all; "+
					"give it nodeSelector all() first, at a time when sessions may be reset", p.Name)
		case p.Other:
			return fmt.Sprintf(
				"BGPPeer %s has fields that topologies do not write, such as asNumber, nextHopMode or reversePeering; take these out of it first",
				p.Name)
		}
		if options := differences(p.PeerSpec, want); options != "" {
			return fmt.Sprintf(
				"BGPPeer %s has other session options than spec.session, which would reset its sessions; set %s",
				p.Name, options)
		}
	}
	return ""
}

// differences says what spec.session must be for a BGPPeer's options, "" if it is that.
func differences(have, want rr.PeerSpec) string {
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
	say(have.TTLSecurity == want.TTLSecurity, "ttlSecurity",
		orNone(strings.TrimPrefix(fmt.Sprint(have.TTLSecurity), "0")))
	say(have.Filters == want.Filters, "filters", "["+have.Filters+"]")
	say(have.SourceAddress == want.SourceAddress, "sourceAddress", have.SourceAddress)
	return strings.Join(out, " and ")
}

// adoptsID reports that no reflector has the topology's cluster ID, so that all would have to change theirs.
func adoptsID(w *rr.World) string {
	id, count := w.Topology.Spec.ClusterID, map[string]int{}
	for _, n := range w.AdoptedNodes() {
		count[n.ClusterID]++
	}
	ours := slices.ContainsFunc(w.Nodes, func(n rr.Node) bool { return n.IsReflectorOf(&w.Topology) })
	if len(count) == 0 || count[id] > 0 || ours {
		return ""
	}
	ids := slices.SortedFunc(maps.Keys(count),
		func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	return fmt.Sprintf(
		"no reflector that it names has the cluster ID of spec.clusterID, %s, so that all would lose their sessions; delete this topology, "+
			"which has done nothing yet, and create it with spec.clusterID %s, which %d of %d have", id, ids[0],
		count[ids[0]], len(w.AdoptedNodes()))
}

// adoptsSessions names a session that a BGPPeer to be deleted makes and the topology's own would not.
func adoptsSessions(w *rr.World) string {
	peers := w.AdoptedPeers()
	if len(peers) == 0 {
		return ""
	}
	s := model.StateOf(*w)
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.AdoptedBy(&w.Topology) {
			n.Labels = maps.Clone(n.Labels)
			n.Labels[v1alpha1.ReflectorLabel] = w.Topology.Name
		}
	}
	own := rr.WantedPeers(w.Topology)
	for _, f := range rr.SpokenFamilies(w.Nodes) {
		network := f.Network(s.Nodes, own, false)
		for i := range peers {
			from, to := peers[i].EndsIn(f, w.Nodes)
			for _, b := range to {
				for _, a := range from {
					if a == b || !f.Up(&w.Nodes[a]) || !f.Up(&w.Nodes[b]) || network.HasSession(a, b) {
						continue
					}
					return whyUncovered(w, peers[i], &w.Nodes[a], &w.Nodes[b])
				}
			}
		}
	}
	return ""
}

// whyUncovered says why the topology gives two nodes no session.
func whyUncovered(w *rr.World, p rr.Peer, a, b *rr.Node) string {
	client, reflector := a, b
	if client.ClusterID != "" && reflector.ClusterID == "" {
		client, reflector = b, a
	}
	session := fmt.Sprintf("BGPPeer %s gives Node %s a session with Node %s, and this topology would not", p.Name,
		client.Name, reflector.Name)
	switch {
	case reflector.ClusterID == "":
		return fmt.Sprintf(
			"%s, since neither has a cluster ID (annotation %s, an IPv4 address); correct or remove the label that selects them first",
			session, rr.ClusterIDAnnotation)
	case !reflector.Marked(&w.Topology) && !reflector.AdoptedBy(&w.Topology):
		return fmt.Sprintf("%s; make spec.adopt.nodes select %s, which is a reflector", session, reflector.Name)
	}
	return fmt.Sprintf("%s; make spec.clientSelector select %s", session, client.Name)
}
