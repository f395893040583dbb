// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// spareMeshWitnesses is how many members of the mesh are asked beyond those that must answer, since one of them may be silent.
const spareMeshWitnesses = 2

// witnesses lists the nodes whose sightings the first step waits for, or the end of the last one, or a decision about a reflector in trouble; never
// such a reflector itself. It is empty where nothing waits: nobody is asked without a need. samples are those of them that are asked for
// their routes.
func (w gates) witnesses(p Plan) (witnesses, samples []string) {
	needed, samples := w.stepWitnesses(p)
	if len(p.Steps) == 0 && p.Waiting != "" {
		needed = w.working(nil)
	}
	if !w.exiting() {
		needed = slices.Concat(needed, w.reflectorsOf(w.Suspects))
	}
	asked := map[string]bool{}
	for _, n := range needed {
		asked[n.Name] = true
	}
	if !w.exiting() {
		for i := range p.Troubles {
			for _, name := range p.Troubles[i].observers() {
				asked[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(asked)), samples
}

// stepWitnesses are those that the first step waits for, and which of them are asked for their routes.
func (w gates) stepWitnesses(p Plan) (needed []Node, samples []string) {
	if len(p.Steps) == 0 {
		return nil, nil
	}
	switch step := p.Steps[0]; step.Kind {
	case Promote, RetirePeer:
		if w.restores(step) {
			return nil, nil
		}
		return w.working(nil), nil
	case MeshOff:
		return w.meshOffWitnesses(p)
	case Demote:
		if w.gatedByMesh() {
			return w.meshSample(), nil
		}
		stay := w.concerned(step, p.Reflectors)
		return slices.Concat(stay, w.carriers(stay)), nil
	case Leave:
		return w.movedTo(), nil
	case EnsurePeer, RemovePeer, MeshOn, Adopt, Assign, Join, Release:
	}
	return nil, nil
}

// carriers are the working reflectors, apart from those that stay, of clients with which none of these has a session: whether they carry these clients decides
// whether anybody is waited for.
func (w gates) carriers(stay []Node) []Node {
	if w.Mesh.On {
		return nil
	}
	clients, dark := w.roster(), []*Node(nil)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		own := func(r Node) bool { return clients.has(n, r.group()) }
		if n.isSelected(&w.Topology) && slices.ContainsFunc(stay, own) && w.cutOff(*n, clients, stay) {
			dark = append(dark, n)
		}
	}
	return slices.DeleteFunc(w.working(nil), func(r Node) bool {
		return isOneOf(r, stay) || !slices.ContainsFunc(dark, func(n *Node) bool { return clients.has(n, r.group()) })
	})
}

// meshOffWitnesses are the reflectors, and a sample of the others once routes are worth asking for: they are many to write, so only when the sessions
// that bring them are there. Who has been asked goes on, even if a reflector's word must be renewed meanwhile: else neither might ever be
// fresh at the same time as the other.
func (w gates) meshOffWitnesses(p Plan) (needed []Node, samples []string) {
	if len(inRole(p.Reflectors, RoleJoining)) > 0 {
		return nil, nil
	}
	reflectors, sample := w.working(nil), w.sample()
	if w.unsettled(reflectors) != "" && !slices.ContainsFunc(sample, w.hasSpoken) {
		return reflectors, nil
	}
	return slices.Concat(reflectors, sample), w.asksRoutes(sample)
}

// gatedByMesh says that a reflector that goes now leaves the mesh to carry the routes.
func (w gates) gatedByMesh() bool {
	return w.exiting() || w.Mesh.On && w.resetsSessions(w.changedPeers(w.design()))
}

// meshSample picks the members of the mesh that are asked for its sessions, the same ones as long as they live.
func (w gates) meshSample() []Node {
	members := slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool {
		return !n.speaks() || n.ClusterID != "" || n.Ready != corev1.ConditionTrue
	})
	slices.SortFunc(members, func(a, b Node) int {
		return cmp.Compare(rendezvous(w.Topology.Name, a.Name), rendezvous(w.Topology.Name, b.Name))
	})
	return members[:min(len(members), meshSample+spareMeshWitnesses)]
}
