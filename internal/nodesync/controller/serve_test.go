// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// serveOne has one request served, and returns how often Calico's datastore was read for it.
func serveOne(t *testing.T, w *world, until time.Duration, dryRun bool) (reads int) {
	t.Helper()
	text := must.Get(json.Marshal(Request{ID: "new", Verb: VerbForget, Names: []string{"n9"}, DryRun: dryRun, Until: time.Now().Add(until)})).Or(t)
	w.asked = string(text)
	r := w.reconciler()
	r.Requests = w
	must.Get(r.serve(t.Context())).Or(t)
	return w.count("Snapshot")
}

// answered is a world in which a request was answered last with this.
func answered(last Answer) *world {
	w := listing()
	w.last = last
	return w
}

// What was begun and is over is not gone on with, however late a controller finds it.
func TestARequestThatIsOver(t *testing.T) {
	t.Parallel()
	g := answered(Answer{ID: "new", State: AnswerRunning, Lines: []string{"done: something"}})
	if reads := serveOne(t, g, -48*time.Hour, false); reads != 0 {
		t.Errorf("it was gone on with: %d reads", reads)
	}
	if g.last.State != AnswerHeld || len(g.last.Lines) != 2 || g.last.Lines[0] != "done: something" {
		t.Errorf("answered %+v", g.last)
	}
}

// A datastore that does not respond for a while, as in a change of its leader, does not end a request that has time left. It ends then, and says why.
func TestARequestOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]bool{"it comes back": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := clocktesting.NewFakeClock(time.Now())
			text := must.Get(json.Marshal(Request{ID: "new", Verb: VerbForget, Names: []string{"n9"}, Until: now.Now().Add(requestAgain + 10*time.Second)})).Or(t)
			g, frozen := listing(), errors.New("etcd does not respond")
			g.asked = string(text)
			g.before = func(_ context.Context, call, _ string) error {
				if call == "Snapshot" {
					return frozen
				}
				return nil
			}
			r := g.reconciler()
			r.Requests, r.Clock = g, now
			again, err := r.serve(t.Context())
			if err != nil || again != requestAgain || g.last.Final() {
				t.Fatalf("served again in %s, %v; answered %+v", again, err, g.last)
			}
			now.Step(again)
			if again, err = r.serve(t.Context()); err != nil || again != 10*time.Second || g.last.Final() {
				t.Fatalf("then served again in %s, %v; answered %+v", again, err, g.last)
			}
			if back {
				frozen = nil
				now.Step(time.Second)
			} else {
				now.Step(again)
			}
			if _, err = r.serve(t.Context()); err != nil {
				t.Fatal(err)
			}
			why := strings.Contains(strings.Join(g.last.Lines, "\n"), "etcd does not respond")
			if back && (g.last.State != AnswerHeld || why) || !back && (g.last.State != AnswerFailed || !why) {
				t.Errorf("in the end answered %+v", g.last)
			}
		})
	}
}

// A name under which there is nothing is wrong, and not done. Where an earlier attempt of the request may have removed
// what it meant, it is done.
func TestANameOfNothingIsNotDone(t *testing.T) {
	t.Parallel()
	const unknown = "n9: nothing in Calico's datastore is about it: NODE must be the name of a Calico Node"
	for name, test := range map[string]struct {
		last Answer
		want string
	}{
		"at first":                              {Answer{}, AnswerHeld},
		"after another request":                 {Answer{ID: "old", State: AnswerDone}, AnswerHeld},
		"after an outage":                       {Answer{ID: "new", State: AnswerRunning, Lines: []string{errorMark + "etcd does not respond"}}, AnswerHeld},
		"it was not known before":               {Answer{ID: "new", State: AnswerRunning, Lines: []string{"not done: another", unknown}}, AnswerHeld},
		"after an attempt that removed it":      {Answer{ID: "new", State: AnswerRunning, Lines: []string{removedMark + "remove Calico Node n9"}}, AnswerDone},
		"after an attempt that found it":        {Answer{ID: "new", State: AnswerRunning, Lines: []string{"left alone: n9: a pod runs"}}, AnswerDone},
		"after an attempt that died in between": {Answer{ID: "new", State: AnswerRunning}, AnswerDone},
	} {
		for _, dryRun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dry run %t", name, dryRun), func(t *testing.T) {
				t.Parallel()
				g := answered(test.last)
				serveOne(t, g, time.Minute, dryRun)
				if g.last.State != test.want || !slices.Contains(g.last.Lines, unknown) {
					t.Errorf("answered %+v, want %s", g.last, test.want)
				}
			})
		}
	}
}

