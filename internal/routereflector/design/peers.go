// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package design

import (
	"slices"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// PeersFor are the BGPPeers that there shall be now, on the way to a design: those of a hierarchy as long as there is
// one, or is to be one. A group that gathers all clients does so until a step of its own ends that. Groups that are to go keep theirs while they have reflectors, and the open group stays open: it
// changes by a step of its own.
func PeersFor(w *rr.World, d Design) []rr.Peer {
	groups, deep := slices.Clone(d.Groups), d.Hierarchical()
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.Marked(&w.Topology) {
			continue
		}
		g := n.Group()
		deep = deep || g != rr.FirstGroup
		if g >= rr.FirstGroup && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	if !deep {
		return rr.WantedPeers(w.Topology)
	}
	slices.Sort(groups)
	r := w.Roster()
	open := r.Open
	if !slices.Contains(groups, open) {
		open = rr.FirstGroup
	}
	peers := rr.HierarchyPeers(w.Topology, groups, open)
	if r.Gathers || begins(w, d) {
		peers[0] = rr.GatheringPeer(&w.Topology, open)
	}
	return peers
}

// begins reports that a hierarchy is made of the mesh: nobody is a reflector yet. The first group gathers all clients
// then, so that each reflector is reached by everybody from its beginning, and those of other groups need not move.
func begins(w *rr.World, d Design) bool {
	_, exists := w.Peer(w.PeerName(rr.ClientsPeer))
	return !exists && w.Mesh.On && len(d.Groups) > 1 && len(w.Marked()) == 0
}

// FinalPeers are the BGPPeers that there shall be in the end.
func FinalPeers(w *rr.World, d Design) []rr.Peer {
	if !d.Hierarchical() {
		return rr.WantedPeers(w.Topology)
	}
	open := w.Roster().Open
	if !slices.Contains(d.Groups, open) {
		open = rr.FirstGroup
	}
	return rr.HierarchyPeers(w.Topology, d.Groups, open)
}

// ChangedPeers are steps for the BGPPeers that are missing, and after them for those that are not as they should be:
// what one of these selects no more must have its sessions by another.
func ChangedPeers(w *rr.World, d Design) []rr.Step {
	var missing, changed []rr.Step
	for _, want := range PeersFor(w, d) {
		have, exists := w.Peer(want.Name)
		switch {
		case !exists:
			about := rr.AboutPeer(want.Name, have, "there is no such BGPPeer")
			missing = append(missing, rr.EnsurePeer{About: about, Peer: want})
		case !have.Plain() || have.PeerSpec != want.PeerSpec:
			about := rr.AboutPeer(want.Name, have, "it is not as the topology wants it")
			changed = append(changed, rr.EnsurePeer{About: about, Peer: want})
		}
	}
	return append(missing, changed...)
}

// ResetsSessions reports whether one of the steps changes options of sessions that there are.
func ResetsSessions(w *rr.World, peers []rr.Step) bool {
	return slices.ContainsFunc(w.Nodes, func(n rr.Node) bool { return n.IsReflectorOf(&w.Topology) }) &&
		slices.ContainsFunc(peers, func(s rr.Step) bool {
			ensure, is := s.(rr.EnsurePeer)
			have, exists := w.Peer(ensure.Peer.Name)
			return is && exists && !have.SameSessions(ensure.Peer.PeerSpec)
		})
}
