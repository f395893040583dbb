// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
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
func serveOne(t *testing.T, g *givenRequest, until time.Duration) (reads int64) {
	t.Helper()
	text, err := json.Marshal(Request{ID: "new", Verb: VerbForget, Names: []string{"n9"}, Until: time.Now().Add(until)})
	if err != nil {
		t.Fatal(err)
	}
	g.text = string(text)
	w := &sweptWorld{synced: true}
	r := &Reconciler{
		Datastore: w, Cluster: w, Requests: g, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	if _, err := r.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.rounds.Load()
}

// What was begun and is over is not gone on with, however late a controller finds it.
func TestARequestThatIsOver(t *testing.T) {
	t.Parallel()
	g := &givenRequest{last: Answer{ID: "new", State: AnswerRunning, Lines: []string{"done: something"}}}
	if reads := serveOne(t, g, -48*time.Hour); reads != 0 {
		t.Errorf("it was gone on with: %d reads", reads)
	}
	if g.last.State != AnswerHeld || len(g.last.Lines) != 2 || g.last.Lines[0] != "done: something" {
		t.Errorf("answered %+v", g.last)
	}
}

func TestARequestThatIsWithdrawn(t *testing.T) {
	t.Parallel()
	if reads := serveOne(t, &givenRequest{withdrawn: true}, time.Minute); reads != 0 {
		t.Errorf("it was done all the same: %d reads", reads)
	}
}

func TestARequestAfterAnother(t *testing.T) {
	t.Parallel()
	g := &givenRequest{last: Answer{ID: "old", State: AnswerDone, Lines: []string{"done: something else"}}}
	serveOne(t, g, time.Minute)
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
		answer.account(nodesync.Plan{Refusals: []nodesync.Refusal{{Of: nodesync.Subject{Host: "n9"}, Gate: gate}}}, outcome{})
		if answer.State != want {
			t.Errorf("%s: got %s, want %s", gate, answer.State, want)
		}
	}
}

// A controller for a request neither sweeps again nor says again what was said, and what it forgets is its own.
func TestAControllerForARequest(t *testing.T) {
	t.Parallel()
	r := &Reconciler{
		strays: map[string]bool{"n9": true}, mentioned: map[string]bool{"n8": true}, sweptAt: time.Unix(1, 0),
		announced: announced{said: map[string]time.Time{}, leftovers: map[string]bool{"n7": true}},
	}
	sub := r.named(Request{Names: []string{"n9"}})
	if !sub.strays["n9"] || !sub.mentioned["n8"] || !sub.sweptAt.Equal(r.sweptAt) || !sub.announced.leftovers["n7"] {
		t.Errorf("it does not know what is known: %+v", sub)
	}
	clear(sub.strays)
	sub.announced.said["warning"] = time.Unix(1, 0)
	if !r.strays["n9"] || len(r.announced.said) != 1 {
		t.Errorf("got %v, %v", r.strays, r.announced.said)
	}
}
