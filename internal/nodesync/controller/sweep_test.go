// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A stray of which somebody else removes the rest, as kube-controllers does, is not a machine that is gone any more: it would count for the
// mass guard until the next sweep.
func TestAStrayThatSomebodyElseCleansUp(t *testing.T) {
	t.Parallel()
	w := listing("gone")
	r := w.reconciler()
	r.Config.MinOverlapPercent, r.Config.Grace = 0, 0
	for range 2 {
		must.Get(r.pass(t.Context())).Or(t)
	}
	if sweeps := w.count("Sweep"); len(r.memory.Sweep.Strays)+len(r.memory.Absences) > 0 || sweeps != 1 {
		t.Errorf("got strays %v and absences %v after %d sweeps, want none after one", r.memory.Sweep.Strays, r.memory.Absences, sweeps)
	}
	// And one that is cleaned up here is out of sight at once.
	w = listing("gone")
	w.held.Affinities = []calico.Affinity{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Revision: 1}}
	r = w.reconciler()
	r.Config.MinOverlapPercent, r.Config.Grace = 0, 0
	for range 3 {
		if must.Get(r.pass(t.Context())).Or(t); w.count("DeleteAffinity") > 0 {
			break
		}
	}
	if len(r.memory.Sweep.Strays) > 0 || w.count("DeleteAffinity") != 1 {
		t.Errorf("got strays %v after %d removals, want none after one", r.memory.Sweep.Strays, w.count("DeleteAffinity"))
	}
}

// What a sweep finds is in sight until it is cleaned up, found alive, or looked for again: also what is held back, and also if the sweep was made in
// a round in which nothing could be judged, as the first of a process often is.
func TestWhatASweepFoundStaysInSight(t *testing.T) {
	t.Parallel()
	w := listing("gone", "n2", "short")
	w.unsynced = true
	r := w.reconciler()
	r.Config.MinOverlapPercent = 0
	must.Get(r.pass(t.Context())).Or(t)
	if len(r.memory.Sweep.Strays) != 3 {
		t.Errorf("before the watch is filled: got strays %v, want all that were found", r.memory.Sweep.Strays)
	}
	w.unsynced = false
	for range 3 {
		must.Get(r.pass(t.Context())).Or(t)
		if diff := cmp.Diff([]string{"gone", "short"}, r.memory.Sweep.Strays); diff != "" {
			t.Errorf("strays (-want +got):\n%s", diff)
		}
		if ambiguous := (nodesync.Refusal{Of: nodesync.Subject{Host: "short", KubernetesNode: "short"}, Gate: nodesync.GateAmbiguousName}); !r.refused[ambiguous] {
			t.Errorf("a host with an ambiguous name is not told any more: %v", r.refused)
		}
	}
	if sweeps := w.count("Sweep"); len(r.memory.Absences) != 1 || sweeps != 1 {
		t.Errorf("got absences %v after %d sweeps, want that of gone after one", r.memory.Absences, sweeps)
	}
}

// Pods that cannot be listed hold up neither the round nor what the sweep found, are said, and are asked for again in the next round. Where nothing in
// the datastore names a pod, none are listed.
func TestASweepWithoutPods(t *testing.T) {
	t.Parallel()
	w, denied := listing("gone"), errors.New("pods is forbidden")
	w.before = func(_ context.Context, call, _ string) error {
		if call == "EachPod" {
			return denied
		}
		return nil
	}
	r := w.reconciler()
	r.Leftovers, r.Config.MinOverlapPercent = true, 0
	preview := func() string {
		t.Helper()
		plan := must.Get(r.Preview(t.Context())).Or(t)
		return plan.String()
	}
	const said = "leftovers of pods were not looked for: listing pods: pods is forbidden"
	for range 2 {
		if text := preview(); !strings.Contains(text, said) || !slices.Contains(r.memory.Sweep.Strays, "gone") {
			t.Fatalf("got\n%s%v", text, r.memory.Sweep.Strays)
		}
	}
	denied = nil
	for range 3 {
		if text := preview(); strings.Contains(text, "not looked for") {
			t.Errorf("got\n%s", text)
		}
	}
	if w.count("EachPod") != 3 || w.count("Sweep") != 1 {
		t.Errorf("%d lists of pods and %d sweeps, want 3 and 1", w.count("EachPod"), w.count("Sweep"))
	}
	w = listing()
	w.swept.NamesPods = false
	r = w.reconciler()
	r.Leftovers = true
	if preview(); w.count("EachPod") > 0 {
		t.Error("pods were listed, although nothing names any")
	}
}
