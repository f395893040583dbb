// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package refuse

import (
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/design"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
)

// Refusals lists the reasons to plan nothing. Each is a sentence that says what is wrong, where, and what to do.
func Refusals(w *rr.World, d design.Design) []rr.Refusal {
	checks := []func(*rr.World) *rr.Refusal{paused, datastore, Binding, doubted, exitRefused}
	if !w.Exiting() { // whatever the spec says by then, what was done for it can be undone
		checks = append(checks,
			badSelector, zonesOfSizing, clusterID, clusterIDTaken,
			overlapping, filters, adoption, notNeeded,
			func(w *rr.World) *rr.Refusal { return shape(w, d) },
			func(w *rr.World) *rr.Refusal { return groupIDs(w, d) })
	}
	for _, p := range design.PeersFor(w, d) {
		checks = append(checks, func(w *rr.World) *rr.Refusal { return foreignPeer(w, p.Name) })
	}
	checks = append(checks, func(w *rr.World) *rr.Refusal { return sessionOptions(w, d) })
	var out []rr.Refusal
	for _, check := range checks {
		if r := check(w); r != nil {
			out = append(out, *r)
		}
	}
	if len(out) == 0 && !w.Exiting() && w.Clients() == 0 && len(w.Marked()) == 0 {
		out = append(out,
			*rr.Refuse(rr.ReasonNoClients, "spec.clientSelector selects no node on which calico-node has set BGP up"))
	}
	return out
}

// doubted refuses everything while the observed state is not believed.
func doubted(w *rr.World) *rr.Refusal { return health.Doubt(w) }

func paused(w *rr.World) *rr.Refusal {
	if !w.Topology.Spec.Paused {
		return nil
	}
	return rr.Refuse(rr.ReasonPaused, "spec.paused is true; set it to false to go on")
}

func datastore(w *rr.World) *rr.Refusal {
	if w.DatastoreReady {
		return nil
	}
	return rr.Refuse(rr.ReasonDatastoreNotReady,
		"Calico's ClusterInformation says datastoreReady=false: its datastore is being migrated or upgraded and must not be written to")
}

// zonesOfSizing is checked by the API server as well, as is the cluster ID, but not where the plan is made from a file.
func zonesOfSizing(w *rr.World) *rr.Refusal {
	if s := w.Topology.Spec; s.Sizing.PerZone == nil || len(s.TopologyKeys) > 0 {
		return nil
	}
	return rr.Refuse(rr.ReasonSizing, "spec.sizing.perZone: needs spec.topologyKeys, whose first key names the zones")
}

// badSelector looks for a selector that is none. The API server does not look inside one, and that of clients becomes
// text in Calico's language: a key or value with a quote or a parenthesis in it would become a part of the expression.
// No label can have such a value (k8s.io/apimachinery, pkg/apis/meta/v1/validation).
func badSelector(w *rr.World) *rr.Refusal {
	spec, path := &w.Topology.Spec, field.NewPath("spec")
	reflectors := path.Child("reflectors")
	check := func(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
		return validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, at)
	}
	wrong := check(&spec.ClientSelector, path.Child("clientSelector"))
	wrong = append(wrong, check(&spec.Reflectors.Required, reflectors.Child("required"))...)
	wrong = append(wrong, check(spec.Reflectors.Excluded, reflectors.Child("excluded"))...)
	for i := range spec.Reflectors.Preferred {
		at := reflectors.Child("preferred").Index(i).Child("selector")
		wrong = append(wrong, check(&spec.Reflectors.Preferred[i].Selector, at)...)
	}
	if spec.Adopt != nil {
		wrong = append(wrong, check(&spec.Adopt.Nodes, path.Child("adopt", "nodes"))...)
	}
	if len(wrong) == 0 {
		return nil
	}
	return rr.Refuse(rr.ReasonSelector, "%s; correct it", wrong[0])
}

func clusterID(w *rr.World) *rr.Refusal {
	id := w.Topology.Spec.ClusterID
	if a, err := netip.ParseAddr(id); err == nil && a.Is4() && !a.IsUnspecified() {
		return nil
	}
	return rr.Refuse(rr.ReasonClusterID,
		"spec.clusterID %q: must be an IPv4 address other than 0.0.0.0, such as 244.0.0.1", id)
}

