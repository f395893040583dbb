// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The main job: what is gone goes, what lives stays, what is left alone is told, and a second run has nothing to do.
func TestApplyCommand(t *testing.T) {
	s := newScene(t, "apply-main", 4)
	s.start("reflector", "")
	s.leave("1")
	live := s.left("2")
	journal := t.TempDir()
	before := s.etcd.Revision(t)
	if code, out := s.run("apply", "--grace-period=0s"); code != 1 || out != "error: "+errNoTerminal.Error()+"\n" {
		t.Errorf("without anybody to ask: got exit code %d and %q", code, out)
	}
	s.expectRevision(before, "without anybody to ask")

	code, out := s.run("apply", "--grace-period=0s", "--yes", "--journal-dir", journal)
	if code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	gone := s.name("1")
	inOrder(t, out, "the datastore: no cluster is recorded yet", "  done: record that this datastore belongs to", gone+": Kubernetes Node "+gone+" is gone: ",
		"fence Calico Node "+gone, "remove 1 workload endpoint of "+gone, "remove Calico Node "+gone, "\n7 steps applied, 1 machine left alone\n",
		"left alone: "+s.name("reflector")+": it has no orchRef", "(no-identity)\n")
	if keys := s.left("1"); len(keys) > 0 {
		t.Errorf("of the machine that is gone there is still %v", keys)
	}
	if keys := s.left("2"); len(keys) != len(live) {
		t.Errorf("of an existing machine there is %v, want %v", keys, live)
	}
	if files, err := filepath.Glob(filepath.Join(journal, "*"+gone+".json")); err != nil || len(files) != 1 {
		t.Errorf("journal: %v (%v), want one file", files, err)
	}
	before = s.etcd.Revision(t)
	if code, out := s.run("apply", "--grace-period=0s", "--yes"); code != 0 || !strings.HasPrefix(out, "0 steps applied, 1 machine left alone\n") {
		t.Errorf("again: got exit code %d and %q", code, out)
	}
	s.expectRevision(before, "again")
}

// inOrder fails unless the text holds the parts, one after another.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		i := strings.Index(rest, part)
		if i < 0 {
			t.Errorf("%q is missing, or not where it should be, in:\n%s", part, text)
			return
		}
		rest = rest[i+len(part):]
	}
}

// The documents of -o json, and the grace period, which is waited out.
func TestApplyCommandInJSON(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-json", 3)
	s.leave("0")
	code, out := s.run("apply", "--grace-period=2s", "--yes", "--journal=none", "-o", "json")
	if code != 0 {
		t.Errorf("got exit code %d, want 0", code)
	}
	var types []string
	var records []record
	for line := range strings.Lines(out) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q is not JSON: %v", line, err)
		}
		records = append(records, r)
		if len(types) == 0 || types[len(types)-1] != r.Type {
			types = append(types, r.Type)
		}
	}
	if got := strings.Join(types, " "); got != "waiting step summary" {
		t.Fatalf("got documents of types %q", got)
	}
	first, last := records[0], records[len(records)-1]
	if first.Until == nil || len(first.Machines) != 1 || first.Machines[0] != s.name("0") {
		t.Errorf("waiting: got %+v", first)
	}
	for _, r := range records[2 : len(records)-1] {
		if r.Outcome != "done" || r.Host != s.name("0") || r.KubernetesNode != s.name("0") || !strings.Contains(r.Because, "absent for ") || r.Kind == "" || r.Step == "" {
			t.Errorf("step: got %+v", r)
		}
	}
	if last.Verdict != "done" || last.StepsApplied == nil || *last.StepsApplied != len(records)-2 || last.MachinesLeft == nil || *last.MachinesLeft != 0 {
		t.Errorf("summary: got %+v", last)
	}
}

