// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// probes is a Readiness without a manager: checks by name, a clock to turn, and the log.
type probes struct {
	*Readiness
	checks map[string]healthz.Checker
	clock  *clocktesting.FakePassiveClock
	log    *strings.Builder
}

func newProbes() probes {
	p := probes{checks: map[string]healthz.Checker{}, clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), log: &strings.Builder{}}
	logger := funcr.New(func(_, args string) { p.log.WriteString(args + "\n") }, funcr.Options{})
	p.Readiness = &Readiness{logger: logger, clock: p.clock, add: func(name string, c healthz.Checker) error {
		p.checks[name] = c
		return nil
	}}
	return p
}

func (p probes) ask(ctx context.Context, name string) error {
	return p.checks[name](httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
}

func TestReadinessReusesAnswersAndLogsChanges(t *testing.T) {
	t.Parallel()
	p := newProbes()
	var answer error
	calls := 0
	must.Do(t, p.Add("datastore", func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("a check has no deadline")
		}
		calls++
		return answer
	}))
	down := errors.New("connection refused")
	for i, step := range []struct {
		answer    error
		elapsed   time.Duration
		want      error
		wantCalls int
	}{
		{down, 0, down, 1},                       // first question
		{nil, 999 * time.Millisecond, down, 1},   // too early to ask again
		{down, time.Millisecond, down, 2},        // asked, still down
		{nil, time.Second, nil, 3},               // up
		{down, 10 * time.Millisecond, nil, 3},    // too early to notice
		{down, 10 * time.Second, down, 4},        // down again
		{nil, 10 * time.Second, nil, 5},          // up again
		{nil, 10 * time.Second, nil, 6},          // still up
		{down, 10 * time.Second, down, 7},        // and down
		{down, 10 * time.Millisecond, down, 7},   // reused
		{down, 1000 * time.Millisecond, down, 8}, // asked
	} {
		answer = step.answer
		p.clock.SetTime(p.clock.Now().Add(step.elapsed))
		if got := p.ask(t.Context(), "datastore"); !errors.Is(got, step.want) || calls != step.wantCalls {
			t.Errorf("step %d: %v after %d calls, want %v after %d", i, got, calls, step.want, step.wantCalls)
		}
	}
	const fails, passes = `"msg"="Readiness check fails" "check"="datastore" "reason"="connection refused"`, `"msg"="Readiness check passes" "check"="datastore"`
	want := []string{fails, passes, fails, passes, fails}
	got := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	if len(got) != len(want) {
		t.Fatalf("log:\n%s", p.log)
	}
	for i := range want {
		if !strings.HasSuffix(got[i], want[i]) {
			t.Errorf("line %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// The kubelet gives up after its own timeout; its next question must not get that as the answer.
func TestReadinessOutlivesAnImpatientProber(t *testing.T) {
	t.Parallel()
	p := newProbes()
	must.Do(t, p.Add("slow", func(ctx context.Context) error { return ctx.Err() }))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.ask(gone, "slow"); err != nil {
		t.Errorf("the check saw the prober's context: %v", err)
	}
	if p.log.Len() > 0 {
		// From "not checked yet" to passing is what one expects at start, and worth one line.
		if got := strings.Count(p.log.String(), "\n"); got != 1 {
			t.Errorf("log:\n%s", p.log)
		}
	}
}

func TestReadinessSaysWhichCheckCannotBeAdded(t *testing.T) {
	t.Parallel()
	r := &Readiness{add: func(string, healthz.Checker) error { return errors.New("already started") }}
	want := `adding readiness check "x": already started`
	if err := r.Add("x", nil); err == nil || err.Error() != want {
		t.Errorf("Add() = %v, want %s", err, want)
	}
}