func clusterIDTaken(w *rr.World) *rr.Refusal {
	taken := idTakenBy(w)
	if taken == "" || w.Exiting() {
		return nil
	}
	return rr.Refuse(rr.ReasonClusterIDTaken,
		"spec.clusterID %s: %s has it already, and clients that share no reflector would not reach each other; choose another",
		w.Topology.Spec.ClusterID, taken)
}

func overlapping(w *rr.World) *rr.Refusal {
	other, node := overlap(w)
	if other == "" || w.Exiting() {
		return nil
	}
	return rr.Refuse(rr.ReasonOverlap,
		"RouteReflectorTopology %s is older and has clients of this one, such as Node %s; make their spec.clientSelector disjoint",
		other, node)
}

func foreignPeer(w *rr.World, name string) *rr.Refusal {
	have, exists := w.Peer(name)
	if !exists || have.Topology == w.Topology.Name || w.Exiting() {
		return nil
	}
	return rr.Refuse(rr.ReasonConflict,
		"BGPPeer %s exists and is not this topology's (label %s); rename it, delete it, or rename the topology", name,
		v1alpha1.TopologyLabel)
}

// filters looks for the BGPFilters that sessions shall have. Calico's own client refuses a BGPPeer that names one that
// is not there; in crd.projectcalico.org/v1 nobody would, and what confd makes of it is not what was meant.
func filters(w *rr.World) *rr.Refusal {
	if w.Filters == nil {
		return nil
	}
	for _, name := range w.Topology.Spec.Session.Filters {
		if !w.Filters[name] {
			return rr.Refuse(rr.ReasonFilterMissing,
				"spec.session.filters: there is no BGPFilter %s; create it, or take it out of the list", name)
		}
	}
	return nil
}

func sessionOptions(w *rr.World, d design.Design) *rr.Refusal {
	if w.Exiting() || !design.ResetsSessions(w, design.ChangedPeers(w, d)) {
		return nil
	}
	if d.Hierarchical() || len(w.Outside(rr.FirstGroup)) > 0 {
		return rr.Refuse(rr.ReasonSessionOptions,
			"spec.session has changed, which would reset every session at once, and the mesh cannot carry the clients of a "+
				"hierarchy meanwhile; change it back")
	}
	if w.Mesh.On {
		return nil
	}
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage {
		return sessionOptionsOfMany(w)
	}
	return rr.Refuse(rr.ReasonSessionOptions,
		"spec.session has changed, which would reset every session at once; set spec.mesh to Manage, so that the mesh "+
			"can carry the clients meanwhile, or change it back")
}

// notNeeded refuses to enable reflectors where BGP carries nothing for them to reflect, unless a person has said so.
func notNeeded(w *rr.World) *rr.Refusal {
	word := string(rr.ReasonNotNeeded)
	if w.Uncarried == "" || w.Begun() || w.Topology.Annotations[v1alpha1.ConfirmAnnotation] == word {
		return nil
	}
	return rr.Refuse(rr.ReasonNotNeeded, "%s; delete the topology, or, if the reflectors are for routes of Services or to routers "+
		"outside the cluster, run %s", w.Uncarried, w.HowToConfirm(v1alpha1.ConfirmAnnotation, word))
}

// idTakenBy names who has the topology's cluster ID beside its own reflectors. A Node is named only before the topology
// has begun: a kubelet can give its own Node any cluster ID, and must not hold up a topology that carries routes
// (design.ForeignMarks reports it).
func idTakenBy(w *rr.World) string {
	first := w.FirstNode(func(n *rr.Node) bool {
		return n.ForeignReflector(&w.Topology) && !n.AdoptedBy(&w.Topology) && n.ClusterID == w.Topology.Spec.ClusterID
	})
	if first != "" && !w.Begun() {
		return "Node " + first
	}
	for _, o := range w.Others {
		if o.Spec.ClusterID == w.Topology.Spec.ClusterID && older(o, w.Topology) {
			return "RouteReflectorTopology " + o.Name
		}
	}
	return ""
}

