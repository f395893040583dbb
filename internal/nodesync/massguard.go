// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"time"
)

// massGate returns why the mass guard forbids removing the unwitnessed nodes now, or "".
// Nodes removed within the window count as well, so that many small steps are not a way around it.
func massGate(held []candidate, s census, m Memory, c Config) string {
	counted := map[string]bool{}
	for _, r := range m.Removals {
		counted[r.CalicoNode] = true
	}
	for _, cand := range held {
		counted[cand.subject.Host] = true
	}
	limit := c.massLimit(s.referenced)
	if len(counted) <= limit || len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("%d nodes are gone whose deletion was not watched, including removals of the last %s; the mass guard allows %d of %d",
		len(counted), c.MassWindow, limit, s.referenced)
}

// adoptionGate returns why the mass guard holds back an adopted machine whose deletion was not watched, however few there are.
func adoptionGate(cand candidate, now time.Time) string {
	if !cand.adopted || cand.vouched(now) {
		return ""
	}
	return "nothing but its name shows that it was ever a Kubernetes Node, and its deletion was not watched"
}

// awaitingMass is what waits for a confirmation because of the mass guard. One confirmation is for all that are not vouched for.
func awaitingMass(held []candidate, shared, massRefused string, now time.Time, c Config) Awaiting {
	switch {
	case shared != "":
		return awaiting(held, GateSigns, shared, now, c)
	case massRefused != "":
		return awaiting(held, GateMass, massRefused, now, c)
	}
	for _, cand := range held {
		if why := adoptionGate(cand, now); why != "" {
			return awaiting(held, GateMass, cand.subject.Host+": "+why, now, c)
		}
	}
	return Awaiting{}
}

// vouched reports that the mass guard does not count a machine: its going was watched, a person has named or confirmed
// it, or the guard has let it pass before, of which the fence is the sign, or BlocksStay where there is no Calico Node
// (what passed lately is counted by Removals).
func (c candidate) vouched(now time.Time) bool {
	passed := c.node.FencedFor == c.subject.KubernetesNode || c.absence.BlocksStay && c.node.Implied
	return c.named || c.absence.Witnessed || now.Before(c.absence.ConfirmedUntil) || passed
}

// unvouched are the machines of which only this cluster's list says that they are gone, and nothing that they live.
func unvouched(s census, now time.Time, c Config) []candidate {
	var out []candidate
	for _, cand := range s.candidates {
		if !cand.vouched(now) && !cand.node.Keep && cand.aliveUntil(now, c).IsZero() {
			out = append(out, cand)
		}
	}
	return out
}
