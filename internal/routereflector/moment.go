// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Moment is the state of roles, BGPPeers and mesh that a sighting is about, so that what was said before a step is told
// apart from what was said after it.
type Moment struct {
	// rest names the topology, its BGPPeers, and reflectors of others; mesh reports whether the mesh is on.
	rest string
	mesh bool
	// reflectors are names for the topology's reflectors, each with its UID and cluster ID; sorted. moves are names for
	// the clients that move, each with the groups that it moves from and to; sorted.
	reflectors, moves []string
}

// Lengths of the names in a Moment, in bytes before they are written in hexadecimal digits.
const (
	restBytes      = 6
	reflectorBytes = 5
)

// Present is the World's Moment.
func (w World) Present() Moment {
	var m Moment
	var others []string
	for i := range w.Nodes {
		n := &w.Nodes[i]
		switch {
		case n.Marked(&w.Topology):
			m.reflectors = append(m.reflectors, n.token())
		case n.ClusterID != "" && (n.AdoptedBy(&w.Topology) || w.ServesOthers(n)): // what anybody else says of a node makes no evidence stale
			others = append(others, n.token())
		case n.Labels[v1alpha1.JoinsLabel] != "" && n.IsClient(&w.Topology):
			m.moves = append(m.moves,
				movePrefix+tokenOf(n.Name, n.UID, n.Labels[v1alpha1.ClientLabel]+"\x00"+n.Labels[v1alpha1.JoinsLabel]))
		}
	}
	slices.Sort(m.reflectors)
	slices.Sort(m.moves)
	slices.Sort(others)
	h := sha256.New()
	fmt.Fprintln(h, others)
	for _, p := range slices.SortedFunc(slices.Values(w.Peers), func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) }) {
		if p.Topology == w.Topology.Name {
			fmt.Fprintln(h, "peer", p.Name, p.UID, p.PeerSpec)
		}
	}
	if len(w.AdoptedPeers()) > 0 {
		fmt.Fprintln(h, "adopting")
	}
	fmt.Fprintln(h, w.Topology.UID)
	m.mesh, m.rest = w.Mesh.On, hex.EncodeToString(h.Sum(nil)[:restBytes])
	return m
}

// token names a reflector in the role that it has now.
func (n *Node) token() string { return tokenOf(n.Name, n.UID, n.ClusterID) }

func tokenOf(name, uid, clusterID string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + uid + "\x00" + clusterID))
	return hex.EncodeToString(sum[:reflectorBytes])
}

// Moment is a short name for [World.Present].
func (w World) Moment() string { return w.Present().Name() }

// Name is short, and differs between different Moments.
func (m Moment) Name() string {
	sum := sha256.Sum256([]byte(m.String()))
	return hex.EncodeToString(sum[:6])
}

// movePrefix is the first letter of the words for moves, which is not a hexadecimal digit.
const movePrefix = "m"

// wordMesh says in a Moment's text that the mesh is on.
const wordMesh = "mesh"

// String writes the Moment such that [ParseMoment] reads it: words with dots between. It is kept on CalicoNodeStatuses:
// a version that reads it differently would take answers for evidence that are none.
func (m Moment) String() string {
	return strings.Join(
		slices.Concat([]string{m.rest, map[bool]string{true: wordMesh, false: "none"}[m.mesh]}, m.reflectors, m.moves),
		".")
}

var momentText = regexp.MustCompile(
	fmt.Sprintf(`^[0-9a-f]{%d}\.(mesh|none)(\.[0-9a-f]{%d})*(\.m[0-9a-f]{%d})*$`, 2*restBytes, 2*reflectorBytes,
		2*reflectorBytes),
)

// ParseMoment reads what [Moment.String] wrote. It is false for anything else, which then is not a Moment that holds.
func ParseMoment(text string) (Moment, bool) {
	if !momentText.MatchString(text) {
		return Moment{}, false
	}
	words := strings.Split(text, ".")
	at := slices.IndexFunc(words,
		func(word string) bool { return word != wordMesh && strings.HasPrefix(word, movePrefix) })
	if at < 0 {
		at = len(words)
	}
	m := Moment{rest: words[0], mesh: words[1] == wordMesh, reflectors: words[2:at], moves: words[at:]}
	return m, slices.IsSorted(m.reflectors) && slices.IsSorted(m.moves)
}

// Equal reports that nothing has changed between the two.
func (m Moment) Equal(other Moment) bool {
	return m.rest == other.rest && m.mesh == other.mesh && slices.Equal(m.reflectors, other.reflectors) &&
		slices.Equal(m.moves, other.moves)
}

// Holds reports whether what a node was asked in another Moment is evidence in this one. It always is if nothing has
// changed. It is as well if the node was a reflector by then, and nothing but promotions came after, or the mesh, in
// which it has no part: they change none of its sessions but those with the nodes promoted, which speak for these
// themselves before the next step. After a demotion nobody but the other reflectors can say that the former reflector
// has sessions again, so all are asked again. That a client has left the group that it moved from changes nothing for
// anybody else; that one joins another must be seen.
func (m Moment) Holds(asked Moment, node *Node) bool {
	if m.Equal(asked) {
		return true
	}
	if m.rest != asked.rest || !slices.Contains(asked.reflectors, node.token()) {
		return false
	}
	lacks := func(list, of []string) bool {
		return slices.ContainsFunc(of, func(word string) bool { return !slices.Contains(list, word) })
	}
	return !lacks(m.reflectors, asked.reflectors) && !lacks(asked.moves, m.moves)
}
