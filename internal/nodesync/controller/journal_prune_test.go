// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// value is what a counter counts.
func value(t *testing.T, counter prometheus.Counter) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d metrics (%v)", len(families), err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// onlyEntry reads the one entry of a folder.
func onlyEntry(t *testing.T, folder FolderJournal) Entry {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder.Dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of the journal: got %v (%v), want one", files, err)
	}
	entry := must.Get(ReadEntry(files[0])).Or(t)
	return entry
}

// slowJournal counts prunings, each of which takes half an hour and fails.
type slowJournal struct {
	Journal
	pruned atomic.Int64
}

func (j *slowJournal) Prune(ctx context.Context, _ time.Time) (int, error) {
	j.pruned.Add(1)
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Minute):
	}
	return 0, errors.New("forbidden")
}

// Pruning happens alongside the rounds, at most once an hour, and delays none of them however long it takes.
func TestPruningDelaysNoRound(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, journal := &quietWorld{}, &slowJournal{}
			config := nodesync.DefaultConfig()
			config.SweepPeriod = 0
			r := &Reconciler{
				Datastore: q, Cluster: q, Config: config, Clock: clock.RealClock{}, Log: logr.Discard(), Journal: journal,
				Metrics: NewMetrics(prometheus.NewRegistry()), Wake: make(chan struct{}), DryRun: dryRun,
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- r.Start(ctx) }()
			synctest.Wait()
			pass(24 * time.Hour)
			stop()
			if err := <-done; err != nil {
				t.Errorf("Start returned %v, want nothing", err)
			}
			pruned, rounds := journal.pruned.Load(), q.rounds.Load()
			switch {
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
