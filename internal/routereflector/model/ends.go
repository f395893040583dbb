// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// known holds the ends of a state's BGPPeers, for each family by the BGPPeer's name. To evaluate all selectors of a
// hierarchy for all nodes is most of the work of a plan, and a step changes one node or one BGPPeer. Its lists are
// shared between states: nobody changes one.
type known [2]map[string]rr.PeerEnds

// ends returns the ends of the BGPPeers in a family, by its index in [families], in their order.
func (s State) ends(family int) []rr.PeerEnds {
	f, all := rr.AddressFamilies()[family], make([]rr.PeerEnds, len(s.Peers))
	for i := range s.Peers {
		p := &s.Peers[i]
		e, is := s.known[family][p.Name]
		if !is {
			e.From, e.To = p.EndsIn(f, s.Nodes)
		}
		if all[i] = e; s.known[family] != nil {
			s.known[family][p.Name] = e
		}
	}
	return all
}

// remembering is the state, which keeps what it finds out about its nodes and BGPPeers for those after it: about BGPPeers if
// their names tell them apart.
func (s State) remembering() State {
	if s.up == nil {
		s.up = &[2][]bool{}
		for i, f := range rr.AddressFamilies() {
			s.up[i] = f.AllUp(s.Nodes)
		}
	}
	names := map[string]bool{}
	for i := range s.Peers {
		names[s.Peers[i].Name] = true
	}
	if s.known[0] == nil && len(names) == len(s.Peers) {
		s.known = known{{}, {}}
	}
	return s
}

// without is the state once a BGPPeer is gone.
func (s State) without(peer string) State {
	s.Peers = slices.DeleteFunc(slices.Clone(s.Peers), func(p rr.Peer) bool { return p.Name == peer })
	for i := range s.known {
		if s.known[i] = maps.Clone(s.known[i]); s.known[i] != nil {
			delete(s.known[i], peer)
		}
	}
	return s
}

// with is what is known of the BGPPeers once the node with an index is another one.
func (k known) with(nodes []rr.Node, at int, peers []rr.Peer) known {
	for i, f := range rr.AddressFamilies() {
		k[i] = maps.Clone(k[i])
		for n := range peers {
			p := &peers[n]
			e, ok := k[i][p.Name]
			if !ok {
				continue
			}
			named := len(e.To) > 0
			e.To = changed(e.To, int32(at), p.Names(f, &nodes[at]))
			if named != (len(e.To) > 0) {
				delete(k[i], p.Name) // whom it is for is known only of one that names somebody
				continue
			}
			if named {
				e.From = changed(e.From, int32(at), p.IsFor(&nodes[at]))
			}
			k[i][p.Name] = e
		}
	}
	return k
}

// changed is a sorted list with or without a number. The list itself stays.
func changed(list []int32, x int32, has bool) []int32 {
	at, had := slices.BinarySearch(list, x)
	switch {
	case has && !had:
		return slices.Insert(slices.Clone(list), at, x)
	case had && !has:
		return slices.Delete(slices.Clone(list), at, at+1)
	}
	return list
}
