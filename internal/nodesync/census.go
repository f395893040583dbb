// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// census is who is who among the Calico Nodes.
type census struct {
	// Hosts without a Calico Node are not counted here: what somebody left once must not outweigh the machines there are.
	alive      int // Calico Nodes of Kubernetes whose Kubernetes Node is listed, or may be
	certain    int // of those, the ones about whose name there is no doubt
	referenced int // Calico Nodes of Kubernetes
	// aliveOrphans are hosts without a Calico Node of which the same holds as of the alive.
	aliveOrphans int
	candidates   []candidate
	revived      []candidate
	refusals     []Refusal
	// namesDiffer reports that a Calico Node may be called otherwise than its Kubernetes Node, as far as is known: then a host without a
	// Node cannot be told from a live machine.
	namesDiffer bool

	config Config
	roster roster
	claims map[string]int
	// witnessed are the Kubernetes Nodes whose deletion was watched; own are, for each Kubernetes Node, the Calico Nodes that name it.
	witnessed map[string]bool
	own       map[string][]string
	// doubted are machines whose deletion was watched and that may live all the same: that it was is not forgotten meanwhile.
	doubted []candidate
	// returned are machines that are listed again and have no Calico Node yet: whose the blocks are that stayed is not
	// forgotten until they have one.
	returned []candidate
}

// takeCensus sorts every Calico Node into alive, candidate, or left alone with a reason.
func takeCensus(w World, c Config) census {
	r := newRoster(w.Kubernetes.Nodes)
	s := census{config: c, roster: r, claims: c.claims(w.Calico.Nodes, r), witnessed: witnessed(w)}
	s.own = ownNodes(w.Calico.Nodes)
	s.namesDiffer = slices.ContainsFunc(w.Calico.Nodes, s.namedOtherwise)
	for _, key := range slices.Sorted(slices.Values(w.Calico.Unreadable)) {
		s.refuse(Subject{Host: key}, GateUnreadable, "its value in the datastore cannot be parsed")
	}
	nodes := slices.SortedFunc(slices.Values(w.Calico.Nodes), func(a, b CalicoNode) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		s.place(n)
	}
	return s
}

// ownNodes lists, for each Kubernetes Node, the Calico Nodes whose orchRef names it.
func ownNodes(nodes []CalicoNode) map[string][]string {
	own := make(map[string][]string, len(nodes))
	for _, n := range nodes {
		if name, gate, _ := kubernetesName(n); gate == "" && !n.OnlyWitnessed {
			own[name] = append(own[name], n.Name)
		}
	}
	return own
}

// namedOtherwise reports that a Calico Node has another name than its Kubernetes Node, for a reason that no configured domain explains.
func (s *census) namedOtherwise(n CalicoNode) bool {
	name, adopted, gate, _ := s.config.identify(n)
	if n.Implied || gate != "" {
		return false
	}
	if adopted {
		return len(s.roster.listedSpellings(s.config, name)) == 0 && s.roster.likeness(name) != ""
	}
	return name != n.Name && !slices.Contains(s.config.Spellings(name), n.Name)
}

// orphan reports that the host has no Calico Node where it should have one, and so no identity but its name.
func (n CalicoNode) orphan() bool { return n.Implied && len(n.OrchRefs) == 0 && n.former == "" }

// nameless reports that nothing in the datastore but a name shows which machine it is: it says nothing about whether
// this is the right cluster.
func (n CalicoNode) nameless() bool { return n.orphan() || n.OnlyWitnessed || n.former != "" }

func (s *census) place(n CalicoNode) {
	name, adopted, gate, message := s.config.identify(n)
	if gate != "" {
		s.refuse(Subject{Host: n.Name}, gate, message)
		return
	}
	named := slices.Contains(s.config.Named, n.Name)
	if n.OnlyWitnessed && !s.roster.listed[name] && !s.witnessed[name] && !named {
		s.leaveConfiguration(n)
		return
	}
	cand := candidate{node: n, adopted: adopted, named: named, subject: Subject{Host: n.Name, KubernetesNode: name}}
	if !n.nameless() {
		s.referenced++
	}
	if s.secondName(cand) {
		cand.subject.Second = true
		cand.second = slices.DeleteFunc(slices.Clone(s.own[name]), func(other string) bool { return other == n.Name })
		s.candidates = append(s.candidates, cand)
		return
	}
	if s.roster.listed[name] {
		s.placeAlive(cand)
		return
	}
	if s.renamed(cand) {
		cand.subject.Exact = true
		cand.subject.Served = strings.Join(s.roster.listedSpellings(s.config, name), " ")
		s.candidates = append(s.candidates, cand)
		return
	}
	s.placeMissing(cand)
}

// placeMissing takes a machine whose Kubernetes Node is not listed: it is a candidate, unless its name may be another's.
func (s *census) placeMissing(cand candidate) {
	n, name := cand.node, cand.subject.KubernetesNode
	listed := s.roster.listedSpellings(s.config, name)
	doubt := s.doubt(cand)
	if len(listed) == 0 && doubt == "" {
		s.candidates = append(s.candidates, cand)
		return
	}
	if n.OnlyWitnessed && len(listed) == 0 {
		// What a clean-up leaves to users is not an absence to be remembered: it would be for as long as they leave it.
		s.leaveConfiguration(n)
		return
	}
	if s.witnessed[name] {
		s.doubted = append(s.doubted, cand)
	}
	if len(listed) > 0 {
		s.placeMapped(cand, listed)
		return
	}
	s.countAlive(cand)
	s.refuse(cand.subject, GateAmbiguousName, doubt)
}

