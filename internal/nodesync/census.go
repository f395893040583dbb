// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"slices"
)

// census is who is who among the Calico Nodes.
type census struct {
	alive      int // Calico Nodes of Kubernetes whose Kubernetes Node is listed
	referenced int // Calico Nodes of Kubernetes
	candidates []candidate
	revived    []candidate
	refusals   []Refusal
	// namesDiffer says that a Calico Node may be called otherwise than its Kubernetes Node, as far as is known: then a host without a
	// Node cannot be told from a live machine.
	namesDiffer bool
}

// takeCensus sorts every Calico Node into alive, candidate, or left alone with a reason.
func takeCensus(w World) census {
	r := newRoster(w.Kubernetes.Nodes)
	s := census{namesDiffer: namesDiffer(w.Calico.Nodes)}
	for _, key := range slices.Sorted(slices.Values(w.Calico.Unreadable)) {
		s.refuse(Subject{Host: key}, GateUnreadable, "its value in the datastore cannot be parsed")
	}
	nodes := slices.SortedFunc(slices.Values(w.Calico.Nodes), func(a, b CalicoNode) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		s.place(n, r)
	}
	return s
}

// namesDiffer looks for a Calico Node whose Kubernetes Node has another name.
func namesDiffer(nodes []CalicoNode) bool {
	return slices.ContainsFunc(nodes, func(n CalicoNode) bool {
		name, gate, _ := kubernetesName(n)
		return !n.Implied && gate == "" && name != n.Name
	})
}

// orphan says that the host has no Calico Node where it should have one, and so no identity but its name.
func (n CalicoNode) orphan() bool { return n.Implied && len(n.OrchRefs) == 0 }

func (s *census) place(n CalicoNode, r roster) {
	name, gate, message := kubernetesName(n)
	if n.orphan() {
		name, gate = n.Name, ""
	}
	if gate != "" {
		s.refuse(Subject{Host: n.Name}, gate, message)
		return
	}
	subject := Subject{Host: n.Name, KubernetesNode: name}
	s.referenced++
	// The Calico Node's own name counts as well: two machines that share one Calico Node by mistake overwrite each other's orchRef.
	doubt := cmp.Or(r.doubt(name), r.likeness(n.Name))
	switch {
	case r.listed[name]:
		s.alive++
		if n.FencedFor != "" {
			s.revived = append(s.revived, candidate{node: n, subject: subject})
		}
	case r.listed[n.Name]:
		// The orchRef says one name and the machine goes by another that is alive: whichever is wrong, it is not proof of absence.
		s.alive++
		s.refuse(subject, GateAmbiguousName, "its orchRef names "+quote(name)+", which is gone, but a Kubernetes Node "+quote(n.Name)+" exists")
	case n.orphan() && s.namesDiffer:
		s.alive++
		s.refuse(subject, GateAmbiguousName, "it has no Calico Node, and Calico Nodes here have other names than their Kubernetes Nodes, so it may be any of them")
	case doubt != "":
		s.alive++
		s.refuse(subject, GateAmbiguousName, doubt)
	default:
		s.candidates = append(s.candidates, candidate{node: n, subject: subject})
	}
}

func (s *census) refuse(of Subject, g Gate, message string) {
	s.refusals = append(s.refusals, Refusal{Of: of, Gate: g, Message: message})
}
