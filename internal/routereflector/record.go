// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// A Node's labels and annotations may be written by many, its own kubelet among them. Which of them this program wrote
// it knows by a record in the topology's status, which no kubelet may write:
//
//	entry in the record ── label and cluster ID on the Node            a crash between the two leaves an entry without a label, which goes
//	label and ID taken away ── entry taken away                        the same
//
// A label without an entry is foreign: its node counts as somebody else's reflector. A label with an entry that says
// otherwise was altered, and is written again.

// Mark is what was written on a node to make it a reflector.
type Mark struct {
	Group     int
	ClusterID string
}

// Foreign is a label or a cluster ID that looks like the topology's and that the topology did not write.
type Foreign struct {
	Node string `json:"node"`
	// What is the finding in words.
	What string `json:"what"`
}

// altered reports that the node has not what was written on it. An entry without a cluster ID, of a label that was
// found without one, says nothing of it.
func (n *Node) altered() bool {
	_, labeled := n.Labels[v1alpha1.ReflectorLabel]
	return n.Written != nil &&
		(!labeled || n.Written.Group != n.LabeledGroup() || n.Written.ClusterID != "" && n.Written.ClusterID != n.ClusterID)
}

// Usurps reports that the node has the topology's label, and somebody else wrote it.
func (n *Node) Usurps(t *v1alpha1.RouteReflectorTopology) bool {
	return n.ForeignMark && n.Labels[v1alpha1.ReflectorLabel] == t.Name
}

// markedUID is the UID of the object that has the label: with Calico's etcdv3 datastore that of the Calico Node, which
// [NodesFrom] writes before a dot.
func (n *Node) markedUID() string { return markedUID(n.UID) }

func markedUID(uid string) string {
	of, _, _ := strings.Cut(uid, ".")
	return of
}

// Recognized is the World in which nodes are told apart by who labeled them.
func (w World) Recognized() World {
	w.Topology.Status.Record = w.record()
	entries := map[string]map[string]v1alpha1.RecordedReflector{w.Topology.Name: entriesOf(w.Topology.Status.Record)}
	for i := range w.Others {
		if record := w.Others[i].Status.Record; record != nil {
			entries[w.Others[i].Name] = entriesOf(record)
		}
	}
	cloned := false
	for i := range w.Nodes {
		written, foreign := w.Nodes[i].recognize(entries, w.Topology.Name)
		if n := &w.Nodes[i]; foreign == n.ForeignMark && (written == nil) == (n.Written == nil) &&
			(written == nil || *written == *n.Written) {
			continue
		}
		if !cloned {
			w.Nodes, cloned = slices.Clone(w.Nodes), true
		}
		w.Nodes[i].Written, w.Nodes[i].ForeignMark = written, foreign
	}
	return w
}

func entriesOf(record *v1alpha1.Record) map[string]v1alpha1.RecordedReflector {
	out := make(map[string]v1alpha1.RecordedReflector, len(record.Reflectors))
	for _, e := range record.Reflectors {
		out[e.Node] = e
	}
	return out
}

// recognize compares the node's label with the records of the topologies that have one.
func (n *Node) recognize(entries map[string]map[string]v1alpha1.RecordedReflector,
	topology string) (written *Mark, foreign bool) {
	label, has := n.Labels[v1alpha1.ReflectorLabel]
	if !has {
		label = topology // somebody may have taken it away and left the cluster ID
	}
	known, recorded := entries[label]
	e, found := known[n.Name]
	found = found && e.UID == n.markedUID()
	switch {
	case !recorded, !has && (!found || n.ClusterID == "" || n.ClusterID != e.ClusterID):
		return nil, false
	case !found:
		return nil, true
	case label != topology:
		return nil, false
	case e.Group == SpineValue:
		return &Mark{Group: Spines, ClusterID: e.ClusterID}, false
	}
	return &Mark{Group: parseGroup(e.Group), ClusterID: e.ClusterID}, false
}

// record is the topology's record. Where there is none yet it is made of what is there: of the labels on nodes that the
// status names as reflectors, which an earlier version wrote; and without any status, as after a restore from a backup,
// of all labels, if there are BGPPeers of the topology, which no kubelet may write. Of a topology that has not begun no
// label is taken; of one that is in no cluster, but in a file, all are.
func (w World) record() *v1alpha1.Record {
	if have := w.Topology.Status.Record; have != nil {
		return have
	}
	out := &v1alpha1.Record{}
	status, all := w.Topology.Status.Reflectors, w.Begun() || w.Topology.UID == ""
	for i := range w.Nodes {
		n := &w.Nodes[i]
		named := slices.ContainsFunc(status, func(r v1alpha1.ReflectorStatus) bool { return r.Node == n.Name })
		if n.Labels[v1alpha1.ReflectorLabel] == w.Topology.Name && (named || len(status) == 0 && all) {
			out.Reflectors = append(out.Reflectors, v1alpha1.RecordedReflector{
				Node: n.Name, UID: n.markedUID(), Group: GroupName(n.LabeledGroup()), ClusterID: n.ClusterID,
			})
		}
	}
	slices.SortFunc(out.Reflectors, func(a, b v1alpha1.RecordedReflector) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// Recorded is the record as it must be before a step that labels a node as a reflector, and after one that takes the
// label away. Other steps change nothing, and neither does any where there is no record.
func Recorded(record *v1alpha1.Record, step Step) *v1alpha1.Record {
	c, clusterID := step.Change()
	if record == nil || clusterID == nil {
		return record
	}
	out := Without(record, c.Name)
	if c.Labels[v1alpha1.ReflectorLabel] == nil {
		return out
	}
	e := v1alpha1.RecordedReflector{
		Node:      c.Name,
		UID:       markedUID(c.UID),
		Group:     GroupName(FirstGroup),
		ClusterID: *clusterID,
	}
	if group := c.Labels[v1alpha1.GroupLabel]; group != nil {
		e.Group = *group
	}
	out.Reflectors = append(out.Reflectors, e)
	slices.SortFunc(out.Reflectors, func(a, b v1alpha1.RecordedReflector) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// Without is a record without the entries of some nodes.
func Without(record *v1alpha1.Record, nodes ...string) *v1alpha1.Record {
	out := record.DeepCopy()
	out.Reflectors = slices.DeleteFunc(out.Reflectors,
		func(e v1alpha1.RecordedReflector) bool { return slices.Contains(nodes, e.Node) })
	return out
}

// Stale names the nodes of entries without a label, but for those that are to be labeled next.
func (w *World) Stale(reflectors []Reflector) []string {
	joining := InRole(reflectors, RoleJoining)
	var out []string
	for _, e := range w.Topology.Status.Record.Reflectors {
		n, exists := w.Node(e.Node)
		awaited := slices.ContainsFunc(joining, func(r Reflector) bool { return r.Node == e.Node })
		if !awaited && (!exists || !n.Marked(&w.Topology)) {
			out = append(out, e.Node)
		}
	}
	return out
}

// Honest is the World without the nodes that made themselves reflectors: neither the paths that they multiply nor those
// that they lack may hold up a step.
func (w World) Honest() World {
	rogue := func(n *Node) bool {
		return n.ForeignMark || n.ForeignReflector(&w.Topology) && !n.AdoptedBy(&w.Topology) && !w.ServesOthers(n)
	}
	for i := range w.Nodes {
		if rogue(&w.Nodes[i]) {
			w.Nodes = slices.DeleteFunc(slices.Clone(w.Nodes), func(n Node) bool { return rogue(&n) })
			return w
		}
	}
	return w
}
