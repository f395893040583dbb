// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"testing"
)

// Seats are given in the order of asking; who leaves the queue gets none.
func TestSeatsInOrder(t *testing.T) {
	t.Parallel()
	s := seats{bounded: true, count: 1, most: 3}
	var order []string
	var held, first, gone, last, refused seat
	now, ok := s.enter(&held, nil)
	for name, each := range map[string]*seat{"first": &first} {
		s.enter(each, func() { order = append(order, name) })
	}
	s.enter(&gone, func() { order = append(order, "gone") })
	s.enter(&last, func() { order = append(order, "last") })
	_, admitted := s.enter(&refused, nil)
	if !now || !ok || admitted {
		t.Errorf("the first: %v %v, the fourth that waits: %v", now, ok, admitted)
	}
	s.leave(&refused)
	s.leave(&gone)
	for _, each := range []*seat{&held, &held, &first, &last} {
		s.leave(each)
	}
	if taken, waiting := s.inUse(); fmt.Sprint(order) != "[first last]" || taken != 0 || waiting != 0 {
		t.Errorf("order %v, %d taken, %d waiting", order, taken, waiting)
	}
}

// Those who come only to leave the queue again leave nothing behind, though the one seat is kept all the time; those who stay keep their order.
func TestSeatsOfThoseWhoLeft(t *testing.T) {
	t.Parallel()
	s := seats{bounded: true, count: 1}
	var order []int
	var held seat
	var stay [10]seat
	s.enter(&held, nil)
	for i := range 10_000 {
		var gone seat
		s.enter(&gone, func() { t.Error("a seat for one that has left") })
		s.leave(&gone)
		if i%1000 == 0 {
			s.enter(&stay[i/1000], func() { order = append(order, i/1000) })
		}
	}
	if n := len(s.queue); n > 2*len(stay)+leftAtLeast+1 {
		t.Errorf("%d stand in the queue, where %d wait", n, len(stay))
	}
	s.leave(&held)
	for i := range stay {
		s.leave(&stay[i])
	}
	if taken, waiting := s.inUse(); fmt.Sprint(order) != "[0 1 2 3 4 5 6 7 8 9]" || taken != 0 || waiting != 0 {
		t.Errorf("order %v, %d taken, %d waiting", order, taken, waiting)
	}
}

// If there are more seats, those that wait get them at once; if there are fewer, those that are taken are not given on.
func TestSeatsChange(t *testing.T) {
	t.Parallel()
	s := seats{bounded: true, count: 2}
	var places [6]seat
	granted := 0
	for i := range places {
		s.enter(&places[i], func() { granted++ })
	}
	s.resize(4)
	if taken, waiting := s.inUse(); granted != 2 || taken != 4 || waiting != 2 {
		t.Errorf("%d were granted, %d are taken, %d wait", granted, taken, waiting)
	}
	s.resize(1)
	for i := range 3 {
		s.leave(&places[i])
	}
	if taken, waiting := s.inUse(); granted != 2 || taken != 1 || waiting != 2 {
		t.Errorf("with fewer: %d were granted, %d are taken, %d wait", granted, taken, waiting)
	}
	s.leave(&places[3])
	s.leave(&places[4])
	if taken, waiting := s.inUse(); granted != 4 || taken != 1 || waiting != 0 {
		t.Errorf("one by one: %d were granted, %d are taken, %d wait", granted, taken, waiting)
	}
}
