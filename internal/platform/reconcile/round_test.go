// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// step is "SUBJECT/WHAT".
type step string

func (s step) String() string { return string(s) }

type (
	plan    = reconcile.Plan[string, step, string]
	options = reconcile.Options[*scene, string, step, string]
)

// scene is what was read, and said is all that a round does, in order.
type scene struct {
	mu   sync.Mutex // guards said
	said []string
	read map[string]bool
}

func (s *scene) say(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, what)
}

// runner makes rounds that fail as failing says, by what is done.
func runner(o options, failing map[string]error, decide func(*scene) plan) (*reconcile.Runner[*scene, string, step, string], *scene) {
	s := &scene{read: map[string]bool{}}
	act := func(what string) error {
		s.say(what)
		return failing[what]
	}
	o.Clock, o.FirstRetry = clock.RealClock{}, time.Second
	o.Observe = func(context.Context, string) (*scene, error) { clear(s.read); return s, act("observe") }
	o.Plan = decide
	satisfy := func(_ context.Context, _ *scene, n string) (reconcile.Learned, error) {
		if err := act("read " + n); err != nil {
			return nil, err
		}
		return func() { s.read[n] = true }, nil
	}
	if o.Satisfy == nil {
		o.Satisfy = satisfy
	}
	o.Trusted = func(context.Context) error { return failing["trust"] }
	o.Save = func(_ context.Context, m string) error { return act("save " + m) }
	o.Always = func(s step) bool { return strings.HasSuffix(string(s), "undo") }
	o.Subject = func(s step) string { return strings.SplitN(string(s), "/", 2)[0] }
	if o.Apply == nil {
		o.Apply = func(_ context.Context, _ *scene, s step) error { return act(string(s)) }
	}
	return reconcile.New(o), s
}

// A round reads each need once, saves before the first step, and leaves a subject alone that has failed.
func TestRound(t *testing.T) {
	t.Parallel()
	memory := "m"
	broken, conflict := errors.New("broken"), apierrors.NewConflict(schema.GroupResource{}, "x", nil)
	for name, test := range map[string]struct {
		failing map[string]error
		plan    func(*scene) plan
		want    string
		result  reconcile.Result
	}{
		"in order": {
			plan: func(*scene) plan { return plan{Steps: []step{"a/1", "b/1", "a/2"}, Memory: &memory, Next: time.Hour} },
			want: "observe, save m, a/1, a/2, b/1", result: reconcile.Result{Wrote: true, Next: time.Hour},
		},
		"the first failure of a subject stops that one": {
			failing: map[string]error{"a/1": broken},
			plan:    func(*scene) plan { return plan{Steps: []step{"a/1", "a/2", "b/1"}} },
			want:    "observe, a/1, b/1", result: reconcile.Result{Wrote: true, Failed: true},
		},
		"a conflict is no failure": {
			failing: map[string]error{"a/1": conflict},
			plan:    func(*scene) plan { return plan{Steps: []step{"a/1", "a/2", "b/1"}, Next: time.Hour} },
			want:    "observe, a/1, b/1", result: reconcile.Result{Wrote: true, Next: time.Hour},
		},
		"what cannot be remembered is not done": {
			failing: map[string]error{"save m": broken},
			plan:    func(*scene) plan { return plan{Steps: []step{"a/do", "b/undo"}, Memory: &memory} },
			want:    "observe, save m, b/undo", result: reconcile.Result{Wrote: true, Failed: true},
		},
		"nor what may be another cluster's": {
			failing: map[string]error{"trust": broken},
			plan:    func(*scene) plan { return plan{Steps: []step{"a/do", "b/undo"}} },
			want:    "observe, b/undo", result: reconcile.Result{Wrote: true, Failed: true},
		},
		"another process has remembered": {
			failing: map[string]error{"save m": conflict},
			plan:    func(*scene) plan { return plan{Steps: []step{"a/do"}, Memory: &memory} },
			want:    "observe, save m", result: reconcile.Result{Next: time.Second},
		},
		"each need once, and again with what came of it": {
			plan: func(s *scene) plan {
				if !s.read["x"] {
					return plan{Needs: []string{"x", "x"}}
				}
				return plan{Needs: []string{"x", "y"}, Steps: []step{"a/1"}}
			},
			want: "observe, read x, read y, a/1", result: reconcile.Result{Wrote: true},
		},
		"a need that cannot be satisfied": {
			failing: map[string]error{"read x": broken},
			plan: func(s *scene) plan {
				if !s.read["x"] {
					return plan{Needs: []string{"x"}}
				}
				return plan{Steps: []step{"a/1"}}
			},
			want: "observe, read x", result: reconcile.Result{Failed: true},
		},
		"what came of steps is for the plan that is made again": {
			failing: map[string]error{"a/1": broken},
			plan: func(s *scene) plan {
				if !slices.Contains(s.said, "a/1") {
					return plan{Steps: []step{"a/1"}, Memory: &memory, Again: true, Refusals: []error{broken}}
				}
				return plan{Steps: []step{"b/1"}}
			},
			want: "observe, save m, a/1, b/1", result: reconcile.Result{Wrote: true},
		},
		"what was not read is not forgotten when the plan is made again": {
			failing: map[string]error{"read x": broken},
			plan: func(s *scene) plan {
				if !slices.Contains(s.said, "a/1") {
					return plan{Needs: []string{"x"}, Steps: []step{"a/1"}, Again: true}
				}
				return plan{Steps: []step{"b/1"}}
			},
			want: "observe, read x, a/1, b/1", result: reconcile.Result{Wrote: true, Failed: true},
		},
		"a refusal waits for the world": {
			plan: func(*scene) plan { return plan{Refusals: []error{broken}} },
			want: "observe", result: reconcile.Result{},
		},
		"nothing is decided on what was not read": {
			failing: map[string]error{"observe": broken},
			plan:    func(*scene) plan { return plan{Steps: []step{"a/1"}} },
			want:    "observe", result: reconcile.Result{Failed: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := runner(options{}, test.failing, test.plan)
			if got := r.Once(t.Context(), "key"); got != test.result {
				t.Errorf("result %+v, want %+v", got, test.result)
			}
			if got := strings.Join(s.said, ", "); got != test.want {
				t.Errorf("it did %q, want %q", got, test.want)
			}
		})
	}
}

