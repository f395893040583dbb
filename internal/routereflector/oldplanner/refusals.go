// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// refusals lists the reasons to plan nothing. Each is a sentence that says what is wrong, where, and what to do.
func (w objections) refusals(d design) []Refusal {
	checks := []func() *Refusal{w.paused, w.datastore, w.binding, w.doubt, w.exitRefused}
	if !w.exiting() { // whatever the spec says by then, what was done for it can be undone
		checks = append(checks, w.badSelector, w.zonesOfSizing, w.clusterID, w.clusterIDTaken, w.overlapping, w.filters, w.adoption,
			func() *Refusal { return w.shape(d) }, func() *Refusal { return w.groupIDs(d) })
	}
	for _, p := range w.peersFor(d) {
		checks = append(checks, func() *Refusal { return w.foreignPeer(p.Name) })
	}
	checks = append(checks, func() *Refusal { return w.sessionOptions(d) })
	var out []Refusal
	for _, check := range checks {
		if r := check(); r != nil {
			out = append(out, *r)
		}
	}
	if len(out) == 0 && !w.exiting() && w.clients() == 0 && len(w.marked()) == 0 {
		out = append(out, *refuse(ReasonNoClients, "spec.clientSelector selects no node on which calico-node has set BGP up"))
	}
	return out
}

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

func (w objections) paused() *Refusal {
	if !w.Topology.Spec.Paused {
		return nil
	}
	return refuse(ReasonPaused, "spec.paused is true; set it to false to go on")
}

func (w objections) datastore() *Refusal {
	if w.DatastoreReady {
		return nil
	}
	return refuse(ReasonDatastoreNotReady,
		"Calico's ClusterInformation says datastoreReady=false: its datastore is being migrated or upgraded and must not be written to")
}

// zonesOfSizing is checked by the API server as well, as is the cluster ID, but not where the plan is made from a file.
func (w objections) zonesOfSizing() *Refusal {
	if s := w.Topology.Spec; s.Sizing.PerZone == nil || len(s.TopologyKeys) > 0 {
		return nil
	}
	return refuse(ReasonSizing, "spec.sizing.perZone: needs spec.topologyKeys, whose first key names the zones")
}

// badSelector looks for a selector that is none. The API server does not look inside one, and that of clients becomes
// text in Calico's language: a key or value with a quote or a parenthesis in it would become a part of the expression.
// No label can have such a value (k8s.io/apimachinery, pkg/apis/meta/v1/validation).
func (w objections) badSelector() *Refusal {
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
	return refuse(ReasonSelector, "%s; correct it", wrong[0])
}

func (w objections) clusterID() *Refusal {
	id := w.Topology.Spec.ClusterID
	if a, err := netip.ParseAddr(id); err == nil && a.Is4() && !a.IsUnspecified() {
		return nil
	}
	return refuse(ReasonClusterID, "spec.clusterID %q: must be an IPv4 address other than 0.0.0.0, such as 244.0.0.1", id)
}

func (w objections) clusterIDTaken() *Refusal {
	taken := w.idTakenBy()
	if taken == "" || w.exiting() {
		return nil
	}
	return refuse(ReasonClusterIDTaken, "spec.clusterID %s: %s has it already, and clients that share no reflector would not reach each other; choose another",
		w.Topology.Spec.ClusterID, taken)
}

func (w objections) overlapping() *Refusal {
	other, node := w.overlap()
	if other == "" || w.exiting() {
		return nil
	}
	return refuse(ReasonOverlap, "RouteReflectorTopology %s is older and has clients of this one, such as Node %s; make their spec.clientSelector disjoint",
		other, node)
}

func (w objections) foreignPeer(name string) *Refusal {
	have, exists := w.peer(name)
	if !exists || have.Topology == w.Topology.Name || w.exiting() {
		return nil
	}
	return refuse(ReasonConflict, "BGPPeer %s exists and is not this topology's (label %s); rename it, delete it, or rename the topology",
		name, v1alpha1.TopologyLabel)
}

// filters looks for the BGPFilters that sessions shall have. Calico's own client refuses a BGPPeer that names one that is not there; in
// crd.projectcalico.org/v1 nobody would, and what confd makes of it is not what was meant.
func (w objections) filters() *Refusal {
	if w.Filters == nil {
		return nil
	}
	for _, name := range w.Topology.Spec.Session.Filters {
		if !w.Filters[name] {
			return refuse(ReasonFilterMissing, "spec.session.filters: there is no BGPFilter %s; create it, or take it out of the list", name)
		}
	}
	return nil
}

func (w objections) sessionOptions(d design) *Refusal {
	if w.exiting() || !w.resetsSessions(w.changedPeers(d)) {
		return nil
	}
	if d.hierarchical() || len(w.outside(firstGroup)) > 0 {
		return refuse(ReasonSessionOptions, "spec.session has changed, which would reset every session at once, and the mesh cannot carry the clients of a "+
			"hierarchy meanwhile; change it back")
	}
	if w.Mesh.On {
		return nil
	}
	if w.Topology.Spec.Mesh == v1alpha1.MeshManage {
		return w.sessionOptionsOfMany()
	}
	return refuse(ReasonSessionOptions, "spec.session has changed, which would reset every session at once; set spec.mesh to Manage, so that the mesh "+
		"can carry the clients meanwhile, or change it back")
}

// idTakenBy names who has the topology's cluster ID beside its own reflectors. A Node is named only before the topology has begun: a kubelet can give its
// own Node any cluster ID, and must not hold up a topology that carries routes ([World.foreign] reports it).
func (w objections) idTakenBy() string {
	first := w.firstNode(func(n *Node) bool {
		return n.foreignReflector(&w.Topology) && !n.adoptedBy(&w.Topology) && n.ClusterID == w.Topology.Spec.ClusterID
	})
	if first != "" && !w.begun() {
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
func (w objections) overlap() (topology, node string) {
	for _, o := range slices.SortedFunc(slices.Values(w.Others), func(a, b v1alpha1.RouteReflectorTopology) int { return strings.Compare(a.Name, b.Name) }) {
		if !older(o, w.Topology) {
			continue
		}
		both := w.firstNode(func(n *Node) bool {
			return selects(o.Spec.ClientSelector, n.Labels) && selects(w.Topology.Spec.ClientSelector, n.Labels)
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
func (w objections) shape(d design) *Refusal {
	switch {
	case w.Topology.Spec.Mode != v1alpha1.ModeHierarchical || d.hierarchical():
		return nil
	case w.keepsShape() && w.Topology.Spec.Sizing.PerZone == nil: // that says what is wrong, or passes
		return nil
	case w.Topology.Spec.Sizing.PerZone != nil:
		return refuse(ReasonHierarchy, "spec.mode Hierarchical and spec.sizing.perZone: set one of them; perZone divides the reflectors of a flat topology among zones")
	}
	return refuse(ReasonHierarchy, "spec.mode Hierarchical: %s; use Auto, or let more nodes be reflectors", d.short)
}

// groupIDs looks for the cluster IDs of a hierarchy's groups.
func (w objections) groupIDs(d design) *Refusal {
	if !d.hierarchical() {
		return nil
	}
	for _, g := range d.order() {
		id := d.ids[g]
		if id == "" {
			return refuse(ReasonClusterID, "spec.clusterIDRange %q: has no free address for group %s; make it larger", w.Topology.Spec.ClusterIDRange, groupName(g))
		}
	}
	return nil
}