// A name of which the last sweep knew nothing is looked for once more: its machine may have left something since.
func TestANameIsSweptForAgain(t *testing.T) {
	t.Parallel()
	w := listing()
	r := w.reconciler()
	must.Get(r.pass(t.Context())).Or(t)
	w.swept.Hosts, w.held.Affinities, r.Requests = []string{"n9"}, []calico.Affinity{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Revision: 1}}, w
	text := must.Get(json.Marshal(Request{ID: "new", Verb: VerbForget, Names: []string{"n9"}, Until: time.Now().Add(time.Minute)})).Or(t)
	w.asked = string(text)
	must.Get(r.serve(t.Context())).Or(t)
	if w.count("DeleteAffinity") == 0 || w.count("Sweep") != 2 {
		t.Errorf("%d sweeps, answered %+v", w.count("Sweep"), w.last)
	}
}

// Nothing is put back without a journal to put it back from.
func TestARestoreWithoutAJournal(t *testing.T) {
	t.Parallel()
	w := listing()
	r := w.reconciler()
	w.asked, r.Requests = fmt.Sprintf(`{"id":"1","verb":"restore","names":["n9"],"until":%q}`, time.Now().Add(time.Minute).Format(time.RFC3339)), w
	must.Get(r.serve(t.Context())).Or(t)
	if w.last.State != AnswerFailed || !strings.Contains(strings.Join(w.last.Lines, ""), "keeps no journal in ConfigMaps") {
		t.Errorf("answered %+v", w.last)
	}
}

func TestARequestThatIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := listing()
	if w.withdrawn = true; serveOne(t, w, time.Minute, false) != 0 {
		t.Error("it was done all the same")
	}
}

// A request that comes too late, or is for too long, is not begun.
func TestARequestThatIsNotBegun(t *testing.T) {
	t.Parallel()
	for until, want := range map[time.Duration]string{-time.Second: "came too late", LongestRequestTime + time.Minute: "valid for more than"} {
		w := listing()
		if reads := serveOne(t, w, until, false); reads > 0 || w.last.State != AnswerFailed || !strings.Contains(w.last.Lines[0], want) {
			t.Errorf("%d reads, answered %+v", reads, w.last)
		}
	}
}

func TestARequestAfterAnother(t *testing.T) {
	t.Parallel()
	g := answered(Answer{ID: "old", State: AnswerDone, Lines: []string{"done: something else"}})
	serveOne(t, g, time.Minute, false)
	if len(g.answers) != 2 {
		t.Fatalf("answered %+v", g.answers)
	}
	for _, answer := range g.answers {
		if answer.ID != "new" || slices.Contains(answer.Lines, "done: something else") {
			t.Errorf("answered %+v", answer)
		}
	}
}

// What a person has asked for by name and is left alone is not done, whatever the reason.
func TestWhatIsLeftAloneIsHeld(t *testing.T) {
	t.Parallel()
	for _, gate := range nodesync.Gates() {
		want := AnswerHeld
		if passes(gate) {
			want = AnswerRunning
		}
		answer := Answer{State: AnswerDone}
		answer.account(nodesync.Plan{Refusals: []nodesync.Refusal{{Of: nodesync.Subject{Host: "n9"}, Gate: gate}}}, nil)
		if answer.State != want {
			t.Errorf("%s: got %s, want %s", gate, answer.State, want)
		}
	}
}

// A controller for a request neither sweeps again nor says again what was said, and what it forgets is its own.
func TestAControllerForARequest(t *testing.T) {
	t.Parallel()
	r := &Reconciler{known: known{
		memory: nodesync.Memory{
			Absences:       []nodesync.Absence{{CalicoNode: "n9"}},
			LeftoverMemory: nodesync.LeftoverMemory{Leftovers: []nodesync.SeenLeftover{{}}},
			Sweep:          nodesync.Sweep{At: time.Unix(1, 0), Strays: []string{"n9"}, Mentioned: []string{"n8"}, PodsDue: true},
		},
		announced: announced{said: map[string]time.Time{}, told: map[topic]bool{{gate: nodesync.GateMass}: true}},
	}}
	sub := r.named(Request{Names: []string{"n9"}})
	known := nodesync.Sweep{At: time.Unix(1, 0), Strays: []string{"n9"}, Mentioned: []string{"n8"}}
	if diff := cmp.Diff(known, sub.memory.Sweep); diff != "" || !sub.announced.told[topic{gate: nodesync.GateMass}] {
		t.Errorf("it does not know what is known: %+v", sub)
	}
	if len(sub.memory.Absences) != 1 || len(sub.memory.Leftovers) != 0 || len(r.memory.Leftovers) != 1 {
		t.Errorf("it is about leftovers of pods: %+v", sub.memory)
	}
	sub.announced.said["warning"] = time.Unix(1, 0)
	if len(r.announced.said) != 1 {
		t.Errorf("got %v", r.announced.said)
	}
}
