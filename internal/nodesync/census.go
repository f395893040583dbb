// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"slices"
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
	// namesDiffer says that a Calico Node may be called otherwise than its Kubernetes Node, as far as is known: then a host without a
	// Node cannot be told from a live machine.
	namesDiffer bool

	config Config
	roster roster
	claims map[string]int
	// witnessed are the Kubernetes Nodes whose deletion was watched.
	witnessed map[string]bool
}

// takeCensus sorts every Calico Node into alive, candidate, or left alone with a reason.
func takeCensus(w World, c Config) census {
	r := newRoster(w.Kubernetes.Nodes)
	s := census{config: c, roster: r, claims: c.claims(w.Calico.Nodes, r), witnessed: witnessed(w)}
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

// namedOtherwise says that a Calico Node has another name than its Kubernetes Node, for a reason that no configured domain explains.
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

// orphan says that the host has no Calico Node where it should have one, and so no identity but its name.
func (n CalicoNode) orphan() bool { return n.Implied && len(n.OrchRefs) == 0 }

func (s *census) place(n CalicoNode) {
	name, adopted, gate, message := s.config.identify(n)
	if gate != "" {
		s.refuse(Subject{Host: n.Name}, gate, message)
		return
	}
	if n.OnlyWitnessed && !s.roster.listed[name] && !s.witnessed[name] {
		s.refuse(Subject{Host: n.Name}, GateNoIdentity, "objects of other kinds are about it, and nothing shows that it was ever a Kubernetes Node")
		return
	}
	cand := candidate{node: n, adopted: adopted, subject: Subject{Host: n.Name, KubernetesNode: name}}
	if !n.orphan() {
		s.referenced++
	}
	if s.roster.listed[name] {
		s.placeAlive(cand)
		return
	}
	if listed := s.roster.listedSpellings(s.config, name); len(listed) > 0 {
		s.placeMapped(cand, listed)
		return
	}
	if doubt := s.doubt(cand); doubt != "" {
		s.countAlive(cand)
		s.refuse(cand.subject, GateAmbiguousName, doubt)
		return
	}
	s.candidates = append(s.candidates, cand)
}

func (s *census) countAlive(cand candidate) {
	if cand.node.orphan() {
		s.aliveOrphans++
	} else {
		s.alive++
	}
}

// placeAlive takes a machine whose Kubernetes Node is listed.
func (s *census) placeAlive(cand candidate) {
	s.countAlive(cand)
	if !cand.node.orphan() {
		s.certain++
	}
	if cand.node.FencedFor != "" {
		s.revived = append(s.revived, cand)
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
	case n.orphan() && s.namesDiffer:
		return "it has no Calico Node, and Calico Nodes here have other names than their Kubernetes Nodes, so it may be any of them"
	case cand.adopted && s.namesDiffer:
		return "it has no orchRef, and Calico Nodes here have other names than their Kubernetes Nodes, so it may be any of them; --domain says how they differ"
	}
	// The Calico Node's own name counts as well: two machines that share one Calico Node by mistake overwrite each other's orchRef.
	return cmp.Or(s.roster.doubt(name), s.roster.likeness(n.Name))
}

func (s *census) refuse(of Subject, g Gate, message string) {
	s.refusals = append(s.refusals, Refusal{Of: of, Gate: g, Message: message})
}
