// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// spareMeshWitnesses is how many members of the mesh are asked beyond those that must answer, since one of them may be silent.
const spareMeshWitnesses = 2

// witnesses lists the nodes whose sightings the first step waits for, or the end of the last one, or a decision about a reflector in trouble; never
// such a reflector itself. It is empty where nothing waits: nobody is asked without a need. samples are those of them that are asked for their routes.
func (w World) witnesses(p Plan) (witnesses, samples []string) {
	asked := map[string]bool{}
	add := func(nodes []Node) {
		for _, n := range nodes {
			asked[n.Name] = true
		}
	}
	if len(p.Steps) > 0 {
		switch step := p.Steps[0]; step.Kind {
		case Promote, RetirePeer:
			add(w.working(nil))
		case MeshOff:
			if len(inRole(p.Reflectors, RoleJoining)) > 0 {
				break
			}
			add(w.working(nil))
			// Routes are worth asking for, and many to write, only once the sessions that bring them are there. Who has been asked goes on, even
			// if a reflector's word must be renewed meanwhile: else neither might ever be fresh at the same time as the other.
			sample := w.sample()
			if w.unsettled(w.working(nil)) == "" || slices.ContainsFunc(sample, w.hasSpoken) {
				add(sample)
				samples = w.asksRoutes(sample)
			}
		case Demote:
			if w.gatedByMesh() {
				add(w.meshSample())
			} else {
				add(w.concerned(step, p.Reflectors))
			}
		case Leave:
			add(w.movedTo())
		case EnsurePeer, RemovePeer, MeshOn, Adopt, Assign, Join, Release:
		}
	}
	if len(p.Steps) == 0 && p.Waiting != "" {
		add(w.working(nil))
	}
	for i := range p.Troubles {
		if w.exiting() {
			break
		}
		for _, name := range p.Troubles[i].observers() {
			asked[name] = true
		}
	}
	return slices.Sorted(maps.Keys(asked)), samples
}

// hasSpoken says that there is a sighting of the node, be it an old one.
func (w World) hasSpoken(n Node) bool {
	return slices.ContainsFunc(w.Sightings, func(s Sighting) bool { return s.Node == n.Name })
}

// gatedByMesh says that a reflector that goes now leaves the mesh to carry the routes.
func (w World) gatedByMesh() bool {
	return w.exiting() || w.Mesh.On && w.resetsSessions(w.changedPeers(w.design()))
}

// meshSample picks the members of the mesh that are asked for its sessions, the same ones as long as they live.
func (w World) meshSample() []Node {
	members := slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool {
		return !n.speaks() || n.ClusterID != "" || n.Ready != corev1.ConditionTrue
	})
	slices.SortFunc(members, func(a, b Node) int {
		return cmp.Compare(rendezvous(w.Topology.Name, a.Name), rendezvous(w.Topology.Name, b.Name))
	})
	return members[:min(len(members), meshSample+spareMeshWitnesses)]
}
