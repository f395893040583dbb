// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"slices"
	"time"
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
		if a.Since.After(w.Now) {
			a.Since = w.Now // the clock was set back
		}
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
		if r.At.After(w.Now) {
			r.At = w.Now // the clock was set back
		}
		if w.Now.Sub(r.At) < c.MassWindow {
			m.Removals = append(m.Removals, r)
		}
	}
	slices.SortFunc(m.Removals, func(a, b Removal) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
	return m
}

// firstHold is how long a machine waits about which something spoke against cleaning up: long enough not to ask in vain, short enough for
// pod garbage collection, which takes about a minute after a Node is gone. Each further time it waits twice as long, up to the resync
// period, since every attempt reads all that the machine may have left.
const firstHold = 15 * time.Second

// Hold notes that something speaks against cleaning up a host now: a live read, or a step that failed. It returns when to try again.
func (m Memory) Hold(host string, gate Gate, message string, now time.Time, c Config) (Memory, time.Duration) {
	m.Absences = slices.Clone(m.Absences)
	wait := c.Resync
	for i := range m.Absences {
		a := &m.Absences[i]
		if a.CalicoNode != host {
			continue
		}
		wait = min(c.Resync, firstHold<<min(a.Holds, 10))
		a.NotBefore, a.HeldBy, a.Held, a.Holds = now.Add(wait), gate, message, a.Holds+1
	}
	return m, wait
}

// planned notes that an unwitnessed candidate is about to be removed.
func (m *Memory) planned(w World, cand candidate) {
	if cand.vouched(w.Now) || slices.ContainsFunc(m.Removals, func(r Removal) bool { return r.CalicoNode == cand.subject.Host }) {
		return
	}
	m.Removals = append(m.Removals, Removal{CalicoNode: cand.subject.Host, At: w.Now})
	slices.SortFunc(m.Removals, func(a, b Removal) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
}

// Recalled returns what a new process may believe of what an earlier one saved. Absences count only if the earlier one kept watch until
// lately, which it notes every resync period: in a longer gap machines may have come and gone again unseen.
func (m Memory) Recalled(now time.Time, c Config) Memory {
	if now.Sub(m.SavedAt) > 2*c.Resync {
		m.Absences = nil
	}
	return m
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