// What goes wrong in the report makes the round again, as what goes wrong in a step does; a conflict is no failure.
func TestAReportThatFails(t *testing.T) {
	t.Parallel()
	for want, err := range map[reconcile.Result]error{
		{Failed: true}:    errors.New("broken"),
		{Next: time.Hour}: apierrors.NewConflict(schema.GroupResource{}, "x", nil),
	} {
		report := func(_ context.Context, r *reconcile.Round[*scene, string, step, string]) { r.Fail(err) }
		r, _ := runner(options{Report: report}, nil, func(*scene) plan { return plan{Next: time.Hour} })
		if got := r.Once(t.Context(), "key"); got != want {
			t.Errorf("%v: result %+v, want %+v", err, got, want)
		}
	}
}

// Independent subjects and needs are worked on side by side, up to the bound; steps of one subject keep their order.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := plan{}
		for i := range 6 {
			p.Needs = append(p.Needs, fmt.Sprint(i))
			p.Steps = append(p.Steps, step(fmt.Sprintf("%d/1", i)), step(fmt.Sprintf("%d/2", i)))
		}
		slow := func(s *scene, what string) error { <-time.After(time.Second); s.say(what); return nil }
		r, s := runner(options{
			NeedsAtOnce: 3, StepsAtOnce: 2,
			Satisfy: func(_ context.Context, s *scene, n string) (reconcile.Learned, error) { return nil, slow(s, n) },
			Apply:   func(_ context.Context, s *scene, st step) error { return slow(s, string(st)) },
		}, nil, func(*scene) plan { return p })
		ended, end := context.WithCancel(t.Context())
		defer r.Run(ended)
		defer end()
		began := time.Now()
		if r.Once(t.Context(), "key"); time.Since(began) != 2*time.Second+6*time.Second {
			t.Errorf("it took %s, want 2 s for six needs, three at a time, and 6 s for twelve steps of six subjects, two at a time", time.Since(began))
		}
		for i := range 6 {
			if slices.Index(s.said, fmt.Sprintf("%d/1", i)) > slices.Index(s.said, fmt.Sprintf("%d/2", i)) {
				t.Errorf("subject %d: its second step came first: %v", i, s.said)
			}
		}
	})
}

