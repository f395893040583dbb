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
	return fmt.Sprintf("%s == '%s'", v1alpha1.ReflectorLabel, m.topology)
}

// wantedPeers are the two BGPPeers of a flat topology: every client with every reflector, and the reflectors among themselves. New nodes are
// selected without a write.
func wantedPeers(t v1alpha1.RouteReflectorTopology) []Peer {
	options := sessionOptions(t.Spec.Session)
	reflectors := reflectorsMatcher{t.Name}
	clients := clientsMatcher{t.Spec.ClientSelector}
	peer := func(name string, from interface {
		Matcher
		fmt.Stringer
	}) Peer {
		spec := options
		spec.NodeSelector, spec.PeerSelector = from.String(), reflectors.String()
		return Peer{Name: t.Name + "-" + name, Topology: t.Name, PeerSpec: spec, NodeMatcher: from, PeerMatcher: reflectors}
	}
	return []Peer{peer("clients", clients), peer("reflectors", reflectors)}
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

// SameSessions says whether two specs give the same options to a session, whatever they select.
func (s PeerSpec) SameSessions(other PeerSpec) bool {
	s.NodeSelector, s.PeerSelector, other.NodeSelector, other.PeerSelector = "", "", "", ""
	return s == other
}
