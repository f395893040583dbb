// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a child of the test, in a process group of its own.
type Process struct {
	cmd   *exec.Cmd
	log   string
	stdin io.Closer
	done  chan struct{}
}

// spawn hands starts to one goroutine whose thread lives as long as the process: the parent-death signal of a child is sent when the
// thread that forked it ends (prctl(2), PR_SET_PDEATHSIG).
var spawn = sync.OnceValue(func() chan<- func() { //nolint:gochecknoglobals // one thread per process, started at first use
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// GarbageVariable tells a Go program how often to collect garbage (package runtime). Test binaries may have been given an unusual value.
const GarbageVariable = "GOGC"

// Start runs a program with its output in a file, which is shown when the test fails. Its standard input stays open until Stop. It collects garbage as
// it does in production, whatever the test binary was told, unless env says otherwise.
func Start(tb testing.TB, logFile string, env []string, program string, args ...string) *Process {
	tb.Helper()
	log := must.Get(os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)).Or(tb)
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, args...) //nolint:noctx // its life is ended by Stop and by the parent-death signal
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, GarbageVariable+"=") })
	cmd.Env = append(inherited, env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin := must.Get(cmd.StdinPipe()).Or(tb)
	started := make(chan error)
	spawn() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		tb.Fatalf("starting %s: %v", program, err)
	}
	p := &Process{cmd: cmd, log: logFile, stdin: stdin, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p
}

// Kill ends the process as kill -9 does and waits until it is gone.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Stop asks the process to end, and kills it when it does not within 20 seconds.
func (p *Process) Stop() {
	_ = syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM)
	_ = p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.Kill()
	}
}

// Signal sends the process a signal, such as SIGSTOP.
func (p *Process) Signal(signal syscall.Signal) { _ = syscall.Kill(p.cmd.Process.Pid, signal) }

// PauseProcess stops a process of that number as SIGSTOP does, and returns when each of its threads has stopped.
func PauseProcess(tb testing.TB, pid int) {
	tb.Helper()
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	Eventually(tb, fmt.Sprintf("process %d to stop", pid), func() string {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(tasks) == 0 {
			return fmt.Sprintf("its threads are unknown: %v", err)
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			if err != nil {
				return err.Error()
			}
			// The state follows the name, which is in brackets (proc(5)).
			if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
				return "a thread runs: " + string(stat)
			}
		}
		return ""
	})
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is the exit code after Done, -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Output is what the process has written so far.
func (p *Process) Output() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	return string(data)
}

// Eventually polls until the condition returns "", and fails the test with the last thing it returned when that takes longer than five
// minutes, a bound that only a hang exceeds, also where other work keeps all processors busy.
// It polls less often the longer it takes.
func Eventually(tb testing.TB, what string, condition func() string) {
	tb.Helper()
	began := time.Now()
	for {
		state := condition()
		if state == "" {
			return
		}
		if time.Since(began) > 5*time.Minute {
			tb.Fatalf("waited in vain for %s: %s", what, state)
		}
		select {
		case <-tb.Context().Done():
			tb.Fatalf("stopped while waiting for %s: %s", what, state)
		case <-time.After(pause(time.Since(began))):
		}
	}
}

// pause is how long a poll waits after it has polled for a time: an eighth of it, so that what is measured is out by that much at most, and 50 to
// 500 ms.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/8, 50*time.Millisecond), 500*time.Millisecond)
}

// PeakMemory is the most memory that the process has had resident, in bytes (proc(5), VmHWM). Where there is no /proc, it skips the test.
func (p *Process) PeakMemory(tb testing.TB) int64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		Skip(tb, "it needs /proc: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kilobytes := must.Get(strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)).Or(tb)
			return kilobytes << 10
		}
	}
	tb.Fatalf("no VmHWM in %s", text)
	return 0
}
