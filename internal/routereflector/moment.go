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
)

// Moment is the state of roles, BGPPeers and mesh that a sighting is about, so that what was said before a step is told apart from what was said
// after it.
type Moment struct {
	// rest names the topology, its BGPPeers, and reflectors of others; mesh says whether the mesh is on.
	rest string
	mesh bool
	// reflectors are names for the topology's reflectors, each with its UID and cluster ID; sorted.
	reflectors []string
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
		case n.marked(&w.Topology):
			m.reflectors = append(m.reflectors, n.token())
		case n.ClusterID != "":
			others = append(others, n.token())
		}
	}
	slices.Sort(m.reflectors)
	slices.Sort(others)
	h := sha256.New()
	fmt.Fprintln(h, others)
	for _, p := range slices.SortedFunc(slices.Values(w.Peers), func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) }) {
		if p.Topology == w.Topology.Name {
			fmt.Fprintln(h, "peer", p.Name, p.UID, p.PeerSpec)
		}
	}
	if len(w.adoptedPeers()) > 0 {
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

// String writes the Moment such that [ParseMoment] reads it: words with dots between. It is kept on CalicoNodeStatuses: a
// version that reads it differently would take answers for evidence that are none.
func (m Moment) String() string {
	return strings.Join(append([]string{m.rest, map[bool]string{true: "mesh", false: "none"}[m.mesh]}, m.reflectors...), ".")
}

var momentText = regexp.MustCompile(fmt.Sprintf(`^[0-9a-f]{%d}\.(mesh|none)(\.[0-9a-f]{%d})*$`, 2*restBytes, 2*reflectorBytes))

// ParseMoment reads what [Moment.String] wrote. It is false for anything else, which then is no Moment that holds.
func ParseMoment(text string) (Moment, bool) {
	if !momentText.MatchString(text) {
		return Moment{}, false
	}
	words := strings.Split(text, ".")
	m := Moment{rest: words[0], mesh: words[1] == "mesh", reflectors: words[2:]}
	return m, slices.IsSorted(m.reflectors)
}

// Equal says that nothing has changed between the two.
func (m Moment) Equal(other Moment) bool {
	return m.rest == other.rest && m.mesh == other.mesh && slices.Equal(m.reflectors, other.reflectors)
}

// Holds says whether what a node was asked in another Moment is evidence in this one. It always is if nothing has changed. It is as well if the node
// was a reflector by then, and nothing but promotions came after, or the mesh, in which it has no part: they change none of its sessions but those
// with the nodes promoted, which speak for these themselves before the next step. After a demotion nobody but the other reflectors can say that the former reflector has sessions again, so
// all are asked anew.
func (m Moment) Holds(asked Moment, node *Node) bool {
	if m.Equal(asked) {
		return true
	}
	if m.rest != asked.rest || !slices.Contains(asked.reflectors, node.token()) {
		return false
	}
	return !slices.ContainsFunc(asked.reflectors, func(r string) bool { return !slices.Contains(m.reflectors, r) })
}
