// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import "time"

// Class is how a request shares a budget. A tenant's small requests, such as the renewal of a lease, never wait for what
// its large ones have used.
type Class int

// The classes.
const (
	Small Class = iota
	Large
)

// largeShare is the part of the rate that large requests may use, whether or not small ones use the rest: each keeps a
// processor of the core from the other tenants for a while, so that many of them delay those more than as much work in
// small pieces does. Where there are no other tenants both classes have the rate.
const largeShare = 0.3

// headroom is how much more than it has used a replica demands, so that its use can grow before anything waits.
const headroom = 1.5

// Budget is one rate of units for both classes. Large requests run into debt, which three tenths of the rate pay back; they
// are let in while the debt is at most one second's worth of these. A tenant that is alone at the core has the rate for
// each class. It is not safe for concurrent use. Make one with NewBudget.
type Budget struct {
	perSecond, burst float64
	alone            bool
	level            float64 // for small requests; below 0 it is promised to those that wait
	debt             float64 // of large requests
	late             float64 // what small requests turned out to need in addition, as far as it is not paid back
	spent            float64 // of both since the beginning
	last             time.Time

	held   float64 // seconds that requests were held back since Demand was called last
	before float64 // what was spent by then
	asked  time.Time
}

// NewBudget returns a budget of units per second. At the beginning, and after a second of rest, one second's worth is
// there, one unit at least, and three tenths as much for large requests.
func NewBudget(perSecond float64) *Budget {
	burst := max(perSecond, 1)
	return &Budget{perSecond: perSecond, burst: burst, level: burst}
}

// SetRate changes the rate. What is owed stays owed; more than the new burst is not kept.
func (b *Budget) SetRate(now time.Time, perSecond float64) {
	b.advance(now)
	b.perSecond, b.burst = perSecond, max(perSecond, 1)
	b.level = min(b.level, b.burst)
}

// SetAlone sets whether the tenant is alone at the core: then each class has the rate.
func (b *Budget) SetAlone(now time.Time, alone bool) {
	b.advance(now)
	b.alone = alone
}

// Take takes the units of a request and returns how long to wait before it is let in. If that is longer than most nothing
// is taken, and ok is false. A request that costs more than the burst needs a full burst and leaves a debt.
func (b *Budget) Take(now time.Time, units float64, class Class, most time.Duration) (wait time.Duration, ok bool) {
	b.advance(now)
	seconds := 0.0
	if class == Large {
		most := b.burst * b.large()
		seconds = max(b.debt+min(units, most)-most, 0) / (b.perSecond * b.large())
	} else if missing := min(units, b.burst) - b.level; missing > 0 {
		seconds = missing / b.smallRate()
	}
	wait = time.Duration(min(seconds*float64(time.Second), float64(1<<62)))
	b.Held(max(min(wait, most), 0))
	if wait > most {
		return wait, false
	}
	b.use(units, class)
	return wait, true
}

// Held notes that a request was held back for some time.
func (b *Budget) Held(wait time.Duration) { b.held += wait.Seconds() }

// Demand returns which part of a whole, in units a second, was wanted since Demand was called last: what was used with
// some headroom, and everything if one request on average was held back all the time. It is LeastPart at least.
func (b *Budget) Demand(now time.Time, whole float64) float64 {
	wanted := headroom*max(b.spent-b.before, 0)/whole + b.held
	seconds := max(now.Sub(b.asked), time.Millisecond).Seconds()
	b.held, b.before, b.asked = 0, b.spent, now
	return min(max(wanted/seconds, LeastPart), 1)
}

// Correct takes units that turned out to be needed in addition, or gives back those that were not.
func (b *Budget) Correct(units float64, class Class) {
	b.use(units, class)
	if class == Small {
		b.late = max(b.late+units, 0)
	}
}

func (b *Budget) use(units float64, class Class) {
	b.spent += units
	if class == Large {
		b.debt = max(b.debt+units, 0)
		return
	}
	b.level = min(b.level-units, b.burst)
}

// Overdue returns how long a small request that was let in some time ago must wait, because those before it have turned
// out to need much more than was taken for them: more than the burst. If that is longer than most, ok is false.
func (b *Budget) Overdue(now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	b.advance(now)
	wait = time.Duration(min(max(b.late-b.burst, 0)/b.smallRate()*float64(time.Second), float64(1<<62)))
	return wait, wait <= most
}

// Spent is how many units were taken since the beginning, less those that were given back.
func (b *Budget) Spent() float64 { return b.spent }

// large is the part of the rate that large requests have.
func (b *Budget) large() float64 {
	if b.alone {
		return 1
	}
	return largeShare
}

// smallRate is what small requests get while large ones are paid for, and otherwise.
func (b *Budget) smallRate() float64 {
	if b.debt > 0 && !b.alone {
		return b.perSecond * (1 - largeShare)
	}
	return b.perSecond
}

// advance adds what has come in since.
func (b *Budget) advance(now time.Time) {
	gain := 0.0
	if !b.last.IsZero() {
		gain = max(now.Sub(b.last).Seconds(), 0) * b.perSecond
	}
	if b.last.Before(now) {
		b.last = now
	}
	paid := min(b.debt, gain*b.large())
	b.debt -= paid
	if !b.alone {
		gain -= paid
	}
	b.level = min(b.level+gain, b.burst)
	b.late = max(b.late-gain, 0)
}
