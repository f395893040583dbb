// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"slices"
	"time"
)

// remember returns what the next plan must know, and fills in each candidate's absence.
// An absence begins when it is first observed and begins again when the Calico Node has been written since: something still lives there.
func remember(w World, c Config, s census) Memory {
	old := make(map[string]Absence, len(w.Memory.Absences))
	for _, a := range w.Memory.Absences {
		old[a.CalicoNode] = a
	}
	seen := make(map[string]bool, len(w.Sightings))
	for _, s := range w.Sightings {
		seen[s.Node] = true
	}
	m := Memory{
		Handles: rememberHandles(w), Sweep: w.Memory.Sweep.without(w.Calico.Hosts), LeftoverMemory: rememberLeftovers(w, c),
	}
	signs := signsOf(w)
	absent := func(cand *candidate, doubted bool) {
		a := old[cand.subject.Host].again(*cand, w.Now)
		if a.Doubted && !doubted && !cand.subject.Exact {
			a.Since = w.Now // the Kubernetes Node that it may have been was listed until now
		}
		a.Doubted = doubted
		a = a.heard(signs[cand.subject.Host], w.Calico.Revision, w.Now)
		a.Witnessed = a.Witnessed || slices.ContainsFunc(c.NamesOf(cand.subject), func(s string) bool { return seen[s] })
		cand.absence = a
		m.Absences = append(m.Absences, a)
	}
	for i := range s.candidates {
		absent(&s.candidates[i], false)
	}
	for i := range s.doubted {
		absent(&s.doubted[i], true)
	}
	for i := range s.returned {
		absent(&s.returned[i], true)
		m.Absences[len(m.Absences)-1] = m.Absences[len(m.Absences)-1].ended()
	}
	slices.SortFunc(m.Absences, func(a, b Absence) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
	m.Removals = rememberRemovals(w, c)
	return m
}

// ended returns what is kept of the absence of a machine that is listed again: which machine it is.
func (a Absence) ended() Absence {
	a.Witnessed, a.ConfirmedUntil, a.Doubted = false, time.Time{}, true
	return a
}

// owner reports that nothing else says which machine it is: its Calico Node was removed while blocks stay. Where Calico
// Nodes are Kubernetes Nodes none has a revision.
func (a Absence) owner() bool { return a.BlocksStay && a.Revision != 0 }

// again returns the absence of a candidate, which begins now if it is a new one: if the zero Absence was remembered, that of another machine, or
// if the Calico Node was written since.
func (a Absence) again(cand candidate, now time.Time) Absence {
	if a.Since.After(now) {
		a.Since = now // the clock was set back
	}
	same := a.CalicoNode != "" && a.KubernetesNode == cand.subject.KubernetesNode
	written := a.Revision != cand.node.Revision && !(a.BlocksStay && cand.node.Implied)
	if same && !written {
		return a
	}
	// A fence for this very Node may be a write of ours that was not saved, if the process was killed in between: what was watched was.
	own := cand.node.FencedFor == a.KubernetesNode
	next := Absence{
		CalicoNode: cand.subject.Host, KubernetesNode: cand.subject.KubernetesNode,
		Since: now, Revision: cand.node.Revision, Witnessed: same && a.Witnessed && own,
	}
	if same && !own && cand.node.Revision > a.Revision {
		next.Spoke, next.SpokeAt, next.Lived = "its Calico Node was written", now, a.Lived
	}
	return next
}

// recognized is the World in which hosts whose Calico Node an earlier plan removed are known as the Kubernetes Nodes
// that they were.
func (w World) recognized() World {
	former := map[string]string{}
	for _, a := range w.Memory.Absences {
		if a.owner() {
			former[a.CalicoNode] = a.KubernetesNode
		}
	}
	if len(former) == 0 {
		return w
	}
	w.Calico.Nodes = slices.Clone(w.Calico.Nodes)
	for i := range w.Calico.Nodes {
		if n := &w.Calico.Nodes[i]; n.Implied && len(n.OrchRefs) == 0 {
			n.former = former[n.Name]
		}
	}
	return w
}

// rememberRemovals returns those within the mass guard's window, in the order of names.
func rememberRemovals(w World, c Config) []Removal {
	var out []Removal
	for _, r := range w.Memory.Removals {
		if r.At.After(w.Now) {
			r.At = w.Now // the clock was set back
		}
		if w.Now.Sub(r.At) < c.MassWindow {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Removal) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
	return out
}

// withoutListed forgets the absences of machines whose Kubernetes Node is listed. It is for a list that is not to be believed otherwise: that a Node
// is there is believed of any, since nothing follows from it but that a grace period begins again. Nothing waits for a person: there is no plan.
func (m Memory) withoutListed(nodes []KubernetesNode, c Config) Memory {
	listed := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		listed[n.Name] = true
	}
	m.Awaiting, m.AwaitingLeftovers = Awaiting{}, Awaiting{}
	absences := m.Absences
	m.Absences = nil
	for _, a := range absences {
		other := slices.ContainsFunc(c.Spellings(a.KubernetesNode), func(s string) bool { return listed[s] })
		switch {
		case other && a.owner():
			a = a.ended()
		case listed[a.KubernetesNode] || other && !a.Witnessed:
			continue
		}
		a.Doubted = a.Doubted || other // as a census has it: that its deletion was watched is not forgotten
		m.Absences = append(m.Absences, a)
	}
	return m
}

// sighted reports whether the deletion of a machine's Kubernetes Node was watched lately.
func (w World) sighted(of Subject, c Config) bool {
	names := c.NamesOf(of)
	return slices.ContainsFunc(w.Sightings, func(s Sighting) bool { return slices.Contains(names, s.Node) })
}

// witnessed are the Kubernetes Nodes whose deletion was watched, lately or as is remembered of a Calico Node that was not
// written since.
func witnessed(w World) map[string]bool {
	nodes := make(map[string]bool, len(w.Sightings))
	for _, s := range w.Sightings {
		nodes[s.Node] = true
	}
	absences := make(map[string]Absence, len(w.Memory.Absences))
	for _, a := range w.Memory.Absences {
		absences[a.CalicoNode] = a
	}
	for _, n := range w.Calico.Nodes {
		a := absences[n.Name]
		if a.again(candidate{node: n, subject: Subject{Host: n.Name, KubernetesNode: a.KubernetesNode}}, w.Now).Witnessed {
			nodes[a.KubernetesNode] = true
		}
	}
	return nodes
}

// firstHold is how long a machine waits about which something spoke against cleaning up: long enough not to ask in vain. Each further time it
// waits twice as long, up to the resync period, since every attempt reads all that the machine may have left.
const firstHold = 15 * time.Second

// podHolds is how often a machine whose pods still run waits no longer than the first time. Pod garbage collection takes 40 to 80 s after a
// Node is gone (a quarantine of 40 s, looked at every 20 s: kube-controller-manager, pkg/controller/podgc), so that doubling from the start
// would let the machine lie for up to a minute after its last pod.
const podHolds = 6

// Hold notes that something speaks against cleaning up a host now: a live read, or a step that failed. It returns when to try again.
func (m Memory) Hold(host string, gate Gate, message string, now time.Time, c Config) (Memory, time.Duration) {
	m.Absences = slices.Clone(m.Absences)
	wait := c.Resync
	for i := range m.Absences {
		a := &m.Absences[i]
		if a.CalicoNode != host {
			continue
		}
		doublings := a.Holds
		if gate == GateRunningPods {
			doublings = max(0, a.Holds-podHolds)
		}
		wait = min(c.Resync, firstHold<<min(doublings, 10))
		a.NotBefore, a.HeldBy, a.Held, a.Holds = now.Add(wait), gate, message, a.Holds+1
	}
	return m, wait
}

// notBefore sets when to try a host again that Hold has held.
func (m *Memory) notBefore(host string, at time.Time) {
	for i := range m.Absences {
		if m.Absences[i].CalicoNode == host {
			m.Absences[i].NotBefore = at
		}
	}
}

// planned notes that a candidate is about to be removed, and whether blocks of it stay. An unwitnessed one counts from
// now on, even if it was removed before and has come back since.
func (m *Memory) planned(w World, cand candidate, refusals []Refusal) {
	stay := slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Gate == GateForeignAddress || r.Gate == GateCooldown })
	for i := range m.Absences {
		if a := &m.Absences[i]; a.CalicoNode == cand.subject.Host {
			a.BlocksStay = a.BlocksStay || stay
			if stay && cand.second != nil {
				a.KubernetesNode = cand.subject.Host // without its Calico Node it is no longer one of the machine that lives
			}
		}
	}
	if cand.vouched(w.Now) {
		return
	}
	m.Removals = slices.DeleteFunc(slices.Clone(m.Removals), func(r Removal) bool { return r.CalicoNode == cand.subject.Host })
	m.Removals = append(m.Removals, Removal{CalicoNode: cand.subject.Host, At: w.Now})
	slices.SortFunc(m.Removals, func(a, b Removal) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
}

