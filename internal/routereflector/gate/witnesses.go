// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
)

// spareMeshWitnesses is how many members of the mesh are asked beyond those that must answer, since one of them may be
// silent.
const spareMeshWitnesses = 2

// witnesses lists the nodes whose sightings the first step waits for, or the end of the last one, or a decision about a
// reflector in trouble; never such a reflector itself. It is empty where nothing waits: nobody is asked without a need.
// samples are those of them that are asked for their routes.
func witnesses(w *rr.World, p rr.Plan) (witnesses, samples []string) {
	needed, samples := stepWitnesses(w, p)
	if len(p.Steps) == 0 && p.Waiting != "" {
		needed = w.Working(nil)
	}
	if !w.Exiting() {
		needed = slices.Concat(needed, reflectorsOf(w, w.Suspects))
	}
	asked := map[string]bool{}
	for _, n := range needed {
		asked[n.Name] = true
	}
	if !w.Exiting() {
		for i := range p.Troubles {
			for _, name := range p.Troubles[i].Observers() {
				asked[name] = true
			}
			for _, n := range successors(w, p.Troubles[i].Node) {
				asked[n.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(asked)), samples
}

// successors are the working reflectors that have their sessions with those who may take the place of a reflector in
// trouble. They are queried as soon as it is, so that neither the promotion nor the demotion has to wait for their
// reports.
func successors(w *rr.World, reflector string) []rr.Node {
	n, _ := w.Node(reflector)
	out := rr.GroupOf(w.Working(nil), n.Group())
	return slices.DeleteFunc(out, func(o rr.Node) bool { return o.Name == reflector })
}

// stepWitnesses are those that the first step waits for, and which of them are asked for their routes.
func stepWitnesses(w *rr.World, p rr.Plan) (needed []rr.Node, samples []string) {
	if len(p.Steps) == 0 {
		return nil, nil
	}
	switch step := p.Steps[0].(type) {
	case rr.RetirePeer:
		return w.Working(nil), nil
	case rr.Promote:
		if w.Restores(step.Name) {
			return nil, nil
		}
		if w.IsSpare(step.Name) && !w.Mesh.On {
			return reflectorsOf(w, []string{step.Name}), nil
		}
		return w.Working(nil), nil
	case rr.MeshOff:
		return meshOffWitnesses(w, p)
	case rr.Demote:
		if GatedByMesh(w) {
			return meshMembers(w), nil
		}
		stay := concerned(w, step.Name, p.Reflectors)
		return slices.Concat(stay, carriers(w, stay)), nil
	case rr.Leave:
		return movedTo(w), nil
	case rr.EnsurePeer:
		if scatters(w, step) {
			return w.Working(nil), nil
		}
	case rr.RemovePeer, rr.MeshOn, rr.Adopt, rr.Assign, rr.Join, rr.Release:
	}
	return nil, nil
}

// carriers are the working reflectors, apart from those that stay, of clients with which none of these has a session:
// whether they carry these clients decides whether anybody is waited for.
func carriers(w *rr.World, stay []rr.Node) []rr.Node {
	if w.Mesh.On {
		return nil
	}
	clients, dark := w.Roster(), []*rr.Node(nil)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		own := func(r rr.Node) bool { return clients.Has(n, r.Group()) }
		if n.IsSelected(&w.Topology) && slices.ContainsFunc(stay, own) && w.CutOff(*n, clients, stay) {
			dark = append(dark, n)
		}
	}
	return slices.DeleteFunc(w.Working(nil), func(r rr.Node) bool {
		return rr.IsOneOf(r, stay) ||
			!slices.ContainsFunc(dark, func(n *rr.Node) bool { return clients.Has(n, r.Group()) })
	})
}

// meshOffWitnesses are the reflectors, and a sample of the others once routes are worth asking for: they are many to
// write, so only when the sessions that bring them are there. Who has been asked goes on, even if a reflector's word
// must be renewed meanwhile: else neither might ever be fresh at the same time as the other.
func meshOffWitnesses(w *rr.World, p rr.Plan) (needed []rr.Node, samples []string) {
	if len(rr.InRole(p.Reflectors, rr.RoleJoining)) > 0 {
		return nil, nil
	}
	reflectors, sample := w.Working(nil), sample(w)
	if unsettled(w, reflectors) != "" && !slices.ContainsFunc(sample, w.HasSpoken) {
		return reflectors, nil
	}
	return slices.Concat(reflectors, sample), asksRoutes(w, sample)
}

// GatedByMesh says that a reflector that goes now leaves the mesh to carry the routes.
func GatedByMesh(w *rr.World) bool {
	return w.Exiting() || w.Mesh.On && design.ResetsSessions(w, design.ChangedPeers(w, design.Decide(w)))
}

// meshMembers picks the members of the mesh that are asked for its sessions, the same ones as long as they live.
func meshMembers(w *rr.World) []rr.Node {
	members := slices.DeleteFunc(slices.Clone(w.Nodes), func(n rr.Node) bool {
		return !n.Speaks() || n.ClusterID != "" || n.Ready != corev1.ConditionTrue
	})
	slices.SortFunc(members, func(a, b rr.Node) int {
		return cmp.Compare(rr.Rendezvous(w.Topology.Name, a.Name), rr.Rendezvous(w.Topology.Name, b.Name))
	})
	return members[:min(len(members), meshSample+spareMeshWitnesses)]
}

// reflectorsOf are the working reflectors of some clients, of those whose Nodes are Ready: [World.SilentClients] names
// no others.
func reflectorsOf(w *rr.World, names []string) []rr.Node {
	if len(names) == 0 {
		return nil
	}
	clients := w.Roster()
	return slices.DeleteFunc(w.Working(nil), func(r rr.Node) bool {
		for _, name := range names {
			if n, exists := w.Node(name); exists && n.Ready == corev1.ConditionTrue && n.IsClient(&w.Topology) &&
				clients.Has(&n, r.Group()) {
				return false
			}
		}
		return true
	})
}
