// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"slices"
)

// remember returns what the next plan must know, and fills in each candidate's absence.
// An absence begins when it is first observed and begins anew when the Calico Node has been written since: something still lives there.
func remember(w World, c Config, candidates []candidate) Memory {
	old := make(map[string]Absence, len(w.Memory.Absences))
	for _, a := range w.Memory.Absences {
		old[a.CalicoNode] = a
	}
	witnessed := make(map[string]bool, len(w.Sightings))
	for _, s := range w.Sightings {
		witnessed[s.Node] = true
	}
	m := Memory{}
	for i := range candidates {
		cand := &candidates[i]
		a, known := old[cand.subject.Host]
		if !known || a.KubernetesNode != cand.subject.KubernetesNode || a.Revision != cand.node.Revision {
			a = Absence{
				CalicoNode: cand.subject.Host, KubernetesNode: cand.subject.KubernetesNode,
				Since: w.Now, Revision: cand.node.Revision,
			}
		}
		a.Witnessed = a.Witnessed || witnessed[cand.subject.KubernetesNode]
		cand.absence = a
		m.Absences = append(m.Absences, a)
	}
	for _, r := range w.Memory.Removals {
		if w.Now.Sub(r.At) < c.MassWindow {
			m.Removals = append(m.Removals, r)
		}
	}
	slices.SortFunc(m.Removals, func(a, b Removal) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
	return m
}

// hold notes that a live read spoke for a candidate, so that it is not asked about again at once.
func (m *Memory) hold(w World, r Refusal) {
	for i := range m.Absences {
		if m.Absences[i].CalicoNode == r.Of.Host {
			m.Absences[i].NotBefore = w.Now.Add(liveRetry)
			m.Absences[i].HeldBy, m.Absences[i].Held = r.Gate, r.Message
		}
	}
}

// planned notes that an unwitnessed candidate is about to be removed.
func (m *Memory) planned(w World, cand candidate) {
	if cand.absence.vouched(w.Now) || slices.ContainsFunc(m.Removals, func(r Removal) bool { return r.CalicoNode == cand.subject.Host }) {
		return
	}
	m.Removals = append(m.Removals, Removal{CalicoNode: cand.subject.Host, At: w.Now})
	slices.SortFunc(m.Removals, func(a, b Removal) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
}

// WithFence returns the memory after a Fence step left the host's Calico Node at the given revision, so that our own write is not taken
// for a sign of life.
func (m Memory) WithFence(host string, revision int64) Memory {
	m.Absences = slices.Clone(m.Absences)
	for i := range m.Absences {
		if m.Absences[i].CalicoNode == host {
			m.Absences[i].Revision = revision
		}
	}
	return m
}
