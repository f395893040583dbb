// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import "time"

// Turns shares few calls among many who want one each, again and again: who was served longest ago is next, so that those who ask first in
// each round do not take what there is. Burst calls may be made at once, and one more in each Every.
type Turns struct {
	burst   int
	every   time.Duration
	patient time.Duration

	left    int
	at      time.Time // when left was last filled up
	wanting map[int]turn
}

// turn is one who wants a call.
type turn struct {
	// served is when it had its last, the zero time for never; asked is when it asked last.
	served, asked time.Time
}

// NewTurns returns Turns from now on: within any time d there are at most burst + d/every calls. Who has not asked for patient does not wait
// any more.
func NewTurns(now time.Time, burst int, every, patient time.Duration) *Turns {
	return &Turns{burst: burst, every: every, patient: patient, left: burst, at: now, wanting: map[int]turn{}}
}

// Take asks for a call for who, and reports whether it is granted: there is one left, and it is not the turn of so many others.
func (t *Turns) Take(now time.Time, who int) bool { return t.TakeOf(now, who, t.burst) }

// TakeOf is Take where most calls are left at most: with 0 it only notes who waits, with 1 it is granted to who is next.
func (t *Turns) TakeOf(now time.Time, who, most int) bool {
	if earned := int(now.Sub(t.at) / t.every); earned > 0 {
		t.left = min(t.burst, t.left+earned)
		t.at = t.at.Add(time.Duration(earned) * t.every)
	}
	mine := t.wanting[who]
	mine.asked = now
	t.wanting[who] = mine
	if left := min(t.left, most); left == 0 || t.before(now, who, mine) >= left {
		return false
	}
	t.left--
	mine.served, mine.asked = now, time.Time{}
	t.wanting[who] = mine
	return true
}

// before counts who waits and goes first. Those who have not asked for long are forgotten.
func (t *Turns) before(now time.Time, who int, mine turn) int {
	first := 0
	for other, o := range t.wanting {
		if now.Sub(o.asked) > t.patient {
			if now.Sub(o.served) > forgetAfter {
				delete(t.wanting, other)
			}
			continue
		}
		if other != who && (o.served.Before(mine.served) || o.served.Equal(mine.served) && other < who) {
			first++
		}
	}
	return first
}

// forgetAfter is how long it is remembered who was served.
const forgetAfter = time.Hour