// Rounds over one key do not overlap, nobody waits for another key, and no call begins a round once the gate is closed.
func TestRoundsOverAKeyTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o options
		o.Gate = &reconcile.Gate{}
		r, s := runner(o, nil, func(*scene) plan { return plan{Next: time.Hour} })
		ctx, end := context.WithCancel(t.Context())
		defer r.Run(ctx)
		defer end()
		began := time.Now()
		for i, key := range []string{"a", "a", "b"} {
			go func() {
				_, err := r.Call(ctx, key, func(context.Context, string) (*scene, error) {
					<-time.After(time.Second)
					s.say(fmt.Sprint(key, time.Since(began)))
					return s, nil
				})
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			}()
		}
		wait(3 * time.Second)
		slices.Sort(s.said)
		if want := []string{"a1s", "a2s", "b1s"}; !slices.Equal(s.said, want) {
			t.Errorf("rounds %v, want %v", s.said, want)
		}
		if !o.Gate.Drain(clock.RealClock{}, time.Second) {
			t.Error("the gate says that a round is under way")
		}
		late, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := r.Call(late, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call at a closed gate: %v", err)
		}
	})
}

// A note is told once while it holds, whatever its words, and a round that failed does not know that it has stopped
// to hold.
func TestNotesAreToldOnce(t *testing.T) {
	t.Parallel()
	var now plan
	r, _ := runner(options{}, map[string]error{"a/1": errors.New("broken")}, func(*scene) plan { return now })
	events := record.NewFakeRecorder(100)
	r.Events = events
	note := func(cause, message string) reconcile.Note {
		return reconcile.Note{Type: corev1.EventTypeWarning, Reason: "R", Cause: cause, Message: message}
	}
	for i, at := range []struct {
		plan plan
		told int
	}{
		{plan{Notes: []reconcile.Note{note("a", "one"), note("a", "two"), note("b", "three")}}, 2},
		{plan{Notes: []reconcile.Note{note("a", "other words")}}, 0}, // b has stopped to hold
		{plan{Notes: []reconcile.Note{note("b", "again")}, Steps: []step{"a/1"}}, 1},
		{plan{Steps: []step{"a/1"}}, 0},
		{plan{Notes: []reconcile.Note{note("a", "one"), note("b", "three")}}, 0}, // rounds that failed have forgotten neither
		{plan{}, 0},
		{plan{Notes: []reconcile.Note{note("a", "one")}}, 1},
	} {
		now = at.plan
		r.Once(t.Context(), "key")
		if got := len(events.Events); got != at.told {
			t.Errorf("round %d: %d Events, want %d", i, got, at.told)
		}
		for len(events.Events) > 0 {
			<-events.Events
		}
	}
}

// Steps that all others depend on are made before them, and if one of them is not done none is. A step that is held
// is no failure of the round, and what goes wrong while it is reported is one.
func TestFirstStepsAndHeldOnes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failing map[string]error
		said    string
		failed  bool
	}{
		"all done":      {nil, "observe first/1 first/2 a/1 b/1", false},
		"a first fails": {map[string]error{"first/1": errors.New("no")}, "observe first/1", true},
		"one is held": {
			map[string]error{"a/1": reconcile.As(reconcile.Held, errors.New("no"))}, "observe first/1 first/2 a/1 b/1", false,
		},
		"its report fails": {map[string]error{"report": errors.New("no")}, "observe first/1 first/2 a/1 b/1", true},
	} {
		o := options{
			First: func(s step) bool { return strings.HasPrefix(string(s), "first") },
			Report: func(_ context.Context, r *reconcile.Round[*scene, string, step, string]) {
				if err := test.failing["report"]; err != nil {
					r.Fail(err)
				}
			},
		}
		r, s := runner(o, test.failing, func(*scene) plan { return plan{Steps: []step{"first/1", "first/2", "a/1", "b/1"}} })
		result := r.Once(t.Context(), "key")
		if said := strings.Join(s.said, " "); said != test.said || result.Failed != test.failed {
			t.Errorf("%s: %s, %+v", name, said, result)
		}
		s.said = nil
		_, p, err := r.Preview(t.Context(), "key")
		if err != nil || len(p.Steps) != 4 || strings.Join(s.said, " ") != "observe" {
			t.Errorf("%s: a preview did %v and has %d steps, %v", name, s.said, len(p.Steps), err)
		}
	}
}