// overlap finds an older topology with a client of this one.
func overlap(w *rr.World) (topology, node string) {
	for _, o := range slices.SortedFunc(slices.Values(w.Others), func(a, b v1alpha1.RouteReflectorTopology) int { return strings.Compare(a.Name, b.Name) }) {
		if !older(o, w.Topology) {
			continue
		}
		both := w.FirstNode(func(n *rr.Node) bool {
			return rr.Selects(o.Spec.ClientSelector, n.Labels) && rr.Selects(w.Topology.Spec.ClientSelector, n.Labels)
		})
		if both != "" {
			return o.Name, both
		}
	}
	return "", ""
}

// older says which of two topologies has the right of way.
func older(a, b v1alpha1.RouteReflectorTopology) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// shape refuses a hierarchy that cannot be.
func shape(w *rr.World, d design.Design) *rr.Refusal {
	switch {
	case w.Topology.Spec.Mode != v1alpha1.ModeHierarchical || d.Hierarchical():
		return nil
	case design.KeepsShape(w) && w.Topology.Spec.Sizing.PerZone == nil: // that says what is wrong, or passes
		return nil
	case w.Topology.Spec.Sizing.PerZone != nil:
		return rr.Refuse(rr.ReasonHierarchy,
			"spec.mode Hierarchical and spec.sizing.perZone: set one of them; perZone divides the reflectors of a flat topology among zones")
	}
	return rr.Refuse(rr.ReasonHierarchy, "spec.mode Hierarchical: %s; use Auto, or let more nodes be reflectors",
		d.Short)
}

// groupIDs looks for the cluster IDs of a hierarchy's groups.
func groupIDs(w *rr.World, d design.Design) *rr.Refusal {
	if !d.Hierarchical() {
		return nil
	}
	for _, g := range d.Order() {
		id := d.IDs[g]
		if id == "" {
			return rr.Refuse(rr.ReasonClusterID,
				"spec.clusterIDRange %q: has no free address for group %s; make it larger",
				w.Topology.Spec.ClusterIDRange, rr.GroupName(g))
		}
	}
	return nil
}

// exitRefused says why the topology's reflectors must not go although it is being deleted: nothing would carry the
// routes. It does not matter while the mesh is on, or without reflectors.
func exitRefused(w *rr.World) *rr.Refusal {
	if !w.Exiting() || w.Mesh.On || len(w.Marked()) == 0 {
		return nil
	}
	var r *rr.Refusal
	switch {
	case w.Topology.Spec.Mesh != v1alpha1.MeshManage:
		r = rr.Refuse(rr.ReasonMeshNotManaged,
			"the topology is being deleted while the node-to-node mesh is off, and spec.mesh is %s: without its reflectors nodes would "+
				"lose their routes; turn the mesh on, set spec.mesh to %s, or, if something else carries the routes, run %s",
			w.Topology.Spec.Mesh, v1alpha1.MeshManage,
			w.HowToConfirm(v1alpha1.ForceExitAnnotation, string(rr.ReasonMeshNotManaged)))
	case health.MeshTooLarge(w):
		r = rr.Refuse(rr.ReasonMeshTooLarge,
			"the topology is being deleted, and the node-to-node mesh that is to take over would have %d nodes, more than "+
				"spec.sizing.maxMeshNodes (%d); raise that, divide the cluster otherwise, or run %s", health.MeshNodes(w),
			health.MeshLimit(w), w.HowToConfirm(v1alpha1.ForceExitAnnotation, string(rr.ReasonMeshTooLarge)))
	default:
		return nil
	}
	if w.Forced(r.Reason) {
		return nil
	}
	return r
}

// sessionOptionsOfMany refuses other options of sessions where the mesh, which would carry the clients meanwhile, would
// be too large.
func sessionOptionsOfMany(w *rr.World) *rr.Refusal {
	if !health.MeshTooLarge(w) {
		return nil
	}
	return rr.Refuse(rr.ReasonSessionOptions,
		"spec.session has changed, which resets every session; the node-to-node mesh that would carry the clients meanwhile would "+
			"have %d nodes, more than spec.sizing.maxMeshNodes (%d); raise that, or change spec.session back",
		health.MeshNodes(w), health.MeshLimit(w))
}

// Binding refuses everything in a datastore that is another cluster's.
func Binding(w *rr.World) *rr.Refusal { return w.Binding.Refusal() }
