// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// The product is killed with signal 9 before and after every single write of a clean-up, to etcd and to the API server alike, and started
// again. Each time the end must be that of a clean-up which nothing disturbed, byte for byte, and all that is gone must stand in the journal.
// Two machines were gone when it started, or it has watched one go.
func TestKillingItAtEveryWriteEndsAlike(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct{ after, watched, long bool }{
		"before":         {},
		"after":          {after: true, long: true},
		"watched-before": {watched: true, long: true},
		"watched-after":  {after: true, watched: true},
	} {
		if testing.Short() && way.long {
			continue // the full run does it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			build := newScene
			if way.watched {
				build = newWatchedScene
			}
			s := build(t, controlplane.Shared(t), "kill-"+name)
			t.Logf("an undisturbed clean-up makes these writes: %v", s.writes)
			points := 0
			for _, kind := range s.kinds() {
				for n := 1; s.killAt(kind, n, way.after); n += stride() {
					points++
				}
			}
			t.Logf("%d kill points", points)
		})
	}
}

// stride is how many points a sample leaves out, and one.
func stride() int {
	if testing.Short() {
		return 3
	}
	return 1
}

// killAt does it at one point, and returns false when the clean-up ended before there was such a write.
func (s *scene) killAt(kind string, n int, after bool, flags ...string) bool {
	s.t.Helper()
	s.restore(s.dirty)
	if s.watched {
		s.addNode(goes)
	}
	seen := s.through.Rounds()
	trap := s.through.Lay(kind, n, after)
	process := s.start(s.through, flags...)
	if s.watched {
		s.leaveAfterRound(seen+1, trap, process)
	}
	if !s.await(trap) {
		process.Stop()
		return false
	}
	process.Kill()
	trap.Release(false)
	process = s.start(s.through, flags...)
	defer process.Stop()
	testkit.Eventually(s.t, trap.String()+": the end of the clean-up", func() string {
		if left := s.unfinished(); left != "" {
			return left + "\nits log:\n" + tail(process)
		}
		return ""
	})
	s.expectJournal(trap)
	return true
}

// leaveAfterRound lets the machine go when the product has looked around while it was there, or is held before.
func (s *scene) leaveAfterRound(round int, trap *trap, process *testkit.Process) {
	s.t.Helper()
	testkit.Eventually(s.t, "the first round", func() string {
		// The list that fills the watch comes before the first round.
		if s.through.Rounds() >= round || trap.HasSprung() {
			return ""
		}
		return "its log:\n" + tail(process)
	})
	s.dropNode(goes)
}

// await waits until the trap springs, and returns false when the clean-up has ended without.
func (s *scene) await(trap *trap) bool {
	s.t.Helper()
	return s.awaitIn(s.through, trap)
}

func (s *scene) awaitIn(through *interposer, trap *trap) bool {
	s.t.Helper()
	testkit.Eventually(s.t, trap.String(), func() string {
		if trap.HasSprung() {
			return ""
		}
		return s.unfinished()
	})
	if trap.HasSprung() {
		return true
	}
	through.Disarm(trap)
	return false
}

// The apply command is killed before or after every write to etcd, and run again.
func TestKillingApplyAtEveryWriteEndsAlike(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "apply")
	points := 0
	for n := 1; ; n += 2*stride() - 1 {
		s.restore(s.dirty)
		trap := s.through.Lay(etcdWrites, n, n%2 == 0)
		first := s.startApply()
		testkit.Eventually(t, trap.String(), func() string {
			select {
			case <-first.Done():
				return ""
			case <-trap.Sprung:
				return ""
			default:
				return "it says:\n" + tail(first)
			}
		})
		if !trap.HasSprung() {
			s.through.Disarm(trap)
			s.expectApplied(trap, first)
			break
		}
		points++
		first.Kill()
		trap.Release(false)
		s.expectApplied(trap, s.startApply())
	}
	t.Logf("%d kill points", points)
}

// startApply runs the apply command as an administrator who keeps nothing in the cluster does.
func (s *scene) startApply() *testkit.Process {
	s.t.Helper()
	s.started++
	process := testkit.Start(s.t, filepath.Join(s.logs, fmt.Sprintf("%d.log", s.started)), []string{"ETCD_ENDPOINTS=" + s.through.EtcdURL}, s.binary,
		"apply", "--yes", "--kubeconfig", s.through.Kubeconfig, "--round-interval=1s", "--grace-period=100ms")
	s.t.Cleanup(process.Stop)
	return process
}

func (s *scene) expectApplied(trap *trap, process *testkit.Process) {
	s.t.Helper()
	testkit.Eventually(s.t, trap.String()+": the end of apply", func() string {
		select {
		case <-process.Done():
			return ""
		default:
			return "it says:\n" + tail(process)
		}
	})
	if code := process.ExitCode(); code != 0 {
		s.t.Errorf("%s: apply ended with exit code %d and says:\n%s", trap, code, tail(process))
	}
	if diff := cmp.Diff(s.clean, s.etcd.Dump(s.t)); diff != "" {
		s.t.Errorf("%s: apply leaves something else than an undisturbed clean-up (-want +got):\n%s", trap, diff)
	}
}
