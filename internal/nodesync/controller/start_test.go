// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// When nothing happens nothing is asked but once every resync period, however long.
func TestIdleCost(t *testing.T) {
	w := listing()
	run(t, w.reconciler(), func(t *testing.T, _ func()) {
		t.Helper()
		pass(24 * time.Hour)
		// The period is spread by up to a tenth.
		if got := w.count("Snapshot"); got < 24*60/6 || got > 24*60/5+1 {
			t.Errorf("%d rounds in a day, want one every 5 to 5.5 minutes", got)
		}
	})
}

func TestAnEventStartsARound(t *testing.T) {
	w := listing()
	run(t, w.reconciler(), func(t *testing.T, wake func()) {
		t.Helper()
		before := w.count("Snapshot")
		wake()
		pass(settleDelay / 2)
		if got := w.count("Snapshot"); got != before {
			t.Errorf("%d rounds within the settle delay, want none", got-before)
		}
		pass(settleDelay)
		if got := w.count("Snapshot"); got != before+1 {
			t.Errorf("%d rounds after an event, want one", got-before)
		}
	})
}

// A world that does not respond is asked less and less, at most once a minute in the end, and events do not hurry it.
func TestBackOff(t *testing.T) {
	w, down := listing(), atomic.Bool{}
	w.before = func(_ context.Context, call, _ string) error {
		if call == "Snapshot" && down.Load() {
			return errors.New("connection refused")
		}
		return nil
	}
	run(t, w.reconciler(), func(t *testing.T, wake func()) {
		t.Helper()
		down.Store(true)
		pass(10 * time.Minute)
		before := w.count("Snapshot")
		for range 60 {
			wake()
			pass(time.Minute)
		}
		if got := w.count("Snapshot") - before; got < 50 || got > 61 {
			t.Errorf("%d rounds in an hour of outage, want about one a minute", got)
		}
		down.Store(false)
		pass(2 * time.Minute)
		before = w.count("Snapshot")
		pass(time.Hour)
		if got := w.count("Snapshot") - before; got > 13 {
			t.Errorf("%d rounds in the hour after the outage, want one every five minutes", got)
		}
	})
}

// While something waits for a person one object is read every ten seconds, and nothing else; what the person writes starts a round, right or wrong.
func TestAConfirmationStartsARound(t *testing.T) {
	const machines = 20
	w := &world{}
	for i := range machines {
		w.named(fmt.Sprintf("n%d", i))
	}
	w.listed = w.listed[1:2]
	r := w.reconciler()
	r.State = w
	awaiting := func() nodesync.Awaiting { return get(w, func() nodesync.Awaiting { return w.memory.Awaiting }) }
	confirm := func(confirmation string) {
		get(w, func() string { w.confirmation = confirmation; return "" })
		pass(confirmationPeriod)
	}
	run(t, r, func(t *testing.T, _ func()) {
		t.Helper()
		pass(time.Second)
		waits, reads := awaiting(), w.count("Read")
		if rounds := w.count("Snapshot"); waits.Gate != nodesync.GateOverlap || waits.Count != machines-1 || rounds != 1 {
			t.Fatalf("after %d rounds %+v waits", rounds, waits)
		}
		pass(time.Minute)
		if reads = w.count("Read") - reads; w.count("Snapshot") != 1 || reads != 6 {
			t.Errorf("within a minute of waiting: %d rounds and %d reads of the state, want 1 and 6", w.count("Snapshot"), reads)
		}
		confirm("0123456789ab/" + time.Now().Add(time.Hour).Format(time.RFC3339))
		if w.count("Snapshot") != 2 || awaiting().Hash != waits.Hash {
			t.Errorf("a confirmation of other machines: %d rounds, and %+v waits", w.count("Snapshot"), awaiting())
		}
		confirm(waits.Confirmation(time.Now().Add(time.Hour)))
		if w.count("Snapshot") != 3 || awaiting().Hash != "" {
			t.Errorf("confirmed: %d rounds, and %+v waits", w.count("Snapshot"), awaiting())
		}
		reads = w.count("Read")
		pass(time.Minute)
		if reads = w.count("Read") - reads; reads != 0 {
			t.Errorf("nothing waits, and the state is read %d times in a minute", reads)
		}
	})
}