// The hash that plan prints is good for the apply that follows, and no other is good for anything.
func TestApplyCommandConfirmsByHash(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-mass", 9)
	s.leave("0", "1", "2", "3")
	// What needs no confirmation is done all the same: here, that the cluster is recorded.
	if code, out := s.run("apply", "--grace-period=0s", "--yes"); code != command.ExitAttention || !strings.Contains(out, "1 step applied, 4 machines left alone") {
		t.Errorf("the first apply: got exit code %d and %q", code, out)
	} else if strings.Count(out, "left alone: ") != 1 || !strings.Contains(out, "left alone: "+s.name("0")+", "+s.name("1")+", ") {
		t.Errorf("one reason is told more than once: %q", out)
	}
	before := s.etcd.Revision(t)
	code, out := s.run("plan", "--grace-period=0s")
	found := regexp.MustCompile(`run apply with --confirm=([0-9a-f]{12})`).FindStringSubmatch(out)
	if code != command.ExitAttention || found == nil {
		t.Fatalf("plan: got exit code %d and no hash in %q", code, out)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no hash":           {nil, command.ExitAttention, "--confirm=" + found[1]},
		"a foreign hash":    {[]string{"--confirm=0123456789ab"}, command.ExitAttention, `the confirmation is for "0123456789ab", which are other nodes`},
		"no hash at all":    {[]string{"--confirm=yes"}, 1, `--confirm "yes" is not a hash`},
		"an unknown output": {[]string{"-o", "yaml"}, 1, "use one of text, json"},
	} {
		args := append([]string{"--grace-period=0s", "--yes"}, c.args...)
		if code, out := s.run("apply", args...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: got exit code %d and %q, want %d and %q", name, code, out, c.code, c.want)
		}
		s.expectRevision(before, name)
	}
	namespace := "--leader-election-namespace=" + newNamespace(t, s.cluster, "apply-mass")
	if code, again := s.run("plan", "--grace-period=0s", namespace); code != command.ExitAttention || !strings.Contains(again, found[0]) {
		t.Errorf("plan where no controller has been: got exit code %d and %q, want the same hash", code, again)
	}
	s.expectRevision(before, "plan with a namespace")
	if code, out := s.run("apply", "--dry-run", "--grace-period=0s", "--confirm="+found[1], namespace); code != command.ExitAttention || strings.Contains(out, "--confirm=") ||
		!strings.Contains(out, "remove Calico Node "+s.name("3")) {
		t.Errorf("a dry run with the right hash: got exit code %d and %q", code, out)
	}
	s.expectRevision(before, "a dry run with the right hash")
	code, out = s.run("apply", "--grace-period=0s", "--yes", "--confirm="+found[1], namespace)
	if code != 0 || !strings.Contains(out, "24 steps applied, 0 machines left alone") {
		t.Errorf("the right hash: got exit code %d and %q", code, out)
	}
}

// interactive is an apply of the scene with somebody at the terminal.
func (s *scene) interactive(answer string) (*applyCommand, *bytes.Buffer) {
	s.t.Helper()
	s.t.Setenv("ETCD_ENDPOINTS", s.etcd.Endpoint)
	o := newOptions()
	o.manager.Kubeconfig, o.settings.Config.Grace, o.settings.Config.Pace = s.cluster.Kubeconfig, 0, time.Second
	var out bytes.Buffer
	return &applyCommand{
		options: o, output: screen.NewFormat(screen.Text), in: strings.NewReader(answer), terminal: true, out: &out, errs: &out, clock: clock.RealClock{},
	}, &out
}

func TestApplyAsksBeforeItWrites(t *testing.T) { //nolint:paralleltest // it sets the environment
	s := newScene(t, "apply-ask", 3)
	s.leave("0")
	for _, answer := range []string{"no\n", "", "yes please\n"} {
		before := s.etcd.Revision(t)
		apply, out := s.interactive(answer)
		if err := apply.run(t.Context()); !errors.Is(err, errDeclined) || command.Code(err) != 1 {
			t.Errorf("answer %q: got %v, want it to be a no", answer, err)
		}
		inOrder(t, out.String(), "fence Calico Node "+s.name("0"), "nothing is saved for the restore command", "apply these 7 steps? yes/no: ",
			"declined: 0 steps applied")
		s.expectRevision(before, "answer "+answer)
	}
	apply, out := s.interactive("Yes\n")
	if err := apply.run(t.Context()); err != nil {
		t.Errorf("a yes: got %v", err)
	}
	inOrder(t, out.String(), "apply these 7 steps? yes/no: ", "7 steps applied, 0 machines left alone")
	if keys := s.left("0"); len(keys) > 0 {
		t.Errorf("after a yes there is still %v", keys)
	}
}

// A machine that vanishes after the plan was shown is not touched.
func TestApplyTouchesOnlyWhatItHasShown(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-shown", 5)
	s.leave("0")
	e, out := s.errand()
	must.Do(t, e.run(t.Context(), func(context.Context, *account, nodesync.Plan) error {
		s.leave("1")
		return nil
	}))
	if keys := s.left("0"); len(keys) > 0 {
		t.Errorf("of what was shown there is still %v", keys)
	}
	if keys := s.left("1"); len(keys) < 5 || strings.Contains(s.etcd.Dump(t)["/calico/resources/v3/projectcalico.org/nodes/"+s.name("1")], nodesync.FenceAnnotation) {
		t.Errorf("of what was not shown there is only %v, or it is fenced", keys)
	}
	left := e.leftAlone()
	if len(left) == 0 || left[0].Of.Host != s.name("1") || !nodesync.Held(left) {
		t.Errorf("left alone: got %v, want %s", left, s.name("1"))
	}
	if strings.Contains(out.String(), s.name("1")) {
		t.Errorf("told as if it had been tried:\n%s", out)
	}
}

// errand is the work of an apply of the scene.
func (s *scene) errand() (*errand, *bytes.Buffer) {
	s.t.Helper()
	store := must.Get(calico.OpenEtcd(calico.EtcdConfig{Endpoints: []string{s.etcd.Endpoint}})).Or(s.t)
	s.t.Cleanup(func() { _ = store.Close() })
	config := nodesync.DefaultConfig()
	config.Grace, config.Pace = 0, time.Second
	var out bytes.Buffer
	return &errand{
		config: config, store: store, cluster: controller.ReadOnce(reader(s.t, s.cluster), clock.RealClock{}),
		account: newAccount(&out, &out, screen.Text), clock: clock.RealClock{}, notes: &notebook{clock: clock.RealClock{}}, patience: 2 * time.Second,
	}, &out
}

