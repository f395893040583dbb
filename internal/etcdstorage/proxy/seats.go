// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"slices"
	"sync"
)

// leftAtLeast is how many that have left the queue may stand in it before it is tidied.
const leftAtLeast = 64

// seats bounds how many requests are with the core at one time, and lets the others in in the order in which they came. It is safe for
// concurrent use. Its zero value lets everybody in.
type seats struct {
	// bounded is set unless there are as many as are wanted. most is how many may wait; 0 is any number. Neither may change once it is used.
	bounded bool
	most    int

	mu      sync.Mutex
	count   int
	taken   int
	waiting map[*seat]struct{}
	queue   []*seat // in their order; those that left are not in waiting any more
}

// seat is one request's place, or its place in the queue. The zero value is neither.
type seat struct {
	granted func()
	held    bool
}

// enter takes a seat: now is true if there is one. Otherwise granted is called once there is, from anyone who leaves, and must not block; ok is
// false if too many wait already.
func (s *seats) enter(place *seat, granted func()) (now, ok bool) {
	if !s.bounded {
		return true, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken < s.count {
		s.taken++
		place.held = true
		return true, true
	}
	if s.most > 0 && len(s.waiting) >= s.most {
		return false, false
	}
	if s.waiting == nil {
		s.waiting = map[*seat]struct{}{}
	}
	if len(s.queue) > 2*len(s.waiting)+leftAtLeast { // many have come only to go, while nobody gave a seat up
		s.queue = slices.DeleteFunc(s.queue, func(each *seat) bool {
			_, waits := s.waiting[each]
			return !waits
		})
	}
	place.granted = granted
	s.waiting[place] = struct{}{}
	s.queue = append(s.queue, place)
	return false, true
}

// leave gives a seat, or the place in the queue, up. It may be called at any time and more than once.
func (s *seats) leave(place *seat) {
	if !s.bounded {
		return
	}
	next := s.pass(place)
	if next != nil {
		next()
	}
}

// resize changes how many there are. If they become fewer, those that are taken stay until they are given up.
func (s *seats) resize(count int) {
	if !s.bounded {
		return
	}
	var seated []*seat
	s.mu.Lock()
	for s.count = count; s.taken < s.count; s.taken++ {
		next := s.next()
		if next == nil {
			break
		}
		seated = append(seated, next)
	}
	s.mu.Unlock()
	for _, next := range seated {
		next.granted()
	}
}

func (s *seats) pass(place *seat) (next func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !place.held {
		delete(s.waiting, place)
		return nil
	}
	place.held = false
	if s.taken <= s.count { // else there are fewer now
		if next := s.next(); next != nil {
			return next.granted
		}
	}
	s.taken--
	return nil
}

// next gives a seat to the first that waits; the caller holds the lock.
func (s *seats) next() *seat {
	for len(s.queue) > 0 {
		first := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if _, waits := s.waiting[first]; waits {
			delete(s.waiting, first)
			first.held = true
			return first
		}
	}
	s.queue = nil
	return nil
}

// inUse is how many seats are taken, and how many requests wait.
func (s *seats) inUse() (taken, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, len(s.waiting)
}
