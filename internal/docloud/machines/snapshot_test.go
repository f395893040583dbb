// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// slowLister takes a second for each list, which has one droplet more each time.
type slowLister struct {
	lists atomic.Int64
	epoch atomic.Uint64
	fail  atomic.Bool
}

func (l *slowLister) Epoch() uint64 { return l.epoch.Load() }

func (l *slowLister) GPUDroplets(context.Context) ([]instance.Droplet, error) { return nil, nil }

func (l *slowLister) OrdinaryDroplets(context.Context) ([]instance.Droplet, error) {
	n := l.lists.Add(1)
	time.Sleep(time.Second) // of the bubble
	if l.fail.Load() {
		return nil, errors.New("a bad day")
	}
	droplets := make([]instance.Droplet, n)
	for i := range droplets {
		droplets[i].ID = i + 1
	}
	return droplets, nil
}

// However many ask at one time, one list is read, and all get it.
func TestSingleFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &slowLister{}
		s := NewSnapshot(api, clock.RealClock{})
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := s.Get(impatient, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gives up early: %v", err)
			}
		})
		for range 50 {
			all.Go(func() {
				if list, err := s.Get(t.Context(), time.Minute); err != nil || len(list.Droplets) != 1 {
					t.Errorf("%+v, %v", list, err)
				}
			})
		}
		all.Wait()
		if n := api.lists.Load(); n != 1 {
			t.Errorf("%d lists were read", n)
		}
		time.Sleep(59 * time.Second)
		if list, err := s.Get(t.Context(), time.Minute); err != nil || len(list.Droplets) != 1 {
			t.Errorf("a list that is young enough: %+v, %v", list, err)
		}
		if list, err := s.Get(t.Context(), time.Second); err != nil || len(list.Droplets) != 2 {
			t.Errorf("a list that is too old: %+v, %v", list, err)
		}
	})
}

// A failure keeps the old list for what it holds, says so, and is not repeated at once by everybody.
func TestFailingList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &slowLister{}
		s := NewSnapshot(api, clock.RealClock{})
		first := must.Get(s.Get(t.Context(), time.Minute)).Or(t)
		api.fail.Store(true)
		began := time.Now()
		for time.Since(began) < time.Hour {
			if list, err := s.Get(t.Context(), time.Second/2); err == nil || list != first {
				t.Fatalf("%+v, %v", list, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := api.lists.Load(); n > 1+5+60 {
			t.Errorf("%d lists were read in an hour of failures", n)
		}
		api.fail.Store(false)
		time.Sleep(time.Minute)
		if list, err := s.Get(t.Context(), time.Second/2); err != nil || list == first {
			t.Errorf("when all is well again: %+v, %v", list, err)
		}
	})
}

// What was read with another token is dropped, also if the token changed while it was read.
func TestListOfAnotherToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &slowLister{}
		s := NewSnapshot(api, clock.RealClock{})
		must.Get(s.Get(t.Context(), time.Minute)).Or(t)
		api.epoch.Add(1)
		go func() {
			time.Sleep(500 * time.Millisecond)
			api.epoch.Add(1)
		}()
		if list, err := s.Get(t.Context(), time.Hour); !errors.Is(err, outputs.ErrMoved) || !list.At.IsZero() {
			t.Errorf("%+v, %v", list, err)
		}
		time.Sleep(time.Minute)
		if list, err := s.Get(t.Context(), time.Hour); err != nil || len(list.Droplets) != 3 || list.Epoch != 2 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
