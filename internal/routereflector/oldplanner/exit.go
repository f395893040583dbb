// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import "github.com/mooring-dev/mooring/api/bgp/v1alpha1"

// defaultMeshNodes is the greatest mesh that is turned on where the spec names none. Each node of a mesh has a session with every other:
// confd renders them all on each, and Calico's documents advise a mesh for up to about a hundred nodes. Twice that still works; with a
// thousand nodes half a million sessions would begin at once, just when the reflectors are to go.
const defaultMeshNodes = 200

// meshNodes counts the nodes that the mesh would have to connect once the topology's reflectors are ordinary nodes.
func (w candidates) meshNodes() int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		count += boolInt(n.runsBGP() && !n.foreignReflector(&w.Topology))
	}
	return count
}

func (w candidates) meshLimit() int {
	if most := int(w.Topology.Spec.Sizing.MaxMeshNodes); most > 0 {
		return most
	}
	return defaultMeshNodes
}

// meshTooLarge reports that the mesh must not be turned on.
func (w candidates) meshTooLarge() bool { return w.meshNodes() > w.meshLimit() }

// exitRefused says why the topology's reflectors must not go although it is being deleted: nothing would carry the routes. It does not
// matter while the mesh is on, or without reflectors.
func (w objections) exitRefused() *Refusal {
	if !w.exiting() || w.Mesh.On || len(w.marked()) == 0 {
		return nil
	}
	var r *Refusal
	switch {
	case w.Topology.Spec.Mesh != v1alpha1.MeshManage:
		r = refuse(ReasonMeshNotManaged, "the topology is being deleted while the node-to-node mesh is off, and spec.mesh is %s: without its reflectors nodes would "+
			"lose their routes; turn the mesh on, set spec.mesh to %s, or, if something else carries the routes, run %s",
			w.Topology.Spec.Mesh, v1alpha1.MeshManage, w.howToConfirm(v1alpha1.ForceExitAnnotation, string(ReasonMeshNotManaged)))
	case w.meshTooLarge():
		r = refuse(ReasonMeshTooLarge, "the topology is being deleted, and the node-to-node mesh that is to take over would have %d nodes, more than "+
			"spec.sizing.maxMeshNodes (%d); raise that, divide the cluster otherwise, or run %s",
			w.meshNodes(), w.meshLimit(), w.howToConfirm(v1alpha1.ForceExitAnnotation, string(ReasonMeshTooLarge)))
	default:
		return nil
	}
	if w.forced(r.Reason) {
		return nil
	}
	return r
}

// sessionOptionsOfMany refuses other options of sessions where the mesh, which would carry the clients meanwhile, would be too large.
func (w objections) sessionOptionsOfMany() *Refusal {
	if !w.meshTooLarge() {
		return nil
	}
	return refuse(ReasonSessionOptions, "spec.session has changed, which resets every session; the node-to-node mesh that would carry the clients meanwhile would "+
		"have %d nodes, more than spec.sizing.maxMeshNodes (%d); raise that, or change spec.session back", w.meshNodes(), w.meshLimit())
}
