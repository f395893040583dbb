// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"strings"
	"testing"
	"time"
)

// A machine that is removed, comes back and is removed again counts for the mass guard's window from the second time on.
func TestTheWindowBeginsWithTheLastRemoval(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Grace, c.MinOverlapPercent, c.MaxUnwitnessed, c.MaxUnwitnessedPercent = 0, 0, 1, 0
	var memory Memory
	round := func(after time.Duration, alive ...string) Plan {
		w := named(c, []string{"x=x", "y=y", "z=z"}, alive, nil)
		w.Now, w.Memory = start.Add(after), memory
		p := MakePlan(w, c)
		memory = p.Memory
		return p
	}
	for _, at := range []time.Duration{0, 40 * time.Minute} {
		if p := round(at, "y", "z"); len(p.Steps) == 0 {
			t.Fatalf("x is gone at %s:\n%s", at, p)
		}
		round(at+time.Minute, "x", "y", "z")
	}
	if p := round(c.MassWindow+5*time.Minute, "x", "z"); len(p.Steps) > 0 {
		t.Errorf("two machines within %s, and the guard allows one:\n%s", c.MassWindow, p)
	}
	if p := round(2*c.MassWindow, "x", "z"); len(p.Steps) == 0 {
		t.Errorf("after the window:\n%s", p)
	}
}

// A process that is killed between the fence and the note of it leaves a Calico Node that was written since the absence began. The next process begins the
// grace period again, and has not forgotten that the deletion was watched.
func TestAFenceThatWasNotNotedKeepsTheWitness(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := named(c, []string{"a=a", "z=z"}, []string{"a"}, nil)
	z := &w.Calico.Nodes[1]
	w.Memory = Memory{Absences: []Absence{{CalicoNode: "z", KubernetesNode: "z", Since: start, Revision: z.Revision, Witnessed: true}}}
	w.Now, w.Sightings = start.Add(time.Hour), nil
	z.Revision++
	for fence, watched := range map[string]bool{"z": true, "": false, "another": false} {
		z.FencedFor = fence
		got := MakePlan(w, c).Memory.Absences
		if len(got) != 1 || got[0].Witnessed != watched || !got[0].Since.Equal(w.Now) {
			t.Errorf("fenced for %q: got %+v, want an absence that begins now and that was watched: %v", fence, got, watched)
		}
	}
}

// Pod garbage collection may take 80 s. A machine whose pods are gone after that is looked at 15 s later and not a minute later; one whose pods
// stay is asked about less and less.
func TestHolds(t *testing.T) {
	t.Parallel()
	for gate, want := range map[Gate]string{
		GateRunningPods: "15s 15s 15s 15s 15s 15s 15s 30s 1m0s 2m0s",
		GateStepFailed:  "15s 30s 1m0s 2m0s 4m0s 5m0s 5m0s 5m0s 5m0s 5m0s",
	} {
		m := Memory{Absences: []Absence{{CalicoNode: "a"}}}
		var got []string
		for range 10 {
			var wait time.Duration
			m, wait = m.Hold("a", gate, "", time.Time{}, Config{Resync: 5 * time.Minute})
			got = append(got, wait.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: waits %v, want %s", gate, got, want)
		}
	}
}