// leaveConfiguration leaves a host alone of which there are only objects that users or programs wrote about it.
func (s *census) leaveConfiguration(n CalicoNode) {
	s.refuse(Subject{Host: n.Name}, GateOrphanedConfiguration, "objects that users or programs wrote are about it, and there is neither "+
		"a Calico Node nor a Kubernetes Node of this name: if the machine is gone, `calico-node-sync apply "+n.Name+
		" --also-remove=KIND` removes them")
}

// renamed reports that a machine is none of the Kubernetes Nodes that it may be by its names, since each of them has a Calico Node of its
// own: it is the old name of one of them. That is believed of a deletion that was watched, and of what a person names, where the Calico Node
// is called as its Kubernetes Node.
func (s *census) renamed(cand candidate) bool {
	n, name := cand.node, cand.subject.KubernetesNode
	unsure := n.former == "" && n.nameless() && s.namesDiffer
	if !s.witnessed[name] && !cand.named || n.Name != name || cand.adopted || unsure || !validNodeName(name) {
		return false
	}
	like := s.like(name)
	return len(like) > 0 && s.allServed(like, n.Name)
}

// like lists the Kubernetes Nodes that a machine of this name may be.
func (s *census) like(name string) []string {
	return slices.Concat(s.roster.alike(name), s.roster.listedSpellings(s.config, name))
}

// allServed reports that each of the Kubernetes Nodes has a Calico Node of its own, but for the one of that name.
func (s *census) allServed(kubernetes []string, but string) bool {
	return !slices.ContainsFunc(kubernetes, func(node string) bool {
		return !slices.ContainsFunc(s.own[node], func(calico string) bool { return calico != but })
	})
}

// secondName reports that a Calico Node which a person has named is one of several of a Kubernetes Node that lives. Which of them its
// calico-node uses is for live reads to show.
func (s *census) secondName(cand candidate) bool {
	n, name := cand.node, cand.subject.KubernetesNode
	return cand.named && !n.Implied && !cand.adopted && s.roster.listed[name] && len(s.own[name]) > 1 &&
		validNodeName(n.Name) && (n.Name == name || !s.roster.listed[n.Name]) && s.allServed(s.like(n.Name), n.Name)
}

func (s *census) countAlive(cand candidate) {
	if cand.node.nameless() {
		s.aliveOrphans++
	} else {
		s.alive++
	}
}

// placeAlive takes a machine whose Kubernetes Node is listed.
func (s *census) placeAlive(cand candidate) {
	s.countAlive(cand)
	if !cand.node.nameless() {
		s.certain++
	}
	if cand.node.FencedFor != "" {
		s.revived = append(s.revived, cand)
	}
	if cand.node.former != "" {
		s.returned = append(s.returned, cand)
	}
	if cand.named {
		exists := Refusal{Of: cand.subject, Gate: GateNotConfirmed, Message: "its Kubernetes Node exists", Lives: true}
		s.refusals = append(s.refusals, exists)
	}
}

// placeMapped takes a machine of which one or more Kubernetes Nodes are listed that it is by a domain. It is alive in any case.
func (s *census) placeMapped(cand candidate, listed []string) {
	name := cand.subject.KubernetesNode
	switch claims := s.claims[listed[0]]; {
	case len(listed) > 1:
		s.countAlive(cand)
		s.refuse(cand.subject, GateAmbiguousName, "with the domains "+quote(name)+" may be any of Kubernetes Nodes "+quoteAll(listed))
	case claims > 1:
		s.countAlive(cand)
		s.refuse(cand.subject, GateAmbiguousName, fmt.Sprintf("with the domains %d Calico Nodes would be Kubernetes Node %s", claims, quote(listed[0])))
	default:
		s.placeAlive(cand)
	}
}

// doubt says why a machine whose Kubernetes Node is not listed may live all the same, "" for no doubt.
func (s *census) doubt(cand candidate) string {
	n, name := cand.node, cand.subject.KubernetesNode
	switch own := s.roster.listedSpellings(s.config, n.Name); {
	case len(own) > 0:
		// The orchRef says one name and the machine goes by another that is alive: whichever is wrong, it is not proof of absence.
		return "its orchRef names " + quote(name) + ", which is gone, but a Kubernetes Node " + quote(own[0]) + " exists"
	case n.former == "" && n.nameless() && s.namesDiffer:
		return "it has no Calico Node, and Calico Nodes here have other names than their Kubernetes Nodes, so it may be any of them"
	case cand.adopted && s.namesDiffer:
		return "it has no orchRef, and Calico Nodes here have other names than their Kubernetes Nodes, so it may be any of them; --domain names the difference"
	}
	// The Calico Node's own name counts as well: two machines that share one Calico Node by mistake overwrite each other's orchRef.
	return cmp.Or(s.roster.doubt(name), s.roster.likeness(n.Name))
}

func (s *census) refuse(of Subject, g Gate, message string) {
	s.refusals = append(s.refusals, Refusal{Of: of, Gate: g, Message: message})
}
