// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package supervisor_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/process"
	"github.com/mooring-dev/mooring/lab/internal/supervisor"
)

// roleVariable makes the test binary play a child, or a supervisor that is going to be killed, instead of running tests.
const roleVariable = "MOORING_TEST_ROLE"

func TestMain(m *testing.M) {
	role, argument, _ := strings.Cut(os.Getenv(roleVariable), ":")
	switch role {
	case "":
		os.Exit(m.Run())
	case "obedient": // ends on SIGTERM and says so in its log
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		writeReady(argument)
		<-signals
		fmt.Println("obeyed")
	case "stubborn": // does not end on SIGTERM
		signal.Ignore(syscall.SIGTERM)
		writeReady(argument)
		time.Sleep(time.Hour)
	case "parent": // leaves a child of its own in its process group, and its pid in the log
		child := exec.Command(os.Args[0])
		child.Env = []string{roleVariable + "=stubborn"}
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Println(child.Process.Pid)
		writeReady(argument)
	case "exit":
		code, _ := strconv.Atoi(argument)
		os.Exit(code)
	case "supervisor":
		playSupervisor(argument)
	}
}

func writeReady(path string) {
	if path != "" {
		_ = os.WriteFile(path, []byte("ready"), 0o600)
	}
}

// child describes a process that plays a role and says through a file when it is ready.
func child(dir, name, role string, dependsOn ...string) blueprint.Process {
	ready := filepath.Join(dir, name+".ready")
	return blueprint.Process{
		Name: name, Env: []string{roleVariable + "=" + role + ":" + ready}, DependsOn: dependsOn,
		Ready: blueprint.Readiness{File: ready}, Log: filepath.Join(dir, name+".log"),
	}
}

// lab is a supervisor under test.
type lab struct {
	t      *testing.T
	dir    string
	cancel context.CancelFunc
	ready  chan struct{}
	ended  chan error

	mu       sync.Mutex
	statuses map[string]supervisor.Status
	order    []string // names in the order in which they were stopped
}

func start(t *testing.T, dir string, change func(*supervisor.Config), processes ...blueprint.Process) *lab {
	t.Helper()
	executable := must.Get(os.Executable()).Or(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l := &lab{t: t, dir: dir, cancel: cancel, ready: make(chan struct{}), ended: make(chan error, 1), statuses: map[string]supervisor.Status{}}
	config := supervisor.DefaultConfig()
	config.Processes, config.Executable, config.Dir = processes, executable, dir
	config.FirstPause, config.MaxPause = 10*time.Millisecond, 100*time.Millisecond
	config.OnChange = l.record
	change(&config)
	go func() { l.ended <- supervisor.Run(ctx, config, func() { close(l.ready) }) }()
	t.Cleanup(cancel)
	return l
}

func unchanged(*supervisor.Config) {}

func (l *lab) record(statuses []supervisor.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range statuses {
		if s.State == supervisor.Stopped && l.statuses[s.Name].State != supervisor.Stopped {
			l.order = append(l.order, s.Name)
		}
		l.statuses[s.Name] = s
	}
}

func (l *lab) status(name string) supervisor.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.statuses[name]
}

func (l *lab) awaitReady() {
	l.t.Helper()
	select {
	case <-l.ready:
	case err := <-l.ended:
		l.t.Fatalf("the supervisor ended: %v", err)
	case <-time.After(time.Minute):
		l.t.Fatal("not ready after a minute")
	}
}

func (l *lab) stop() error {
	l.t.Helper()
	l.cancel()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(time.Minute):
		l.t.Fatal("not stopped after a minute")
		return nil
	}
}

// await polls until ok, or fails the test.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestStartsInOrderAndStopsInReverse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := start(t, dir, unchanged,
		child(dir, "a", "obedient"), child(dir, "b", "obedient", "a"), child(dir, "c", "obedient", "a", "b"))
	l.awaitReady()
	a, b, c := l.status("a"), l.status("b"), l.status("c")
	if a.Since.After(b.Since) || b.Since.After(c.Since) {
		t.Errorf("started at %v, %v, %v", a.Since, b.Since, c.Since)
	}
	if err := l.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	if got := strings.Join(l.order, " "); got != "c b a" {
		t.Errorf("stopped in the order %s", got)
	}
	for _, s := range []supervisor.Status{a, b, c} {
		if s.Identity.Alive() {
			t.Errorf("%s outlived the supervisor", s.Name)
		}
		log, err := os.ReadFile(filepath.Join(dir, s.Name+".log"))
		if err != nil || string(log) != "obeyed\n" {
			t.Errorf("log of %s: %q, %v", s.Name, log, err)
		}
	}
}

func TestRestartsWhatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := start(t, dir, unchanged, child(dir, "a", "obedient"))
	l.awaitReady()
	for i := range 3 {
		before := l.status("a")
		must.Do(t, before.Identity.Signal(unix.SIGKILL))
		await(t, "a restart", func() bool {
			now := l.status("a")
			return now.State == supervisor.Ready && now.Identity != before.Identity
		})
		if now := l.status("a"); now.Restarts != i+1 || now.LastExit != "signal: killed" {
			t.Errorf("after kill number %d: %+v", i+1, now)
		}
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

func TestStubbornProcessIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := start(t, dir, func(c *supervisor.Config) { c.StopGrace = 50 * time.Millisecond }, child(dir, "a", "stubborn"))
	l.awaitReady()
	identity := l.status("a").Identity
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	if identity.Alive() {
		t.Error("it still runs")
	}
}

func TestFailedStartStopsEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := child(dir, "b", "exit", "a")
	broken.Env = []string{roleVariable + "=exit:3"}
	l := start(t, dir, unchanged, child(dir, "a", "obedient"), broken, child(dir, "c", "obedient", "b"))
	err := <-l.ended
	var failed *supervisor.StartError
	if !errors.As(err, &failed) || failed.Process != "b" || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error: %v", err)
	}
	if l.status("a").State != supervisor.Stopped || l.status("c").Restarts != 0 {
		t.Errorf("statuses: %+v", l.statuses)
	}
}

func TestMissingProgramIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := child(dir, "a", "obedient")
	missing.Program = filepath.Join(dir, "nothing")
	l := start(t, dir, unchanged, missing)
	if err := <-l.ended; err == nil || l.status("a").Restarts != 0 {
		t.Errorf("error %v after %d restarts", err, l.status("a").Restarts)
	}
}

func TestNeverReadyIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mute := child(dir, "a", "obedient")
	mute.Env = []string{roleVariable + "=obedient"}
	l := start(t, dir, func(c *supervisor.Config) { c.Patience = 100 * time.Millisecond }, mute)
	if err := <-l.ended; err == nil || !strings.Contains(err.Error(), "not ready within") {
		t.Errorf("error: %v", err)
	}
}

func TestProcessThatRunsOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	once := child(dir, "a", "exit")
	once.Env, once.Once, once.Ready = []string{roleVariable + "=exit:0"}, true, blueprint.Readiness{}
	l := start(t, dir, unchanged, once, child(dir, "b", "obedient", "a"))
	l.awaitReady()
	if got := l.status("a"); got.State != supervisor.Done || got.Restarts != 0 {
		t.Errorf("status: %+v", got)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

func TestProcessGroupGoesWithItsLeader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	once := child(dir, "a", "parent")
	once.Once = true
	l := start(t, dir, unchanged, once)
	l.awaitReady()
	log := must.Get(os.ReadFile(filepath.Join(dir, "a.log"))).Or(t)
	pid := must.Get(strconv.Atoi(strings.TrimSpace(string(log)))).Or(t)
	await(t, "the grandchild to go", func() bool {
		_, err := process.Of(pid)
		return errors.Is(err, process.ErrGone)
	})
	if err := l.stop(); err != nil {
		t.Error(err)
	}
}

// playSupervisor supervises two children, prints their identities and waits to be killed.
func playSupervisor(dir string) {
	executable, err := os.Executable()
	if err != nil {
		os.Exit(1)
	}
	config := supervisor.DefaultConfig()
	config.Processes = []blueprint.Process{child(dir, "a", "obedient"), child(dir, "b", "stubborn", "a")}
	config.Executable, config.Dir = executable, dir
	var last []supervisor.Status
	config.OnChange = func(statuses []supervisor.Status) { last = statuses }
	_ = supervisor.Run(context.Background(), config, func() {
		for _, s := range last {
			fmt.Println(s.Identity.PID, s.Identity.StartTime, s.Identity.Boot)
		}
		fmt.Println("ready")
	})
}

func TestChildrenDieWithAKilledSupervisor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	executable := must.Get(os.Executable()).Or(t)
	command := exec.CommandContext(t.Context(), executable)
	command.Env = append(os.Environ(), roleVariable+"=supervisor:"+dir)
	output := must.Get(command.StdoutPipe()).Or(t)
	must.Do(t, command.Start())
	var children []process.Identity
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "ready" {
		var identity process.Identity
		if _, err := fmt.Sscan(lines.Text(), &identity.PID, &identity.StartTime, &identity.Boot); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		children = append(children, identity)
	}
	if len(children) != 2 {
		t.Fatalf("children: %v", children)
	}
	for _, identity := range children {
		if !identity.Alive() {
			t.Errorf("child %d does not run", identity.PID)
		}
	}
	must.Do(t, command.Process.Kill())
	_ = command.Wait() // it was killed
	for _, identity := range children {
		await(t, "a child to die with its supervisor", func() bool { return !identity.Alive() })
	}
}
