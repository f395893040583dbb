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
	// Mesh reports that the speaker is a member of the node-to-node mesh. A reflector never is.
	Mesh bool
	// AS is the speaker's AS number where it is not that of most, which is 0 here. Sessions between speakers of different AS are external (eBGP).
	AS uint32
}

// Network is a set of speakers and the sessions that are up between them.
type Network struct {
	speakers []Speaker
	// sessions holds, for each speaker, the indexes of the speakers it has a session with, sorted, each once.
	sessions [][]int32
	// room is what is left of one slice that the sessions of all speakers share: one for each would be most of the allocations of a plan.
	room []int32
	// blind holds the speakers that do not know the cluster ID of a peer, each with the peer; see [Network.Blind].
	blind map[[2]int32]bool
	// apart holds, for each speaker, the sorted indexes of those with which no session comes up; nil where there are none. See [Network.Part].
	apart [][]int32
}

// New returns the network of the speakers without sessions. It keeps the slice.
func New(speakers []Speaker) *Network {
	return &Network{speakers: speakers, sessions: make([][]int32, len(speakers))}
}

// Connect adds a session between the speakers with indexes a and b. A session with oneself, or one that is there, adds nothing, and neither does one
// between speakers that were parted before.
func (n *Network) Connect(a, b int32) {
	if a == b || n.Parted(a, b) {
		return
	}
	n.sessions[a] = insert(n.space(n.sessions[a]), b)
	n.sessions[b] = insert(n.space(n.sessions[b]), a)
}

// space gives a speaker without sessions a place for the first of them. One that has more moves out.
func (n *Network) space(list []int32) []int32 {
	if list != nil {
		return list
	}
	if len(n.room) < usual {
		n.room = make([]int32, usual*max(len(n.speakers), 1))
	}
	list, n.room = n.room[:0:usual], n.room[usual:]
	return list
}

// Part reports that no session between two speakers comes up, be it of the mesh or of a BGPPeer: one of them is configured with an AS number
// that is not the other's. BIRD has one neighbor for each address, and was seen to refuse the right session together with the wrong one. It
// comes before [Network.Connect].
func (n *Network) Part(a, b int32) {
	if a == b {
		return
	}
	if n.apart == nil {
		n.apart = make([][]int32, len(n.speakers))
	}
	n.apart[a], n.apart[b] = insert(n.apart[a], b), insert(n.apart[b], a)
}

// Parted reports whether no session between two speakers comes up; see [Network.Part].
func (n *Network) Parted(a, b int32) bool {
	_, found := slices.BinarySearch(n.partedFrom(a), b)
	return found
}

func (n *Network) partedFrom(a int32) []int32 {
	if n.apart == nil {
		return nil
	}
	return n.apart[a]
}

// External reports whether a session of two speakers is an external one (eBGP): their AS numbers differ.
func (n *Network) External(a, b int32) bool { return n.speakers[a].AS != n.speakers[b].AS }

// Blind reports that the speaker with index at does not know the cluster ID of a peer, because a BGPPeer gives it the peer by its address. A
// reflector then takes the peer for a client, even one of its own cluster ID.
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

// SessionsWith counts the sessions of the speaker with index i with those of which is is true, those of the mesh not counted.
func (n *Network) SessionsWith(i int32, is []bool) (count int) {
	for _, peer := range n.sessions[i] {
		if is[peer] {
			count++
		}
	}
	return count
}

// Connected reports whether two speakers have a session, be it of the mesh.
func (n *Network) Connected(a, b int32) bool {
	if n.speakers[a].Mesh && n.speakers[b].Mesh {
		return !n.Parted(a, b)
	}
	return n.HasSession(a, b)
}

// class is a set of speakers that have the same sessions, so that whatever holds for one of them holds for all.
type class struct {
	members []int32
	// reflector reports that the members pass routes on; such a class has one member.
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

// alike reports whether two speakers that are not reflectors have the same sessions.
func (n *Network) alike(a, b int32) bool {
	return n.speakers[a].Mesh == n.speakers[b].Mesh && n.speakers[a].AS == n.speakers[b].AS && slices.Equal(n.sessions[a], n.sessions[b]) &&
		slices.Equal(n.partedFrom(a), n.partedFrom(b))
}

// hash is FNV-1a over a speaker's sessions; equal ones have equal hashes.
func (n *Network) hash(i int) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	if n.speakers[i].Mesh {
		h = (h ^ 1) * prime
	}
	h = (h ^ uint64(n.speakers[i].AS)) * prime
	for _, peer := range n.sessions[i] {
		h = (h ^ uint64(peer)) * prime
	}
	for _, peer := range n.partedFrom(int32(i)) {
		h = (h ^ uint64(peer)) * prime
	}
	return h
}

// HasSession reports whether two speakers have a session other than the mesh's.
func (n *Network) HasSession(a, b int32) bool {
	_, found := slices.BinarySearch(n.sessions[a], b)
	return found
}

// Same reports that the two networks have the same speakers and the same sessions, so that whatever holds for one of them holds for the other.
func (n *Network) Same(other *Network) bool {
	return slices.Equal(n.speakers, other.speakers) && slices.EqualFunc(n.sessions, other.sessions, slices.Equal) && maps.Equal(n.blind, other.blind) &&
		slices.EqualFunc(n.apart, other.apart, slices.Equal)
}

// Surviving returns the network of the sessions that are in both networks and stay the same ones, with the speakers of after: sessions that a
// change of cluster ID resets at either end, sessions that reset names, and sessions that move between the mesh and a BGPPeer are gone. Both
// networks must have the same speakers, as far as names go, in the same order.
func (n *Network) Surviving(after *Network, reset func(a, b int32) bool) *Network {
	speakers := slices.Clone(after.speakers)
	out := New(speakers)
	out.blind, out.apart = after.blind, after.apart
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

// keeps reports that the session's configuration is the same at both ends: it stays a client session or a non-client one, under the same ID.
func (n *Network) keeps(after *Network, a, b int32) bool {
	same := func(x, y int32) bool {
		return n.isClient(x, y) == after.isClient(x, y) && (!n.isClient(x, y) || n.speakers[x].ClusterID == after.speakers[x].ClusterID)
	}
	// A member of the mesh that has a BGPPeer's session with another member has one of the two, and which is not known.
	return same(a, b) && same(b, a) && !(n.speakers[a].Mesh && n.speakers[b].Mesh)
}
