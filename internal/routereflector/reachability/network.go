// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

import (
	"maps"
	"slices"
)

// Speaker is one BGP daemon.
type Speaker struct {
	Name string
	// ClusterID is the cluster ID of a reflector, "" for any other speaker.
	ClusterID string
	// Mesh says that the speaker is a member of the node-to-node mesh. A reflector never is.
	Mesh bool
}

// Network is a set of speakers and the sessions that are up between them.
type Network struct {
	speakers []Speaker
	// sessions holds, for each speaker, the indexes of the speakers it has a session with, sorted, each once.
	sessions [][]int32
	// blind holds the speakers that do not know the cluster ID of a peer, each with the peer; see [Network.Blind].
	blind map[[2]int32]bool
}

// New returns the network of the speakers without sessions. It keeps the slice.
func New(speakers []Speaker) *Network {
	return &Network{speakers: speakers, sessions: make([][]int32, len(speakers))}
}

// Connect adds a session between the speakers with indexes a and b. A session with oneself, or one that is there, adds nothing.
func (n *Network) Connect(a, b int32) {
	if a == b {
		return
	}
	n.sessions[a] = insert(n.sessions[a], b)
	n.sessions[b] = insert(n.sessions[b], a)
}

// Blind says that the speaker with index at does not know the cluster ID of a peer, because a BGPPeer gives it the peer by its address. A reflector
// then takes the peer for a client, even one of its own cluster ID.
func (n *Network) Blind(at, peer int32) {
	if n.speakers[at].ClusterID == "" {
		return // it makes no difference
	}
	if n.blind == nil {
		n.blind = map[[2]int32]bool{}
	}
	n.blind[[2]int32{at, peer}] = true
}

// usual is how many sessions a speaker has room for at first: as many as a flat topology gives a client.
const usual = 3

func insert(list []int32, x int32) []int32 {
	if list == nil {
		list = make([]int32, 0, usual)
	}
	// Sessions mostly arrive in order.
	if len(list) == 0 || list[len(list)-1] < x {
		return append(list, x)
	}
	at, found := slices.BinarySearch(list, x)
	if found {
		return list
	}
	return slices.Insert(list, at, x)
}

// Sessions returns the number of sessions of the speaker with index i, those of the mesh not counted.
func (n *Network) Sessions(i int32) int { return len(n.sessions[i]) }

// Connected says whether two speakers have a session, be it of the mesh.
func (n *Network) Connected(a, b int32) bool {
	if n.speakers[a].Mesh && n.speakers[b].Mesh {
		return true
	}
	return n.HasSession(a, b)
}

// class is a set of speakers that have the same sessions, so that whatever holds for one of them holds for all.
type class struct {
	members []int32
	// reflector says that the members pass routes on; such a class has one member.
	reflector bool
}

// classes sorts the speakers into classes. Reflectors stand alone, all others are put together by what they are connected with.
func (n *Network) classes() []class {
	var out []class
	byHash := map[uint64][]int{} // indexes into out
	for i, s := range n.speakers {
		if s.ClusterID != "" {
			out = append(out, class{members: []int32{int32(i)}, reflector: true})
			continue
		}
		hash := n.hash(i)
		at := slices.IndexFunc(byHash[hash], func(at int) bool { return n.alike(out[at].members[0], int32(i)) })
		if at >= 0 {
			c := &out[byHash[hash][at]]
			c.members = append(c.members, int32(i))
			continue
		}
		byHash[hash] = append(byHash[hash], len(out))
		out = append(out, class{members: []int32{int32(i)}})
	}
	return out
}

// alike says whether two speakers that are no reflectors have the same sessions.
func (n *Network) alike(a, b int32) bool {
	return n.speakers[a].Mesh == n.speakers[b].Mesh && slices.Equal(n.sessions[a], n.sessions[b])
}

// hash is FNV-1a over a speaker's sessions; equal ones have equal hashes.
func (n *Network) hash(i int) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	if n.speakers[i].Mesh {
		h = (h ^ 1) * prime
	}
	for _, peer := range n.sessions[i] {
		h = (h ^ uint64(peer)) * prime
	}
	return h
}

// HasSession says whether two speakers have a session other than the mesh's.
func (n *Network) HasSession(a, b int32) bool {
	_, found := slices.BinarySearch(n.sessions[a], b)
	return found
}

// Same says that the two networks have the same speakers and the same sessions, so that whatever holds for one of them holds for the other.
func (n *Network) Same(other *Network) bool {
	return slices.Equal(n.speakers, other.speakers) && slices.EqualFunc(n.sessions, other.sessions, slices.Equal) && maps.Equal(n.blind, other.blind)
}

// Surviving returns the network of the sessions that are in both networks and stay the same ones, with the speakers of after: sessions that a
// change of cluster ID resets at either end, sessions that reset names, and sessions that move between the mesh and a BGPPeer are gone. Both
// networks must have the same speakers, as far as names go, in the same order.
func (n *Network) Surviving(after *Network, reset func(a, b int32) bool) *Network {
	speakers := slices.Clone(after.speakers)
	out := New(speakers)
	out.blind = after.blind
	for i := range speakers {
		// Who enters the mesh with a write has no sessions there yet.
		speakers[i].Mesh = speakers[i].Mesh && n.speakers[i].Mesh
	}
	for a, peers := range n.sessions {
		for _, b := range peers {
			if int32(a) < b && after.HasSession(int32(a), b) && n.keeps(after, int32(a), b) && (reset == nil || !reset(int32(a), b)) {
				out.Connect(int32(a), b)
			}
		}
	}
	return out
}

// keeps says that the session's configuration is the same at both ends: it stays a client session or a non-client one, under the same ID.
func (n *Network) keeps(after *Network, a, b int32) bool {
	same := func(x, y int32) bool {
		return n.isClient(x, y) == after.isClient(x, y) && (!n.isClient(x, y) || n.speakers[x].ClusterID == after.speakers[x].ClusterID)
	}
	// A member of the mesh that has a BGPPeer's session with another member has one of the two, and which is not known.
	return same(a, b) && same(b, a) && !(n.speakers[a].Mesh && n.speakers[b].Mesh)
}
