// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// defaultMeshNodes is the greatest mesh that is turned on where the spec names none. Each node of a mesh has a session
// with every other: confd renders them all on each, and Calico's documents advise a mesh for up to about a hundred
// nodes. Twice that still works; with a thousand nodes half a million sessions would begin at once, just when the
// reflectors are to go.
const defaultMeshNodes = 200

// MeshNodes counts the nodes that the mesh would have to connect once the topology's reflectors are ordinary nodes.
func MeshNodes(w *rr.World) int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		count += rr.Count(n.RunsBGP() && !n.ForeignReflector(&w.Topology))
	}
	return count
}

// MeshLimit is how many nodes the mesh may have at most to be turned on.
func MeshLimit(w *rr.World) int {
	if most := int(w.Topology.Spec.Sizing.MaxMeshNodes); most > 0 {
		return most
	}
	return defaultMeshNodes
}

// MeshTooLarge reports that the mesh must not be turned on.
func MeshTooLarge(w *rr.World) bool { return MeshNodes(w) > MeshLimit(w) }
