// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"slices"
	"time"
)

// Turns are when the changes of settings that were sent so far are worked off, of one namespace and of all: the zero value
// for none. An author may edit Services as often as the API server takes it; calls to DigitalOcean are everybody's.
type Turns struct{ Namespace, All time.Time }

// How many changes of settings may be sent at once; after that one in a time that grows with it: of one load balancer one
// in [Pace.Change], of a namespace 7.5 and of all 15 in it. Targets are not counted: Nodes come and go for all.
const (
	burstOfOne       = 3
	burstOfNamespace = 60
	burstOfAll       = 120
)

// Sent returns the turns after a change that is sent now.
func (t Turns) Sent(now time.Time, change time.Duration) Turns {
	return Turns{Namespace: sent(t.Namespace, now, change*2/15), All: sent(t.All, now, change/15)}
}

// sent and wait are the generic cell rate algorithm (ITU-T I.371): a turn moves on by a period with each change, and a
// change waits while the turn is further ahead than the burst allows.
func sent(turn, now time.Time, every time.Duration) time.Time {
	if turn.Before(now) {
		turn = now
	}
	return turn.Add(every)
}

func wait(turn, now time.Time, every time.Duration, burst int) time.Duration {
	return max(0, turn.Add(-time.Duration(burst-1)*every).Sub(now))
}

// holdBack returns the differences that are cured now: without the settings while those have to wait, which is told. A
// change of settings takes its turn.
func (p *planning) holdBack(all []Difference) []Difference {
	change, m := p.Pace.Change, &p.plan.Memory
	if !(Change{Differences: all}).Settings() {
		return all
	}
	p.again = max(
		wait(m.Turn, p.Now, change, burstOfOne),
		wait(p.Turns.Namespace, p.Now, change*2/15, burstOfNamespace),
		wait(p.Turns.All, p.Now, change/15, burstOfAll),
	)
	if p.again == 0 {
		m.Turn = sent(m.Turn, p.Now, change)
		return all
	}
	p.warn(ReasonHeldBack, "the settings of load balancers change more often than DigitalOcean's limits allow for one "+
		"service or namespace: this service's latest ones are sent when it is their turn")
	return targetsFirst(all)
}

// Settings reports whether more than targets is changed.
func (c Change) Settings() bool {
	return slices.ContainsFunc(c.Differences, func(d Difference) bool { return d.Field != FieldDroplets })
}

// targetsFirst are differences that one call cures without the settings: droplets that are missing, else those that are
// not wanted.
func targetsFirst(all []Difference) []Difference {
	targets := slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return d.Field != FieldDroplets })
	if i := slices.IndexFunc(targets, func(d Difference) bool { return len(d.Missing) > 0 }); i >= 0 {
		return targets[i : i+1]
	}
	return targets
}
