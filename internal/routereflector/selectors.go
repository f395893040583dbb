// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// CalicoSelector writes a label selector in Calico's language (libcalico-go lib/selector), "" for one that selects
// everything. Both read NotIn alike: a node without the label is selected.
func CalicoSelector(s metav1.LabelSelector) string {
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

// Selects evaluates a label selector, of which an empty one selects everything.
func Selects(s metav1.LabelSelector, labels map[string]string) bool {
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

// ClientsMatcher is who the BGPPeer for clients selects: the topology's clients that are nobody's reflector.
type ClientsMatcher struct{ clients metav1.LabelSelector }

// Evaluate implements Matcher.
func (m ClientsMatcher) Evaluate(labels map[string]string) bool {
	_, reflector := labels[v1alpha1.ReflectorLabel]
	return !reflector && Selects(m.clients, labels)
}

// String is the Calico selector of the same meaning.
func (m ClientsMatcher) String() string {
	own := "!has(" + v1alpha1.ReflectorLabel + ")"
	if s := CalicoSelector(m.clients); s != "" {
		return s + " && " + own
	}
	return own
}

// ReflectorsMatcher is who the BGPPeers of a topology select as its reflectors.
type ReflectorsMatcher struct{ topology string }

// Evaluate implements Matcher.
func (m ReflectorsMatcher) Evaluate(labels map[string]string) bool {
	return labels[v1alpha1.ReflectorLabel] == m.topology
}

// String is the Calico selector of the same meaning.
func (m ReflectorsMatcher) String() string {
	return v1alpha1.ReflectorLabel + " == '" + m.topology + "'"
}

// GroupMatcher is who the BGPPeers of a hierarchy select as the reflectors of a group, or as its spines.
type GroupMatcher struct {
	topology string
	group    int
}

// Evaluate implements Matcher.
func (m GroupMatcher) Evaluate(labels map[string]string) bool {
	label, has := labels[v1alpha1.GroupLabel]
	if labels[v1alpha1.ReflectorLabel] != m.topology {
		return false
	}
	if m.group == FirstGroup {
		return !has
	}
	return label == GroupName(m.group)
}

// String is the Calico selector of the same meaning.
func (m GroupMatcher) String() string {
	all := ReflectorsMatcher{m.topology}.String()
	if m.group == FirstGroup {
		return all + " && !has(" + v1alpha1.GroupLabel + ")"
	}
	return all + " && " + v1alpha1.GroupLabel + " == '" + GroupName(m.group) + "'"
}

// belowSpinesMatcher is who has sessions with the spines: the reflectors of all groups.
type belowSpinesMatcher struct{ topology string }

// Evaluate implements Matcher.
func (m belowSpinesMatcher) Evaluate(labels map[string]string) bool {
	return labels[v1alpha1.ReflectorLabel] == m.topology && labels[v1alpha1.GroupLabel] != SpineValue
}

// String is the Calico selector of the same meaning.
func (m belowSpinesMatcher) String() string {
	return fmt.Sprintf("%s && !(%s == '%s')", ReflectorsMatcher(m), v1alpha1.GroupLabel, SpineValue)
}

// UnlabeledMatcher is who the BGPPeer for clients selects in a hierarchy: those that no label puts into a group yet.
type UnlabeledMatcher struct{ clients ClientsMatcher }

// Evaluate implements Matcher.
func (m UnlabeledMatcher) Evaluate(labels map[string]string) bool {
	_, has := labels[v1alpha1.ClientLabel]
	return !has && m.clients.Evaluate(labels)
}

// String is the Calico selector of the same meaning.
func (m UnlabeledMatcher) String() string {
	return fmt.Sprintf("%s && !has(%s)", m.clients, v1alpha1.ClientLabel)
}

// otherGroupsMatcher is who that BGPPeer selects while a hierarchy comes into being: the clients of all groups but the one
// that they come to by it. Those of the group itself have the same sessions by its own BGPPeer.
type otherGroupsMatcher struct {
	clients ClientsMatcher
	group   int
}

// Evaluate implements Matcher.
func (m otherGroupsMatcher) Evaluate(labels map[string]string) bool {
	return labels[v1alpha1.ClientLabel] != GroupName(m.group) && m.clients.Evaluate(labels)
}

// String is the Calico selector of the same meaning: != holds without the label too.
func (m otherGroupsMatcher) String() string {
	return fmt.Sprintf("%s && %s != '%s'", m.clients, v1alpha1.ClientLabel, GroupName(m.group))
}

// membersMatcher is the clients of a group, those included that join it.
type membersMatcher struct {
	clients ClientsMatcher
	group   int
}

// Evaluate implements Matcher.
func (m membersMatcher) Evaluate(labels map[string]string) bool {
	name := GroupName(m.group)
	return (labels[v1alpha1.ClientLabel] == name || labels[v1alpha1.JoinsLabel] == name) && m.clients.Evaluate(labels)
}

// String is the Calico selector of the same meaning.
func (m membersMatcher) String() string {
	return fmt.Sprintf("%s && (%s == '%d' || %s == '%d')", m.clients, v1alpha1.ClientLabel, m.group,
		v1alpha1.JoinsLabel, m.group)
}

// What comes after the topology's name and a dash in the names of BGPPeers.
const (
	ClientsPeer    = "clients"
	reflectorsPeer = "reflectors"
	UplinksPeer    = "uplinks"
	spinesPeer     = "spines"
)

// NewPeer is a BGPPeer of a topology.
func NewPeer(t *v1alpha1.RouteReflectorTopology, kind string, from, to interface {
	Matcher
	fmt.Stringer
},
) Peer {
	spec := SessionOptions(t.Spec.Session)
	spec.NodeSelector, spec.PeerSelector = from.String(), to.String()
	return Peer{Name: t.Name + "-" + kind, Topology: t.Name, PeerSpec: spec, NodeMatcher: from, PeerMatcher: to}
}

// WantedPeers are the two BGPPeers of a flat topology: every client with every reflector, and the reflectors among
// themselves. New nodes are selected without a write.
func WantedPeers(t v1alpha1.RouteReflectorTopology) []Peer {
	reflectors := ReflectorsMatcher{t.Name}
	return []Peer{
		NewPeer(&t, ClientsPeer, ClientsMatcher{t.Spec.ClientSelector}, reflectors),
		NewPeer(&t, reflectorsPeer, reflectors, reflectors),
	}
}

// NewcomersPeer is the BGPPeer by which clients without a label come to a group of a hierarchy.
func NewcomersPeer(t *v1alpha1.RouteReflectorTopology, group int) Peer {
	clients := ClientsMatcher{t.Spec.ClientSelector}
	return NewPeer(t, ClientsPeer, UnlabeledMatcher{clients}, GroupMatcher{t.Name, group})
}

// GatheringPeer is the BGPPeer by which the clients of all other groups come to one, until their own have reflectors.
func GatheringPeer(t *v1alpha1.RouteReflectorTopology, group int) Peer {
	clients := ClientsMatcher{t.Spec.ClientSelector}
	return NewPeer(t, ClientsPeer, otherGroupsMatcher{clients, group}, GroupMatcher{t.Name, group})
}

// HierarchyPeers are the 2G+3 BGPPeers of a hierarchy of G groups: for each the clients with its reflectors, and its
// reflectors among themselves; all of these with the spines, and the spines among themselves; and clients without a
// label with the reflectors of the open group, so that a new node has its sessions without a write.
func HierarchyPeers(t v1alpha1.RouteReflectorTopology, groups []int, open int) []Peer {
	clients, spine := ClientsMatcher{t.Spec.ClientSelector}, GroupMatcher{t.Name, Spines}
	out := []Peer{NewcomersPeer(&t, open)}
	for _, g := range groups {
		of := GroupMatcher{t.Name, g}
		among := reflectorsPeer
		if g != FirstGroup {
			among = fmt.Sprintf("%s-%d", reflectorsPeer, g)
		}
		out = append(out, NewPeer(&t, among, of, of),
			NewPeer(&t, fmt.Sprintf("%s-%d", ClientsPeer, g), membersMatcher{clients, g}, of))
	}
	return append(out, NewPeer(&t, UplinksPeer, belowSpinesMatcher{t.Name}, spine),
		NewPeer(&t, spinesPeer, spine, spine))
}

// SessionOptions are the options of sessions as BGPPeers have them.
func SessionOptions(o v1alpha1.SessionOptions) PeerSpec {
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

// Plain says that the BGPPeer uses none of the fields that Mooring leaves empty.
func (p Peer) Plain() bool { return p.Node == "" && !p.PeerIP.IsValid() && !p.Other }
