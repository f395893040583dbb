// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Starter starts a command in a pod's network namespace, from a thread that lives as long as the pod: netns.Namespace is one.
type Starter interface {
	Start(command *exec.Cmd) error
}

// Exit is how a program ended.
type Exit struct {
	// Code is the exit code, 128 and the signal's number if a signal ended it, and StartFailed if it never ran; Problem says why then.
	Code    int
	Signal  int
	Problem string
	At      time.Time
}

// StartFailed is the exit code of a program that could not be started, as container runtimes have it.
const StartFailed = 128

// Process is a program that was started. Its methods may be called by any goroutine.
type Process struct {
	command *exec.Cmd
	done    chan struct{}
	exit    Exit // before done is closed nobody may read it
}

// Launcher is how to run Launch in a process of its own: a program and the arguments before the path of the spec.
type Launcher []string

// Start writes the spec to specFile and starts the program, its output appended to log, which stays the caller's. It returns when the program runs, or
// will not: what the launcher finds wrong is told by the Exit, since it is a matter of the container.
func Start(starter Starter, launcher Launcher, spec Spec, specFile string, log *os.File) (*Process, error) {
	content, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("describing a container: %w", err)
	}
	if err := os.WriteFile(specFile, content, 0o600); err != nil {
		return nil, fmt.Errorf("describing a container: %w", err)
	}
	report, reportIn, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	alive, aliveIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a pipe: %w", err), report.Close(), reportIn.Close())
	}
	command := &exec.Cmd{
		Path: launcher[0], Args: append(append([]string{}, launcher...), specFile), Env: []string{}, Dir: "/",
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{reportIn, alive},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			Setsid:     true,
			Pdeathsig:  syscall.SIGKILL,
		},
	}
	err = starter.Start(command)
	_, _ = reportIn.Close(), alive.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a container: %w", err), report.Close(), aliveIn.Close())
	}
	// The report ends when the launcher has become the program, or with the launcher. Before that the program could not hear a signal.
	problem, _ := io.ReadAll(report) // a pipe of our own; if it breaks, the exit code is left
	_ = report.Close()
	p := &Process{command: command, done: make(chan struct{})}
	go p.wait(string(problem), aliveIn)
	return p, nil
}

// wait waits for the end.
func (p *Process) wait(problem string, alive io.Closer) {
	err := p.command.Wait()
	_ = alive.Close()
	exit := Exit{At: time.Now()}
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case problem != "":
		exit.Code, exit.Problem = StartFailed, problem
	case ok && status.Signaled():
		exit.Signal = int(status.Signal())
		exit.Code = 128 + exit.Signal
	case ok:
		exit.Code = status.ExitStatus()
	default:
		exit.Code, exit.Problem = StartFailed, fmt.Sprint(err)
	}
	p.exit = exit
	close(p.done)
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit says how it ended; ok is false while it runs.
func (p *Process) Exit() (exit Exit, ok bool) {
	select {
	case <-p.done:
		return p.exit, true
	default:
		return Exit{}, false
	}
}

// PID is its number outside of its namespace.
func (p *Process) PID() int { return p.command.Process.Pid }

// Signal sends it a signal. As the first of its PID namespace it ignores those that it has no handler for, but for SIGKILL (pid_namespaces(7)). A
// program that has ended is no error.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %v: %w", signal, err)
	}
	return nil
}
