// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cached_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
)

// stubList counts readings, which take a second.
type stubList struct {
	mu    sync.Mutex
	reads int
	epoch uint64
	fails error
	lbs   []string
}

func (s *stubList) read(context.Context) ([]string, error) {
	<-time.After(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return slices.Clone(s.lbs), s.fails
}

func (s *stubList) current() uint64 { return s.epoch }

func TestListIsReadOnceForAllAndNeverBeforeItIsAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stub := &stubList{}
		list := cached.New(stub.read, stub.current, clock.RealClock{})
		ask := func(after uint64, want int) {
			t.Helper()
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if _, err := list.Get(t.Context(), after, time.Minute); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if stub.reads != want {
				t.Errorf("%d readings, want %d", stub.reads, want)
			}
		}
		ask(0, 1)
		ask(0, 1)
		ask(list.Stamp(), 2)
		<-time.After(time.Minute)
		ask(0, 3)
		stub.epoch++ // another token
		ask(0, 4)

		// A reading under way began before the stamp, and does not do for it.
		<-time.After(time.Hour)
		go func() { _, _ = list.Get(t.Context(), 0, time.Minute) }()
		synctest.Wait()
		ask(list.Stamp(), 6)

		ask(1<<40, 6) // a stamp that is another list's

		stub.fails = errors.New("no")
		if _, err := list.Get(t.Context(), list.Stamp(), time.Minute); err == nil {
			t.Error("a failure is not a list")
		}
		stub.fails = nil
		ask(0, 7) // the last list that was read is still good
	})
}

// Who pauses after failures does not read again at once however many ask, gets the failure meanwhile, and longer each time.
func TestAListThatPausesAfterFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stub := &stubList{fails: errors.New("no")}
		list := cached.New(stub.read, stub.current, clock.RealClock{}).Pausing(2*time.Second, 10*time.Second)
		for range 120 {
			if _, err := list.Get(t.Context(), 0, time.Minute); !errors.Is(err, stub.fails) {
				t.Fatal(err)
			}
			<-time.After(500 * time.Millisecond)
		}
		if stub.reads < 6 || stub.reads > 9 { // at 0, 2 to 4, 6 to 9 … and every ten seconds, each of which takes one
			t.Errorf("%d readings in two minutes", stub.reads)
		}
		stub.fails = nil
		<-time.After(12 * time.Second)
		if _, err := list.Get(t.Context(), 0, time.Minute); err != nil {
			t.Error(err)
		}
	})
}
