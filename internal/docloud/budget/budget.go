// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Priority is how urgent a call is: what is greater goes first.
type Priority int

// Priorities. Where calls are scarce, those of a lower one leave room for those above.
const (
	// Refresh is looking whether all is as it was: lists that are read again.
	Refresh Priority = iota
	// Join is what a new machine, or one that may be gone, waits for.
	Join
	// Change is what keeps traffic flowing: targets and settings of load balancers. So are the further pages of a list that was begun: without
	// them those before were in vain.
	Change
	// Vital is making and deleting, and what is read for it.
	Vital
)

// String returns the priority's name, which is the value of a metric's label and MUST NOT change.
func (p Priority) String() string {
	switch p {
	case Refresh:
		return "refresh"
	case Join:
		return "join"
	case Change:
		return "change"
	case Vital:
		return "vital"
	default:
		return "unknown"
	}
}

// share is what a priority may use.
type share struct {
	// minute is how many calls there may be within a window for one more of this priority.
	minute int
	// floor is how many of a thousand calls of the hour must be left for this priority to go freely; trickle is how far apart its calls are
	// below that, so that what is left is always heard of again.
	floor   int
	trickle time.Duration
	// stagger is when after a hold it may begin, and how much later by chance at most.
	stagger, spread time.Duration
}

// shareOf returns the share of a priority. Only the last few of 240 calls in a minute are kept from all but the most urgent: a list of 5,000
// droplets takes 26.
func shareOf(p Priority) share {
	switch p {
	case Vital:
		return share{minute: mostInWindow, stagger: 0, spread: time.Second}
	case Change:
		return share{minute: 220, floor: 20, trickle: 5 * time.Second, stagger: time.Second, spread: 2 * time.Second}
	case Join:
		return share{minute: 190, floor: 50, trickle: 15 * time.Second, stagger: 2 * time.Second, spread: 3 * time.Second}
	default:
		return share{minute: 160, floor: 100, trickle: time.Minute, stagger: 3 * time.Second, spread: 5 * time.Second}
	}
}

const (
	// mostInWindow and window keep a little away from DigitalOcean's limit in 60 seconds: calls take different times to arrive.
	mostInWindow = assumed.RequestsPerMinute - 10
	window       = 62 * time.Second
	// firstHold is how long nothing is sent after a 429 that does not say how long to wait; it doubles with each, up to longestHold.
	firstHold   = 2 * time.Second
	longestHold = time.Minute
	// probe is how far apart calls are while nothing is left of the hour, the urgent first: what a header says may be wrong, another program
	// may have used the token up and may have stopped to, and a Service waits.
	probe = time.Minute
	// peek is how soon to ask again while another call finds out whether the limit is over.
	peek = time.Second
)

// Word is what one answer says of the limits.
type Word struct {
	// Answered reports that there was an answer at all; Limited that it was 429.
	Answered, Limited bool
	// Until is when to call again, the zero time if it does not say.
	Until time.Time
	// Known reports that Limit, Remaining and Reset are there: calls in an hour, calls that are left, and when the oldest stops to count.
	Known            bool
	Limit, Remaining int
	Reset            time.Time
}

// Reason is why a call has to wait.
type Reason string

// Reasons to wait. They are values of a metric's label and MUST NOT change.
const (
	// Free is none.
	Free Reason = ""
	// RateLimited is that DigitalOcean has responded with 429 and the time is not over.
	RateLimited Reason = "rate_limited"
	// Hour is that the calls of the hour are used up, or what is left is for what is more urgent.
	Hour Reason = "hour"
	// Minute is that the limit of calls per minute is reached.
	Minute Reason = "minute"
)

// Verdict is the answer to one who wants to make a call.
type Verdict struct {
	// Wait is how long to wait before asking again; with 0 the call may be made, and counts.
	Wait time.Duration
	// Reason is why.
	Reason Reason
}

// Budget counts calls and respects what responses say. Its zero value has seen nothing and is free.
type Budget struct {
	sent   []time.Time // within the window, in their order
	flight int         // calls without a response yet

	known  bool // whether the fields of the hour say anything
	hour   Word
	heard  time.Time            // when hour was heard
	last   [Vital + 1]time.Time // the last call of each priority
	until  time.Time            // no call before
	trying bool                 // the limit was reached, and no response has shown since that it is over
	turned int                  // answers of 429 in a row
}

