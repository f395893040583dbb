// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/routereflector"
)

// member is a node that the generator works with.
type member struct{ name, address string }

// shape is a generated topology: what is written to Nodes, BGPPeers and the mesh.
type shape struct {
	random  *rand.Rand
	members []member
	// ids are the nodes' cluster IDs, labels the keys of their labels, foreign those with another AS number, and silent those whose BIRD is made to
	// say nothing, as that of a machine that is off; all by the nodes' index.
	ids     map[int]string
	labels  map[int][]string
	foreign map[int]bool
	silent  map[int]bool
	peers   []calicov3.BGPPeerSpec
	mesh    bool
	// said describes it for people.
	said []string
}

// kind makes shapes of one kind.
type kind struct {
	name string
	make func(s *shape)
}

// kinds are in the order in which a run goes through them. Those that the short run needs most come first.
func shapeKinds() []kind {
	return []kind{
		{"hierarchy", (*shape).hierarchy},
		{"shared ID, black holes", (*shape).blackHoles},
		{"distinct IDs", (*shape).distinct},
		{"peers by address", (*shape).byAddress},
		{"any", (*shape).any},
		{"flat, silent nodes", (*shape).silence},
		{"flat", (*shape).flat},
		{"mesh alongside reflectors", (*shape).beside},
		{"overlapping peers", (*shape).overlapping},
		{"a single reflector", (*shape).single},
		{"foreign AS", (*shape).foreigners},
		{"hierarchy, silent nodes", (*shape).silentHierarchy},
		{"without reverse peering", (*shape).oneWay},
	}
}

func newShape(k kind, random *rand.Rand, members []member) *shape {
	s := &shape{random: random, members: members, ids: map[int]string{}, labels: map[int][]string{}, foreign: map[int]bool{}, silent: map[int]bool{}}
	s.said = append(s.said, k.name)
	k.make(s)
	return s
}

func (s *shape) String() string { return strings.Join(s.said, "; ") }

func (s *shape) say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// between draws a number, both ends included.
func (s *shape) between(least, most int) int { return least + s.random.IntN(most-least+1) }

func (s *shape) coin() bool { return s.random.IntN(2) == 0 }

// all are the indexes of all nodes in a drawn order.
func (s *shape) all() []int { return s.random.Perm(len(s.members)) }

// some draws so many of a list.
func (s *shape) some(of []int, count int) []int {
	out := slices.Clone(of)
	s.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(count, len(out))]
}

func (s *shape) reflectors(id string, nodes ...int) []int {
	for _, i := range nodes {
		s.ids[i] = id
	}
	s.say("%s: %s", id, s.names(nodes))
	return nodes
}

