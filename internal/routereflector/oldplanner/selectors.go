// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// calicoSelector writes a label selector in Calico's language (libcalico-go lib/selector), "" for one that selects everything. Both read
// NotIn alike: a node without the label is selected.
func calicoSelector(s metav1.LabelSelector) string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		terms = append(terms, fmt.Sprintf("%s == '%s'", key, s.MatchLabels[key]))
	}
	for _, r := range s.MatchExpressions {
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			terms = append(terms, fmt.Sprintf("%s in {%s}", r.Key, quoted(r.Values)))
		case metav1.LabelSelectorOpNotIn:
			terms = append(terms, fmt.Sprintf("%s not in {%s}", r.Key, quoted(r.Values)))
		case metav1.LabelSelectorOpExists:
			terms = append(terms, fmt.Sprintf("has(%s)", r.Key))
		case metav1.LabelSelectorOpDoesNotExist:
			terms = append(terms, fmt.Sprintf("!has(%s)", r.Key))
		}
	}
	return strings.Join(terms, " && ")
}

func quoted(values []string) string {
	sorted := slices.Sorted(slices.Values(values))
	return "'" + strings.Join(sorted, "', '") + "'"
}

// selects evaluates a label selector, of which an empty one selects everything.
func selects(s metav1.LabelSelector, labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		value, ok := labels[r.Key]
		switch r.Operator {
		case metav1.LabelSelectorOpIn:
			ok = ok && slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpNotIn:
			ok = !ok || !slices.Contains(r.Values, value)
		case metav1.LabelSelectorOpExists:
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !ok
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return true
}

// clientsMatcher is who the BGPPeer for clients selects: the topology's clients that are nobody's reflector.
type clientsMatcher struct{ clients metav1.LabelSelector }

// Evaluate implements Matcher.
func (m clientsMatcher) Evaluate(labels map[string]string) bool {
	_, reflector := labels[v1alpha1.ReflectorLabel]
	return !reflector && selects(m.clients, labels)
}

// String is the Calico selector of the same meaning.
func (m clientsMatcher) String() string {
	own := "!has(" + v1alpha1.ReflectorLabel + ")"
	if s := calicoSelector(m.clients); s != "" {
		return s + " && " + own
	}
	return own
}

// reflectorsMatcher is who the BGPPeers of a topology select as its reflectors.
type reflectorsMatcher struct{ topology string }

// Evaluate implements Matcher.
func (m reflectorsMatcher) Evaluate(labels map[string]string) bool {
	return labels[v1alpha1.ReflectorLabel] == m.topology
}

// String is the Calico selector of the same meaning.
func (m reflectorsMatcher) String() string {
	return v1alpha1.ReflectorLabel + " == '" + m.topology + "'"
}

// groupMatcher is who the BGPPeers of a hierarchy select as the reflectors of a group, or as its spines.
type groupMatcher struct {
	topology string
	group    int
}

// Evaluate implements Matcher.
func (m groupMatcher) Evaluate(labels map[string]string) bool {
	label, has := labels[v1alpha1.GroupLabel]
	if labels[v1alpha1.ReflectorLabel] != m.topology {
		return false
	}
	if m.group == firstGroup {
		return !has
	}
	return label == groupName(m.group)
}

// String is the Calico selector of the same meaning.
func (m groupMatcher) String() string {
	all := reflectorsMatcher{m.topology}.String()
	if m.group == firstGroup {
		return all + " && !has(" + v1alpha1.GroupLabel + ")"
	}
	return all + " && " + v1alpha1.GroupLabel + " == '" + groupName(m.group) + "'"
}

// belowSpinesMatcher is who has sessions with the spines: the reflectors of all groups.
type belowSpinesMatcher struct{ topology string }

// Evaluate implements Matcher.
func (m belowSpinesMatcher) Evaluate(labels map[string]string) bool {
	return labels[v1alpha1.ReflectorLabel] == m.topology && labels[v1alpha1.GroupLabel] != spineValue
}

// String is the Calico selector of the same meaning.
func (m belowSpinesMatcher) String() string {
	return fmt.Sprintf("%s && !(%s == '%s')", reflectorsMatcher(m), v1alpha1.GroupLabel, spineValue)
}

// unlabeledMatcher is who the BGPPeer for clients selects in a hierarchy: those that no label puts into a group yet.
type unlabeledMatcher struct{ clients clientsMatcher }

// Evaluate implements Matcher.
func (m unlabeledMatcher) Evaluate(labels map[string]string) bool {
	_, has := labels[v1alpha1.ClientLabel]
	return !has && m.clients.Evaluate(labels)
}

// String is the Calico selector of the same meaning.
func (m unlabeledMatcher) String() string {
	return fmt.Sprintf("%s && !has(%s)", m.clients, v1alpha1.ClientLabel)
}

// membersMatcher is the clients of a group, those included that join it.
type membersMatcher struct {
	clients clientsMatcher
	group   int
}

// Evaluate implements Matcher.
func (m membersMatcher) Evaluate(labels map[string]string) bool {
	name := groupName(m.group)
	return (labels[v1alpha1.ClientLabel] == name || labels[v1alpha1.JoinsLabel] == name) && m.clients.Evaluate(labels)
}

// String is the Calico selector of the same meaning.
func (m membersMatcher) String() string {
	return fmt.Sprintf("%s && (%s == '%d' || %s == '%d')", m.clients, v1alpha1.ClientLabel, m.group, v1alpha1.JoinsLabel, m.group)
}

// What comes after the topology's name and a dash in the names of BGPPeers.
const (
	clientsPeer    = "clients"
	reflectorsPeer = "reflectors"
	uplinksPeer    = "uplinks"
	spinesPeer     = "spines"
)

// newPeer is a BGPPeer of a topology.
func newPeer(t *v1alpha1.RouteReflectorTopology, kind string, from, to interface {
	Matcher
	fmt.Stringer
},
) Peer {
	spec := sessionOptions(t.Spec.Session)
	spec.NodeSelector, spec.PeerSelector = from.String(), to.String()
	return Peer{Name: t.Name + "-" + kind, Topology: t.Name, PeerSpec: spec, NodeMatcher: from, PeerMatcher: to}
}

// wantedPeers are the two BGPPeers of a flat topology: every client with every reflector, and the reflectors among themselves. New nodes are
// selected without a write.
func wantedPeers(t v1alpha1.RouteReflectorTopology) []Peer {
	reflectors := reflectorsMatcher{t.Name}
	return []Peer{
		newPeer(&t, clientsPeer, clientsMatcher{t.Spec.ClientSelector}, reflectors),
		newPeer(&t, reflectorsPeer, reflectors, reflectors),
	}
}

// hierarchyPeers are the 2G+3 BGPPeers of a hierarchy of G groups: for each the clients with its reflectors, and its reflectors among themselves; all
// of these with the spines, and the spines among themselves; and clients without a label with the reflectors of the open group, so that a
// new node has its sessions without a write.
func hierarchyPeers(t v1alpha1.RouteReflectorTopology, groups []int, open int) []Peer {
	clients, spine := clientsMatcher{t.Spec.ClientSelector}, groupMatcher{t.Name, spines}
	out := []Peer{newPeer(&t, clientsPeer, unlabeledMatcher{clients}, groupMatcher{t.Name, open})}
	for _, g := range groups {
		of := groupMatcher{t.Name, g}
		among := reflectorsPeer
		if g != firstGroup {
			among = fmt.Sprintf("%s-%d", reflectorsPeer, g)
		}
		out = append(out, newPeer(&t, among, of, of), newPeer(&t, fmt.Sprintf("%s-%d", clientsPeer, g), membersMatcher{clients, g}, of))
	}
	return append(out, newPeer(&t, uplinksPeer, belowSpinesMatcher{t.Name}, spine), newPeer(&t, spinesPeer, spine, spine))
}

// peersFor are the BGPPeers that there shall be now, on the way to a design: those of a hierarchy as long as there is one, or is to be one.
// Groups that are to go keep theirs while they have reflectors, and the open group stays open: it changes by a step of its own.
func (w designs) peersFor(d design) []Peer {
	groups, deep := slices.Clone(d.groups), d.hierarchical()
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.marked(&w.Topology) {
			continue
		}
		g := n.group()
		deep = deep || g != firstGroup
		if g >= firstGroup && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	if !deep {
		return wantedPeers(w.Topology)
	}
	slices.Sort(groups)
	open := w.roster().open
	if !slices.Contains(groups, open) {
		open = firstGroup
	}
	return hierarchyPeers(w.Topology, groups, open)
}

// finalPeers are the BGPPeers that there shall be in the end.
func (w designs) finalPeers(d design) []Peer {
	if !d.hierarchical() {
		return wantedPeers(w.Topology)
	}
	open := w.roster().open
	if !slices.Contains(d.groups, open) {
		open = firstGroup
	}
	return hierarchyPeers(w.Topology, d.groups, open)
}

func sessionOptions(o v1alpha1.SessionOptions) PeerSpec {
	spec := PeerSpec{Filters: strings.Join(o.Filters, ","), SourceAddress: o.SourceAddress}
	if o.MaxRestartTime != nil {
		spec.MaxRestartSeconds = int64(o.MaxRestartTime.Seconds())
	}
	if o.PasswordRef != nil {
		spec.PasswordSecret, spec.PasswordKey = o.PasswordRef.Name, o.PasswordRef.Key
	}
	if o.TTLSecurity != nil {
		spec.TTLSecurity = *o.TTLSecurity
	}
	if spec.SourceAddress == "" {
		spec.SourceAddress = "UseNodeIP"
	}
	return spec
}

// SameSessions reports whether two specs give the same options to a session, whatever they select.
func (s PeerSpec) SameSessions(other PeerSpec) bool {
	s.NodeSelector, s.PeerSelector, other.NodeSelector, other.PeerSelector = "", "", "", ""
	return s == other
}

// changedPeers are steps for the BGPPeers that are missing, and after them for those that are not as they should be: what one of these selects no more
// must have its sessions by another.
func (w designs) changedPeers(d design) []Step {
	var missing, changed []Step
	for _, want := range w.peersFor(d) {
		have, exists := w.peer(want.Name)
		step := Step{Kind: EnsurePeer, Object: "BGPPeer/" + want.Name, Peer: want, UID: have.UID, ResourceVersion: have.ResourceVersion}
		switch {
		case !exists:
			step.Reason = "there is no such BGPPeer"
			missing = append(missing, step)
		case !have.plain() || have.PeerSpec != want.PeerSpec:
			step.Reason = "it is not as the topology wants it"
			changed = append(changed, step)
		}
	}
	return append(missing, changed...)
}

// resetsSessions reports whether one of the steps changes options of sessions that there are.
func (w designs) resetsSessions(peers []Step) bool {
	return slices.ContainsFunc(w.Nodes, func(n Node) bool { return n.isReflectorOf(&w.Topology) }) &&
		slices.ContainsFunc(peers, func(s Step) bool {
			have, exists := w.peer(s.Peer.Name)
			return exists && !have.SameSessions(s.Peer.PeerSpec)
		})
}

// plain says that the BGPPeer uses none of the fields that Mooring leaves empty.
func (p Peer) plain() bool { return p.Node == "" && !p.PeerIP.IsValid() && !p.Other }
