// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

const (
	// maxSilent is how many silent clients the status names; the CRD allows no more.
	maxSilent = 16
	// silentAfter times the settle period is for how long a client must have been without a session to be named: after a change all are for a moment.
	silentAfter = 6
)

// suspects lists, by name, the clients about which their reflectors are to be asked: those that seem to be silent and are not named yet, and those that are,
// once what is known of them is older than age.
func (m *memory) suspects(s *scene, age time.Duration) []string {
	before := m.namedBefore(s)
	out := slices.Collect(maps.Keys(m.dark))
	out = slices.DeleteFunc(out, func(node string) bool { return entryOf(before, node) != nil })
	for _, c := range before {
		if s.world.Now.Sub(c.LastObserved.Time) >= age {
			out = append(out, c.Node)
		}
	}
	slices.Sort(out)
	return out
}

// silent lists the clients that are without a session for long enough, and counts them. Of those whose reflectors have not reported lately what is known
// stays, as long as they live.
func (m *memory) silent(s *scene, settle time.Duration) (named []v1alpha1.SilentClient, count int) {
	second := func(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
	are, heard := s.world.SilentClients()
	before := m.namedBefore(s)
	since := map[string]time.Time{}
	for _, c := range are {
		was := entryOf(before, c.Node)
		since[c.Node] = s.world.Now
		if begun, seen := m.dark[c.Node]; seen {
			since[c.Node] = begun
		}
		entry := v1alpha1.SilentClient{Node: c.Node, Since: second(since[c.Node]), LastObserved: second(c.At), Reason: c.Why}
		if was != nil {
			entry.Since = was.Since
		} else if s.world.Now.Sub(since[c.Node]) < silentAfter*settle {
			continue
		}
		named = append(named, entry)
	}
	for _, c := range before {
		if is, _ := s.client(c.Node); is && !heard(c.Node) {
			named = append(named, c)
		}
	}
	for node, begun := range m.dark {
		if _, ready := s.client(node); ready && !heard(node) {
			since[node] = begun
		}
	}
	slices.SortFunc(named, func(a, b v1alpha1.SilentClient) int { return cmp.Compare(a.Node, b.Node) })
	m.dark, m.named = since, named
	return named[:min(len(named), maxSilent)], len(named)
}

// namedBefore are the silent clients that the last round named; after a start those of the status, which has room for the first of them only.
func (m *memory) namedBefore(s *scene) []v1alpha1.SilentClient {
	if m.dark == nil {
		return s.topology.Status.SilentClients
	}
	return m.named
}

// entryOf is what is known of a silent client, nil if it is none.
func entryOf(named []v1alpha1.SilentClient, node string) *v1alpha1.SilentClient {
	i := slices.IndexFunc(named, func(c v1alpha1.SilentClient) bool { return c.Node == node })
	if i < 0 {
		return nil
	}
	return &named[i]
}

// client reports that a node is a client still, and that its Node is Ready as well.
func (s *scene) client(node string) (is, ready bool) {
	i := slices.IndexFunc(s.world.Nodes, func(n routereflector.Node) bool { return n.Name == node })
	if i < 0 {
		return false, false
	}
	_, is = s.world.ClientOf(s.world.Nodes[i])
	return is, is && s.world.Nodes[i].Ready == corev1.ConditionTrue
}