// Ask asks for one call. chance is in [0, 1) and spreads those who wait. Anyone who is allowed MUST call [Budget.Heard] once.
func (b *Budget) Ask(now time.Time, p Priority, chance float64) Verdict {
	s := shareOf(p)
	if v := b.held(now, s, chance); v.Wait > 0 {
		return v
	}
	if v := b.inMinute(now, s); v.Wait > 0 {
		return v
	}
	if v := b.inHour(now, p, s); v.Wait > 0 {
		return v
	}
	b.sent = append(b.sent, now)
	b.last[p] = now
	b.flight++
	return Verdict{}
}

// held says how long a hold still lasts. When it is over the urgent begin, and one call at a time finds out whether the limit is over too.
func (b *Budget) held(now time.Time, s share, chance float64) Verdict {
	if !b.trying {
		return Verdict{}
	}
	start := b.until.Add(s.stagger)
	if now.Before(start) {
		return Verdict{start.Add(time.Duration(chance * float64(s.spread))).Sub(now), RateLimited}
	}
	if b.flight > 0 {
		return Verdict{peek, RateLimited}
	}
	return Verdict{}
}

// inMinute says when the window has room for one more.
func (b *Budget) inMinute(now time.Time, s share) Verdict {
	expired := 0
	for expired < len(b.sent) && !b.sent[expired].Add(window).After(now) {
		expired++
	}
	b.sent = b.sent[:copy(b.sent, b.sent[expired:])]
	if over := len(b.sent) - s.minute; over >= 0 {
		return Verdict{b.sent[over].Add(window).Sub(now), Minute}
	}
	return Verdict{}
}

// inHour says when one more may be taken from what is left of the hour. Calls under way have not been told of yet.
func (b *Budget) inHour(now time.Time, p Priority, s share) Verdict {
	left := b.hour.Remaining - b.flight
	switch {
	case !b.known || left > max(0, b.hour.Limit*s.floor/1000):
		return Verdict{}
	case left <= 0 && b.flight > 0:
		return Verdict{peek, Hour}
	case left <= 0 && now.Before(b.hour.Reset):
		if next := b.heard.Add(probe + s.stagger); now.Before(next) {
			return Verdict{min(next.Sub(now), b.hour.Reset.Add(s.stagger).Sub(now)), Hour}
		}
		return Verdict{}
	}
	// Something is left, or will be: each answer tells.
	if next := b.last[p].Add(max(s.trickle, peek)); now.Before(next) {
		return Verdict{next.Sub(now), Hour}
	}
	return Verdict{}
}

// Heard notes what the answer to a call said; the zero Word is for one that never came. chance is in [0, 1).
func (b *Budget) Heard(now time.Time, w Word, chance float64) {
	b.flight = max(0, b.flight-1)
	if w.Known {
		b.known, b.hour, b.heard = true, w, now
	}
	if !w.Limited {
		// While a hold lasts nothing is sent: what is answered now went before, and says nothing of whether the limit is over.
		if w.Answered && !now.Before(b.until) {
			b.trying, b.turned = false, 0
		}
		return
	}
	b.trying = true
	until := w.Until
	if !until.After(now) {
		hold := min(longestHold, firstHold<<min(b.turned, 10))
		until = now.Add(hold + time.Duration(chance*float64(hold)/2))
	}
	b.turned++
	if until.After(b.until) {
		b.until = until
	}
}

// Renew forgets what was said to another token: limits are per token. Calls of the last minute still count, as they may come from one address.
func (b *Budget) Renew() {
	b.known, b.hour, b.until, b.trying, b.turned = false, Word{}, time.Time{}, false, 0
}

// State is what is known of the limits.
type State struct {
	// Hour is what the last answer said; Known is false if none did.
	Hour Word
	// Held is until when nothing is sent, the zero time for no hold.
	Held time.Time
	// Minute is how many calls were made in the last minute.
	Minute int
}

// State returns what is known.
func (b *Budget) State(now time.Time) State {
	s := State{Hour: b.hour}
	if b.trying && b.until.After(now) {
		s.Held = b.until
	}
	for _, at := range b.sent {
		if at.Add(time.Minute).After(now) {
			s.Minute++
		}
	}
	return s
}