func (s *shape) names(nodes []int) string {
	var out []string
	for _, i := range nodes {
		out = append(out, s.members[i].name)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// selector selects these nodes, by their names or by a label that they are given.
func (s *shape) selector(nodes []int) string {
	if s.coin() {
		var quoted []string
		for _, i := range nodes {
			quoted = append(quoted, fmt.Sprintf("'%s'", s.members[i].name))
		}
		return fmt.Sprintf("%s in {%s}", corev1.LabelHostname, strings.Join(quoted, ", "))
	}
	key := fmt.Sprintf("%sset-%d", modelPrefix, len(s.peers)*2+s.random.IntN(2))
	for slices.ContainsFunc(s.members, func(member) bool { return s.labeled(key) }) {
		key += "x"
	}
	for _, i := range nodes {
		s.labels[i] = append(s.labels[i], key)
	}
	return fmt.Sprintf("has(%s)", key)
}

func (s *shape) labeled(key string) bool {
	for _, keys := range s.labels {
		if slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

// peer asks for sessions between all nodes of one list and all of another, whichever of the two the BGPPeer is for.
func (s *shape) peer(from, to []int) {
	if len(from) == 0 || len(to) == 0 {
		return
	}
	if s.coin() {
		from, to = to, from
	}
	s.say("%s - %s", s.names(from), s.names(to))
	s.peers = append(s.peers, calicov3.BGPPeerSpec{NodeSelector: s.selector(from), PeerSelector: s.selector(to)})
}

// peerByAddress asks for the session of a node, or of all, with another, by its address.
func (s *shape) peerByAddress(from []int, to int) {
	spec := calicov3.BGPPeerSpec{PeerIP: s.members[to].address, ASNumber: numorstring.ASNumber(routereflector.DefaultASNumber)}
	switch {
	case len(from) == len(s.members):
		s.say("all - %s by address", s.members[to].name)
	case len(from) == 1 && s.coin():
		spec.Node = s.members[from[0]].name
		s.say("%s - %s by name and address", s.names(from), s.members[to].name)
	default:
		spec.NodeSelector = s.selector(from)
		s.say("%s - %s by address", s.names(from), s.members[to].name)
	}
	s.peers = append(s.peers, spec)
}

func (s *shape) flatOf(count int) (reflectors, clients []int) {
	all := s.all()
	reflectors, clients = s.reflectors("244.0.0.1", all[:count]...), all[count:]
	s.peer(clients, reflectors)
	if count > 1 && s.coin() {
		s.peer(reflectors, reflectors)
	}
	return reflectors, clients
}

func (s *shape) flat() { s.flatOf(s.between(2, 4)) }

func (s *shape) single() { s.flatOf(1) }

// distinct gives each reflector an ID of its own, as the old operator does, and each client some of them.
func (s *shape) distinct() {
	all := s.all()
	count := s.between(2, 4)
	reflectors, clients := all[:count], all[count:]
	for i, r := range reflectors {
		s.reflectors(fmt.Sprintf("244.0.0.%d", i+1), r)
	}
	s.peer(reflectors, reflectors)
	for _, c := range clients {
		s.peer([]int{c}, s.some(reflectors, s.between(1, 3)))
	}
}

// blackHoles gives clients some of the reflectors of one ID, so that some have none in common.
func (s *shape) blackHoles() {
	all := s.all()
	count := s.between(2, 4)
	reflectors, clients := s.reflectors("244.0.0.1", all[:count]...), all[count:]
	if s.coin() {
		s.peer(reflectors, reflectors)
	}
	for _, c := range clients {
		s.peer([]int{c}, s.some(reflectors, s.between(1, count)))
	}
}

func (s *shape) hierarchy() {
	all := s.all()
	take := func(count int) []int {
		count = min(count, len(all))
		out := all[:count]
		all = all[count:]
		return out
	}
	spines := s.reflectors("244.0.255.1", take(s.between(1, 2))...)
	s.peer(spines, spines)
	groups := s.between(2, 3)
	for g := range groups {
		reflectors := s.reflectors(fmt.Sprintf("244.0.1.%d", g+1), take(s.between(1, 2))...)
		clients := take(1 + s.random.IntN(2))
		if g == groups-1 {
			clients = append(slices.Clone(clients), take(len(all))...)
		}
		s.peer(clients, reflectors)
		s.peer(reflectors, spines)
		if s.coin() {
			s.peer(reflectors, reflectors)
		}
	}
}

// beside leaves the mesh on alongside reflectors that only some have sessions with.
func (s *shape) beside() {
	all := s.all()
	count := s.between(1, 3)
	s.mesh = true
	s.say("mesh")
	id := func(int) string { return "244.0.0.1" }
	if s.coin() {
		id = func(i int) string { return fmt.Sprintf("244.0.0.%d", i+1) }
	}
	for i, r := range all[:count] {
		s.reflectors(id(i), r)
	}
	clients := all[count:]
	s.peer(s.some(clients, s.between(0, len(clients))), all[:count])
	if s.coin() {
		s.peer(all[:count], all[:count])
	}
}

// overlapping asks for the same sessions more than once, in both directions.
func (s *shape) overlapping() {
	reflectors, clients := s.flatOf(s.between(2, 3))
	s.peer(s.some(clients, s.between(1, len(clients))), reflectors)
	s.peer(append(slices.Clone(clients), reflectors...), s.some(reflectors, 1))
	s.mesh = s.coin()
	s.say("mesh %v", s.mesh)
}

// foreigners gives some nodes another AS number. The model says nothing of their routes, but they must not matter to the others.
func (s *shape) foreigners() {
	_, clients := s.flatOf(s.between(1, 3))
	for _, i := range s.some(clients, s.between(1, 2)) {
		s.foreign[i] = true
		s.say("%s is foreign", s.members[i].name)
	}
	s.mesh = s.coin()
	s.say("mesh %v", s.mesh)
}

func (s *shape) silence() {
	s.flatOf(s.between(2, 3))
	s.silenceSome()
}

func (s *shape) silentHierarchy() {
	s.hierarchy()
	s.silenceSome()
}

func (s *shape) silenceSome() {
	for _, i := range s.some(s.all(), s.between(1, 2)) {
		s.silent[i] = true
		s.say("%s is silent", s.members[i].name)
	}
}

// byAddress is flat, with BGPPeers that name peers by their address: their cluster IDs are unknown to who is given them.
func (s *shape) byAddress() {
	all := s.all()
	count := s.between(1, 3)
	reflectors, clients := s.reflectors("244.0.0.1", all[:count]...), all[count:]
	for _, r := range reflectors {
		switch s.random.IntN(3) {
		case 0:
			s.peerByAddress(all, r)
		case 1:
			s.peerByAddress(clients, r)
		default:
			for _, c := range s.some(clients, s.between(1, len(clients))) {
				s.peerByAddress([]int{c}, r)
			}
		}
	}
	if count > 1 && s.coin() {
		s.peerByAddress(reflectors[:1], reflectors[1])
	}
}

// oneWay asks for sessions at one end alone; those that nobody asks for at the other end must not come.
func (s *shape) oneWay() {
	manual := calicov3.ReversePeeringManual
	_, clients := s.flatOf(s.between(1, 3))
	for i := range s.peers {
		s.peers[i].ReversePeering = &manual
	}
	s.say("all of it at one end alone")
	reflectors := slices.Sorted(maps.Keys(s.ids))
	here := s.some(clients, s.between(1, len(clients)))
	s.say("%s = %s", s.names(here), s.names(reflectors))
	for _, ends := range [][2][]int{{here, reflectors}, {reflectors, here}} {
		s.peers = append(s.peers, calicov3.BGPPeerSpec{NodeSelector: s.selector(ends[0]), PeerSelector: s.selector(ends[1]), ReversePeering: &manual})
	}
}

// any has no order at all.
func (s *shape) any() {
	ids := []string{"", "", "", "244.0.0.1", "244.0.0.1", "244.0.0.2"}
	all := s.all()
	for _, i := range all {
		if id := ids[s.random.IntN(len(ids))]; id != "" {
			s.reflectors(id, i)
		}
	}
	for range s.between(3, 8) {
		s.peer(s.some(all, s.between(1, 3)), s.some(all, s.between(1, 3)))
	}
}
