// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// givenRequest is one request, and the answers that it was given.
type givenRequest struct {
	text      string
	last      Answer
	answers   []Answer
	withdrawn bool
}

func (g *givenRequest) Pending(context.Context) (string, Answer, error) { return g.text, g.last, nil }

func (g *givenRequest) Answer(_ context.Context, _ string, answer Answer) error {
	if g.withdrawn {
		return errWithdrawn
	}
	g.answers, g.last = append(g.answers, answer), answer
	return nil
}

// serveOne has one request served, and returns how often Calico's datastore was read for it.
func serveOne(t *testing.T, g *givenRequest, until time.Duration, dryRun bool) (reads int64) {
	t.Helper()
	text := must.Get(json.Marshal(Request{ID: "new", Verb: VerbForget, Names: []string{"n9"}, DryRun: dryRun, Until: time.Now().Add(until)})).Or(t)
	g.text = string(text)
	w := &sweptWorld{synced: true}
	r := &Reconciler{
		Datastore: w, Cluster: w, Requests: g, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	must.Get(r.serve(t.Context())).Or(t)
	return w.rounds.Load()
}

// What was begun and is over is not gone on with, however late a controller finds it.
func TestARequestThatIsOver(t *testing.T) {
	t.Parallel()
	g := &givenRequest{last: Answer{ID: "new", State: AnswerRunning, Lines: []string{"done: something"}}}
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
			text, err := json.Marshal(Request{ID: "new", Verb: VerbForget, Names: []string{"n9"}, Until: now.Now().Add(requestAgain + 10*time.Second)})
			if err != nil {
				t.Fatal(err)
			}
			g, w := &givenRequest{text: string(text)}, &frozenWorld{sweptWorld: sweptWorld{synced: true}, frozen: true}
			r := &Reconciler{
				Datastore: w, Cluster: w, Requests: g, Config: nodesync.DefaultConfig(), Clock: now, Log: logr.Discard(), Metrics: NewMetrics(prometheus.NewRegistry()),
			}
			again, err := r.serve(t.Context())
			if err != nil || again != requestAgain || g.last.Final() {
				t.Fatalf("served again in %s, %v; answered %+v", again, err, g.last)
			}
			now.Step(again)
			if again, err = r.serve(t.Context()); err != nil || again != 10*time.Second || g.last.Final() {
				t.Fatalf("then served again in %s, %v; answered %+v", again, err, g.last)
			}
			w.frozen = !back
			if back {
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

// frozenWorld is a world whose datastore does not respond while it is frozen.
type frozenWorld struct {
	sweptWorld
	frozen bool
}

func (w *frozenWorld) Snapshot(ctx context.Context) (calico.Snapshot, error) {
	if w.frozen {
		return calico.Snapshot{}, errors.New("etcd does not respond")
	}
	return w.sweptWorld.Snapshot(ctx)
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
				g := &givenRequest{last: test.last}
				serveOne(t, g, time.Minute, dryRun)
				if g.last.State != test.want || !slices.Contains(g.last.Lines, unknown) {
					t.Errorf("answered %+v, want %s", g.last, test.want)
				}
			})
		}
	}
}

func TestARequestThatIsWithdrawn(t *testing.T) {
	t.Parallel()
	if reads := serveOne(t, &givenRequest{withdrawn: true}, time.Minute, false); reads != 0 {
		t.Errorf("it was done all the same: %d reads", reads)
	}
}

func TestARequestAfterAnother(t *testing.T) {
	t.Parallel()
	g := &givenRequest{last: Answer{ID: "old", State: AnswerDone, Lines: []string{"done: something else"}}}
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
		memory: nodesync.Memory{Absences: []nodesync.Absence{{CalicoNode: "n9"}}, LeftoverMemory: nodesync.LeftoverMemory{Leftovers: []nodesync.SeenLeftover{{}}}},
		strays: map[string]bool{"n9": true}, mentioned: map[string]bool{"n8": true}, sweptAt: time.Unix(1, 0),
		announced: announced{said: map[string]time.Time{}, leftovers: map[string]bool{"n7": true}},
	}}
	sub := r.named(Request{Names: []string{"n9"}})
	if !sub.strays["n9"] || !sub.mentioned["n8"] || !sub.sweptAt.Equal(r.sweptAt) || !sub.announced.leftovers["n7"] {
		t.Errorf("it does not know what is known: %+v", sub)
	}
	if len(sub.memory.Absences) != 1 || len(sub.memory.Leftovers) != 0 || len(r.memory.Leftovers) != 1 {
		t.Errorf("it is about leftovers of pods: %+v", sub.memory)
	}
	clear(sub.strays)
	sub.announced.said["warning"] = time.Unix(1, 0)
	if !r.strays["n9"] || len(r.announced.said) != 1 {
		t.Errorf("got %v, %v", r.strays, r.announced.said)
	}
}
