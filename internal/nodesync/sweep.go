// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"path"
	"slices"
	"time"
)

// Sweep is what the last look through all of the datastore has found that no Calico Node leads to. The zero value is for
// none yet.
type Sweep struct {
	// At is when it was made.
	At time.Time
	// Strays are hosts that something is held for, and Mentioned those of which there are nothing but resources that are
	// about them. Both are in the order of names.
	Strays, Mentioned []string
	// PodsDue reports that what names a pod is still to be compared with the pods.
	PodsDue bool
}

// Due reports whether it is time to look again.
func (s Sweep) Due(now time.Time, c Config) bool {
	return c.SweepPeriod > 0 && (s.At.IsZero() || now.Sub(s.At) >= c.SweepPeriod)
}

// without drops hosts that no sweep would find now, so that they are not taken for gone machines until the next: another
// leader has cleaned them up, or a write did whose answer was lost. Resources alone are not a sign of a machine.
func (s Sweep) without(hosts []Host) Sweep {
	empty := map[string]bool{}
	for _, h := range hosts {
		if len(h.Endpoints)+len(h.Blocks)+len(h.Affinities)+len(h.Unreadable) == 0 {
			empty[h.Name] = len(h.Resources) == 0
		}
	}
	s.Strays = slices.DeleteFunc(slices.Clone(s.Strays), func(host string) bool {
		_, is := empty[host]
		return is
	})
	s.Mentioned = slices.DeleteFunc(slices.Clone(s.Mentioned), func(host string) bool { return empty[host] })
	return s
}

// WithStrays is the World with the hosts that the last sweep found and that have no Calico Node, be it one that cannot
// be read.
func (w World) WithStrays() World {
	known := make(map[string]bool, len(w.Calico.Nodes)+len(w.Calico.Unreadable))
	for _, n := range w.Calico.Nodes {
		known[n.Name] = true
	}
	for _, key := range w.Calico.Unreadable {
		known[path.Base(key)] = true
	}
	for _, host := range w.Memory.Sweep.Strays {
		if !known[host] {
			known[host] = true
			w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: host, Implied: true})
		}
	}
	for _, host := range w.Memory.Sweep.Mentioned {
		if !known[host] {
			w.Calico.Nodes = append(w.Calico.Nodes, OnlyMentioned(host))
		}
	}
	return w
}

// OnlyMentioned is a host of which the datastore holds nothing but resources that are about it.
func OnlyMentioned(host string) CalicoNode {
	return CalicoNode{
		Name: host, Implied: true, OnlyWitnessed: true,
		OrchRefs: []OrchRef{{Orchestrator: OrchestratorKubernetes, NodeName: host}},
	}
}

// Tried is a step that was tried, and whether it was made.
type Tried struct {
	Step Step
	Made bool
}

// Applied returns the memory without what the last sweep found and what is gone since, or alive: the next sweep finds
// what is left. What is held back stays, and all of it while nothing could be judged: it would be out of sight until the
// next sweep.
func (m Memory) Applied(p Plan, tried []Tried) Memory {
	cleaned := cleaned(tried)
	for _, t := range tried {
		if s, ok := t.Step.(RemoveHandles); ok && t.Made {
			m.Handles = slices.DeleteFunc(slices.Clone(m.Handles), func(h OrphanedHandle) bool {
				return slices.Contains(s.Handles, h.Handle)
			})
		}
	}
	absent, refused, strays := map[string]bool{}, map[string]bool{}, slices.Clone(m.Sweep.Strays)
	for _, a := range m.Absences {
		absent[a.CalicoNode] = true
	}
	for _, r := range p.Refusals {
		refused[r.Of.Host] = true // with an empty host, everything
	}
	for host := range cleaned {
		if p.Leaves(host) && !m.Sweep.At.IsZero() {
			// Its Node is removed, and the block may have no affinity that leads to it.
			delete(cleaned, host)
			strays = append(strays, host)
		}
	}
	over := func(host string) bool {
		return cleaned[host] || !absent[host] && !refused[host] && !refused[""]
	}
	slices.Sort(strays)
	m.Sweep.Strays = slices.Compact(slices.DeleteFunc(strays, over))
	m.Sweep.Mentioned = slices.DeleteFunc(slices.Clone(m.Sweep.Mentioned), func(host string) bool {
		return over(host) && !refused[host]
	})
	return m
}

// cleaned are the hosts of which all steps that were tried were made.
func cleaned(tried []Tried) map[string]bool {
	hosts := map[string]bool{}
	for _, t := range tried {
		hosts[t.Step.Subject().Host] = true
	}
	for _, t := range tried {
		if !t.Made {
			delete(hosts, t.Step.Subject().Host)
		}
	}
	return hosts
}
