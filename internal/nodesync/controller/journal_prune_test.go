// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// pruning is a journal that drops entries after a time.
type pruning struct {
	Journal
	prune func(ctx context.Context) error
}

func (p pruning) Prune(ctx context.Context, _ time.Time) (int, error) { return 0, p.prune(ctx) }

// Pruning happens alongside the rounds, at most once an hour, and delays none of them however long it takes.
func TestPruningDelaysNoRound(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		w, pruned := listing(), atomic.Int64{}
		r := w.reconciler()
		r.Config.SweepPeriod, r.DryRun = 0, dryRun
		r.Journal = pruning{w, func(ctx context.Context) error { // takes half an hour, and fails
			pruned.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Minute):
			}
			return errors.New("forbidden")
		}}
		run(t, r, func(t *testing.T, _ func()) {
			t.Helper()
			pass(24 * time.Hour)
			switch pruned, rounds := pruned.Load(), w.count("Snapshot"); {
			case dryRun && pruned > 0:
				t.Errorf("a dry run has pruned %d times", pruned)
			case !dryRun && (pruned < 12 || pruned > 24):
				t.Errorf("%d prunings in a day, want one every hour and a half", pruned)
			case rounds < 24*60/6:
				t.Errorf("%d rounds in a day: pruning has delayed them", rounds)
			}
		})
	}
}