// Recalled returns what a new process may believe of what an earlier one saved. Absences count only if the earlier one
// kept watch until lately, which it notes every resync period: in a longer gap machines may have come and gone again
// unseen. A machine that came back has a Calico Node again, so of one without it is still known whose its blocks are,
// and its absence begins now.
func (m Memory) Recalled(now time.Time, c Config) Memory {
	if now.Sub(m.SavedAt) <= 2*c.Resync {
		return m
	}
	absences := m.Absences
	m.Absences, m.Awaiting, m.AwaitingLeftovers = nil, Awaiting{}, Awaiting{}
	return m.WithOwners(absences, now)
}

// WithOwners returns the memory with what was saved, by whomever, of machines whose Calico Node was removed while blocks
// stay: nothing else says which machines those are, and two processes may believe to lead. Their absences begin now.
func (m Memory) WithOwners(saved []Absence, now time.Time) Memory {
	for _, a := range saved {
		i := slices.IndexFunc(m.Absences, func(own Absence) bool { return own.CalicoNode == a.CalicoNode })
		if !a.owner() || i >= 0 && m.Absences[i].Revision != 0 {
			continue
		}
		a.Since, a.Witnessed, a.ConfirmedUntil = now, false, time.Time{}
		m.Absences = slices.DeleteFunc(slices.Clone(m.Absences), func(own Absence) bool { return own.CalicoNode == a.CalicoNode })
		m.Absences = append(m.Absences, a)
	}
	slices.SortFunc(m.Absences, func(a, b Absence) int { return cmp.Compare(a.CalicoNode, b.CalicoNode) })
	return m
}

// Waits reports whether something waits for a person's confirmation.
func (m Memory) Waits() bool { return m.Awaiting.Hash != "" || m.AwaitingLeftovers.Hash != "" }

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