func agreed(context.Context, *account, nodesync.Plan) error { return nil }

// signaled is a datastore during whose n-th write a signal comes.
type signaled struct {
	controller.Datastore
	mu     sync.Mutex
	writes int
	at     int
	signal func()
}

func (d *signaled) count() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writes++; d.writes == d.at {
		d.signal()
	}
}

func (d *signaled) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (int64, error) {
	d.count()
	return d.Datastore.AnnotateNode(ctx, name, revision, annotation, value)
}

func (d *signaled) AnnotateClusterInformation(ctx context.Context, revision int64, annotation, value string) error {
	d.count()
	return d.Datastore.AnnotateClusterInformation(ctx, revision, annotation, value)
}

func (d *signaled) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	d.count()
	return d.Datastore.DeleteEndpoints(ctx, guard, endpoints)
}

func (d *signaled) DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error {
	d.count()
	return d.Datastore.DeleteResource(ctx, guard, kind, name, revision)
}

// A signal ends it between two writes: the one that has begun is done and told, the next is not begun, and another apply goes on.
func TestApplyIsInterruptedBetweenWrites(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-signal", 3)
	s.leave("0")
	ctx, cancel := context.WithCancelCause(t.Context())
	e, out := s.errand()
	e.store = &signaled{Datastore: e.store, at: 3, signal: func() { cancel(command.SignalError{Signal: syscall.SIGTERM}) }}
	before := s.etcd.Revision(t)
	err := (&applyCommand{}).finish(ctx, e, e.run(ctx, agreed))
	if want := (command.SignalError{Signal: syscall.SIGTERM}); !errors.Is(err, want) {
		t.Errorf("got %v, want the signal", err)
	}
	s.expectRevision(before+3, "three writes")
	inOrder(t, out.String(), "  done: remove FelixConfiguration node."+s.name("0"), "interrupted: 3 steps applied, 1 machine left alone\n",
		"left alone: "+s.name("0")+": 4 steps of the plan are not done yet: run apply again")
	if strings.Contains(out.String(), "failed") {
		t.Errorf("something is told as failed:\n%s", out)
	}
	if code, out := s.run("apply", "--grace-period=0s", "--yes"); code != 0 || !strings.Contains(out, "4 steps applied, 0 machines left alone") {
		t.Errorf("the next apply: got exit code %d and %q", code, out)
	}
}

// A signal while it waits, to the program itself.
func TestApplyIsInterruptedWhileItWaits(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-wait", 3)
	s.leave("0")
	before := s.etcd.Revision(t)
	env := append(s.env(), asProgram+"=1")
	process := testkit.Start(t, filepath.Join(t.TempDir(), "log"), env, os.Args[0], "apply", "--kubeconfig", s.cluster.Kubeconfig, "--grace-period=1h", "--yes")
	testkit.Eventually(t, "it to wait", func() string {
		if strings.Contains(process.Output(), "waiting until ") {
			return ""
		}
		return "not yet: " + process.Output()
	})
	process.Stop() // by SIGTERM
	if code := process.ExitCode(); code != 143 {
		t.Errorf("got exit code %d, want 143", code)
	}
	inOrder(t, process.Output(), "waiting until ", " for the grace period of 1 machine, which --grace-period=0s skips: "+s.name("0")+"\n",
		"interrupted: 0 steps applied, 1 machine left alone\n", "left alone: "+s.name("0")+": absent since ", "(grace)\n")
	s.expectRevision(before, "interrupted")
}

// broken is a journal that cannot be written.
type broken struct{}

func (broken) Record(context.Context, controller.Entry) error { return errors.New("the disk is full") }

// What cannot be done is told once for each try, given up after a time, and is an error.
func TestApplyGivesUp(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-broken", 3)
	s.leave("0")
	e, out := s.errand()
	e.journal = broken{}
	before := s.etcd.Revision(t)
	err := (&applyCommand{}).finish(t.Context(), e, e.run(t.Context(), agreed))
	if command.Code(err) != 1 || !strings.Contains(err.Error(), "not everything of 1 machine could be removed") {
		t.Errorf("got %v", err)
	}
	inOrder(t, out.String(), "failed: fence Calico Node "+s.name("0")+": the disk is full", "1 step applied, 1 machine left alone", "(step-failed)")
	s.expectRevision(before+1, "but for the cluster, which is recorded")
}

// A look that was slow may have begun before the grace periods ended and come back after: what it saw is not yet what is asked about.
func TestApplyLooksAfterTheGracePeriods(t *testing.T) {
	t.Parallel()
	end := time.Unix(1000, 0)
	for _, look := range []struct {
		began time.Duration
		want  bool
	}{{-time.Millisecond, true}, {0, false}, {time.Millisecond, false}} {
		w := waits{graceEnds: end, looked: end.Add(look.began)}
		if wait := w.next(&errand{}, end.Add(time.Second)); (wait > 0) != look.want {
			t.Errorf("the last look began %s after the end: waits %s, want another look: %v", look.began, wait, look.want)
		}
	}
}