// A round that is told to the end is reported also when the program ends in it.
func TestARoundThatIsReportedAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, atEnd := range []bool{false, true} {
		ctx, end := context.WithCancel(t.Context())
		reported := false
		r, _ := runner(options{
			AtEnd: atEnd, Report: func(context.Context, *reconcile.Round[*scene, string, step, string]) { reported = true },
		}, nil, func(*scene) plan { end(); return plan{Steps: []step{"a/1"}} })
		if result := r.Once(ctx, "key"); reported != atEnd || result != (reconcile.Result{}) {
			t.Errorf("at the end %t: reported %t, %+v", atEnd, reported, result)
		}
	}
}

// In mode report a round ends with its plan, of which each step is logged once while it is planned. Nothing is saved,
// and what the report of a round writes is refused.
func TestReportWritesNothing(t *testing.T) {
	t.Parallel()
	var lines []string
	memory, planned := "m", []step(nil)
	r, s := runner(options{
		Mode: outputs.Report, Writes: []outputs.Write{{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"patch"}}},
		Log:     funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}),
		Because: func(_ *scene, s step) string { return "of " + string(s) },
		Report: func(ctx context.Context, done *reconcile.Round[*scene, string, step, string]) {
			if _, err := outputs.Allowed(ctx, outputs.Kubernetes, "nodes", "patch"); !errors.Is(err, outputs.ErrUndeclared) {
				t.Errorf("a write of the report: %v", err)
			}
			if done.Err != nil || done.Wrote || len(done.Applied) > 0 {
				t.Errorf("the round: %+v", done)
			}
		},
	}, nil, func(*scene) plan {
		return plan{Steps: planned, Memory: &memory, Again: true, Next: time.Hour, Notes: []reconcile.Note{{Reason: "Held"}}}
	})
	for i, test := range []struct{ steps, want string }{{"a b/undo", "a b/undo"}, {"a b/undo", ""}, {"a c", "c"}, {"a b/undo c", "b/undo"}} {
		lines, planned = nil, nil
		for what := range strings.FieldsSeq(test.steps) {
			planned = append(planned, step(what))
		}
		if result := r.Once(t.Context(), reconcile.Only); result != (reconcile.Result{Next: time.Hour}) {
			t.Errorf("%d. %+v", i, result)
		}
		var want []string
		for what := range strings.FieldsSeq(test.want) {
			want = append(want, fmt.Sprintf(`"level"=0 "msg"="Would apply step, but this is a dry run" "because"="of %s" "would"="%s"`, what, what))
		}
		if i == 0 {
			want = append(want, `"level"=0 "msg"="Would record an Event, but this is a dry run" "object"=" " "reason"="Held" "message"=""`)
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("%d. %s (-want +got):\n%s", i, test.steps, diff)
		}
	}
	if got := strings.Join(s.said, " "); got != "observe observe observe observe" {
		t.Errorf("what was done: %s", got)
	}
}

