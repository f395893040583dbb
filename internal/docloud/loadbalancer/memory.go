// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"maps"
	"slices"
	"time"
)

// Memory is what is remembered of a Service between passes. It is a value: a plan returns the next one. It is lost with the process, so that
// nothing that must not be forgotten is in it alone.
type Memory struct {
	// Holds is the ID of the load balancer that was the Service's when it was last looked for, empty for none.
	Holds string
	// NotBefore is the stamp that the list must have for the next pass: something happened of which no response arrived.
	NotBefore uint64
	// UnsureSince is when a POST got no response and the load balancer was not found since, zero for no such thing.
	UnsureSince time.Time
	// Attempted are this POST and others before it. Answered are the names of POSTs that got an answer, which was no: what the Service says of
	// them, in a view that may be old, is not a reason to doubt.
	Attempted []Attempt
	Answered  []string
	// TakenSince is when DigitalOcean said last that the name of the load balancer is taken although no list showed it, zero for no such thing.
	TakenSince time.Time
	// NotKept are the differences that remained right after a PUT that was accepted: DigitalOcean does not keep what was sent.
	NotKept []Difference
	// Suspect reports that DigitalOcean refused the droplets: those that the list of droplets shows to be unfit are not sent.
	Suspect bool
	Trial   Trial
	// InPlace is the request that the load balancer was last known to agree with, but for its droplets: what differs from it while it is still
	// the right one was changed elsewhere. Nil for none.
	InPlace []byte
	// Certifying is since when a certificate of Let's Encrypt is waited for, the zero time for no such thing; Ordered and OrderedAt are the name and
	// the time of the last POST of one that was answered with it, or not at all.
	Certifying, OrderedAt time.Time
	Ordered               string
	// Failure is why the last look failed.
	Failure Failure
	// NotUntil is when DigitalOcean may be asked again on behalf of the Service, because it asked to wait; the zero time for at once.
	NotUntil time.Time
	// Turn is when the changes of settings that were sent are worked off; see [Turns].
	Turn time.Time
	// NewSince is since when the load balancer is being made, the zero time for one that is not; Busy is how often in a row it took no change.
	NewSince time.Time
	Busy     int
}

// Failure is why a pass failed, in words that are the same each time, and when it was told last; its zero value for none.
type Failure struct {
	What string
	Told time.Time
}

// clone returns a copy that shares nothing that is changed.
func (m Memory) clone() Memory {
	m.Attempted, m.Answered, m.NotKept = slices.Clone(m.Attempted), slices.Clone(m.Answered), slices.Clone(m.NotKept)
	m.Trial.Refused = maps.Clone(m.Trial.Refused)
	return m
}

// unsureOf remembers that a POST may have made a load balancer. An earlier one of that name may have made it as well, so
// that its time stays, as in [ConditionAttempted].
func (m *Memory) unsureOf(a Attempt, now time.Time) {
	m.UnsureSince = now
	m.Answered = withoutName(m.Answered, a.Name)
	if !slices.ContainsFunc(m.Attempted, func(b Attempt) bool { return a.Name == b.Name && a.At.Sub(b.At) <= hidden }) {
		m.Attempted = append(slices.DeleteFunc(slices.Clone(m.Attempted), func(b Attempt) bool { return a.Name == b.Name }), a)
	}
}

// sureOf remembers that no load balancer of that name was made by the last POST.
func (m *Memory) sureOf(name string) { m.Answered = append(withoutName(m.Answered, name), name) }

// recorded forgets what was attempted, since the load balancer that the Service has is on record.
func (m *Memory) recorded() { m.Attempted, m.Answered = nil, nil }

func withoutName(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == name })
}

// pollEvery is how often to look at a load balancer that is being made: often at first, since most take a minute or two.
func (m Memory) pollEvery(now time.Time, often time.Duration) time.Duration {
	switch age := now.Sub(m.NewSince); {
	case m.NewSince.IsZero() || age < 2*time.Minute:
		return often
	case age < 15*time.Minute:
		return 3 * often
	default:
		return 12 * often
	}
}