// In mode report no write leaves the program but those of its Leases, whoever makes it.
func TestTransportOfReport(t *testing.T) {
	t.Parallel()
	var sent, would []string
	transport := outputs.Report.Transport(nil, func(verb, path string) { would = append(would, verb+" "+path) })(roundTrip(func(r *http.Request) (*http.Response, error) {
		body := 0
		if r.Body != nil {
			content, err := io.ReadAll(r.Body)
			must.Do(t, err)
			body = len(content)
		}
		sent = append(sent, fmt.Sprintf("%s %s %d", r.Method, r.URL.RequestURI(), body))
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	const leases, events, node = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "/api/v1/namespaces/a/events", "/api/v1/nodes/n"
	for _, call := range []string{
		"GET " + node, "PUT " + leases, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "POST " + events,
		"PATCH " + node + "?fieldManager=m", "PUT " + node + "/status", "DELETE " + node,
	} {
		method, path, _ := strings.Cut(call, " ")
		request, err := http.NewRequestWithContext(t.Context(), method, "https://kubernetes.example"+path, strings.NewReader("{}"))
		must.Do(t, err)
		response, err := transport.RoundTrip(request)
		must.Do(t, err)
		must.Do(t, response.Body.Close())
	}
	want := []string{
		"GET " + node + " 2", "PUT " + leases + " 2", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews 2", "POST " + events + "?dryRun=All 2",
		"PATCH " + node + "?dryRun=All&fieldManager=m 2", "PUT " + node + "/status?dryRun=All 2", "GET " + node + " 0",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"patch " + node, "update " + node + "/status", "delete " + node}, would); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if enforce := errors.Join(outputs.Enforce.Validate(), outputs.Report.Validate()); enforce != nil || outputs.Mode("observe").Validate() == nil {
		t.Errorf("the modes: %v", enforce)
	}
}

// A write that is not declared is refused before it is sent. One outside of a round is not a controller's: there is another list for those,
// or none.
func TestUndeclaredWritesAreRefused(t *testing.T) {
	t.Parallel()
	sent := 0
	next := roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	transport := outputs.Guard(next)
	send := func(ctx context.Context, method, path string) error {
		request, err := http.NewRequestWithContext(ctx, method, "https://kubernetes.example"+path, strings.NewReader("{}"))
		must.Do(t, err)
		response, err := transport.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	o := options{Writes: []outputs.Write{
		{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"patch"}},
		{System: outputs.Kubernetes, Kind: "services/status", Verbs: []string{"patch"}},
		{System: outputs.Kubernetes, Kind: "leases.coordination.k8s.io", Verbs: []string{"create"}},
	}}
	o.Name = "test"
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
	for i, at := range []struct {
		method, path string
		declared     bool
	}{
		{http.MethodGet, "/api/v1/secrets/s", true},
		{http.MethodPatch, "/api/v1/nodes/n", true},
		{http.MethodPatch, "/api/v1/nodes/n/status", false},
		{http.MethodDelete, "/api/v1/nodes/n", false},
		{http.MethodPatch, "/api/v1/namespaces/d/services/s/status", true},
		{http.MethodPatch, "/api/v1/namespaces/d/services/s", false},
		{http.MethodPost, leases, true},
		{http.MethodPut, leases + "/l", false},
		{http.MethodPatch, "/apis/apps/v1/nodes/n", false},
	} {
		sent = 0
		var err error
		o.Apply = func(ctx context.Context, _ *scene, _ step) error {
			err = send(ctx, at.method, at.path)
			return err
		}
		r, _ := runner(o, nil, func(*scene) plan { return plan{Steps: []step{"a/1"}} })
		result := r.Once(t.Context(), "key")
		if refused := errors.Is(err, outputs.ErrUndeclared); refused == at.declared || result.Failed == at.declared || (sent == 1) != at.declared {
			t.Errorf("%d. %s %s: %v, sent %d times, %+v", i, at.method, at.path, err, sent, result)
		}
		if err := send(t.Context(), at.method, at.path); err != nil {
			t.Errorf("%s %s outside of a round: %v", at.method, at.path, err)
		}
		transport = outputs.Enforce.Transport(o.Writes, nil)(next)
		if err := send(t.Context(), at.method, at.path); errors.Is(err, outputs.ErrUndeclared) == at.declared {
			t.Errorf("%s %s outside of a round, of which such writes are listed: %v", at.method, at.path, err)
		}
		transport = outputs.Guard(next)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What a round decides is written in the epoch in which it began, and in no other.
func TestARoundWritesInItsEpoch(t *testing.T) {
	t.Parallel()
	epoch, moves := uint64(1), true
	var got error
	r, _ := runner(options{
		Epoch: func() uint64 { return epoch },
		Apply: func(ctx context.Context, _ *scene, _ step) error {
			if moves {
				epoch++ // another token
			}
			got = outputs.Current(ctx, epoch)
			return got
		},
	}, nil, func(*scene) plan { return plan{Steps: []step{"a/write"}} })
	if result := r.Once(t.Context(), "a"); !errors.Is(got, outputs.ErrMoved) || !result.Failed {
		t.Errorf("with another token: %v, %+v", got, result)
	}
	moves = false
	if result := r.Once(t.Context(), "a"); got != nil || result.Failed {
		t.Errorf("the next round, which began with it: %v, %+v", got, result)
	}
}
