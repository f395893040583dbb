// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/process"
)

// settleTime is how long a process without a probe must run to count as ready: long enough for a wrong flag to end it.
const settleTime = time.Second

// keeper keeps one process running.
type keeper struct {
	*supervisor
	blueprint.Process
	dependencies, dependants []*keeper

	// ready is closed when the process is ready for the first time; stopped when it will never run again.
	ready, stopped chan struct{}
	status         Status // guarded by supervisor.mu
}

// run returns nil when the process was stopped, or has done its work; a *StartError when it does not come up.
func (k *keeper) run(ctx context.Context) error {
	defer close(k.stopped)
	defer k.change(k, func(s *Status) {
		if s.State != Done {
			s.State, s.Identity, s.Since = Stopped, process.Identity{}, time.Now()
		}
	})
	for _, dependency := range k.dependencies {
		select {
		case <-dependency.ready:
		case <-ctx.Done():
			return nil
		}
	}
	deadline := time.Now().Add(k.Patience)
	pause := k.FirstPause
	for early := 0; ; {
		readyFor, exit := k.once(ctx, deadline)
		switch {
		case ctx.Err() != nil, exit.done:
			return nil
		case !k.wasReady():
			early++
			if exit.impossible || early >= k.MaxEarlyExits || time.Now().After(deadline) {
				return &StartError{Process: k.Name, Log: k.Log, Cause: exit.how}
			}
		case readyFor > k.MaxPause:
			pause = k.FirstPause
		}
		k.Logger.Info("Process ended", "process", k.Name, "how", exit.how, "restartIn", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, k.MaxPause)
		k.change(k, func(s *Status) { s.Restarts++ })
	}
}

func (k *keeper) wasReady() bool {
	select {
	case <-k.ready:
		return true
	default:
		return false
	}
}

// exit is how a process ended.
type exit struct {
	how string
	// done reports that it ran once and has done its work.
	done bool
	// impossible reports that another attempt would end the same way.
	impossible bool
}

// once runs the process until it ends or must stop. It returns for how long the process was ready.
func (k *keeper) once(ctx context.Context, deadline time.Time) (time.Duration, exit) {
	prepareProbe(k.Ready)
	command, err := k.spawner.start(k.supervisor, k.Process)
	if err != nil {
		k.change(k, func(s *Status) { s.State, s.Since, s.LastExit = Down, time.Now(), err.Error() })
		return 0, exit{how: err.Error(), impossible: true}
	}
	// The child is not reaped yet, so the id is its own even if it has ended already; then there is no identity to remember.
	identity, _ := process.Of(command.Process.Pid)
	k.change(k, func(s *Status) { s.State, s.Identity, s.Since = Starting, identity, time.Now() })

	ended := make(chan struct{})
	var waitErr error
	go func() {
		defer close(ended)
		waitErr = wait(command)
	}()
	readySince, late := k.watch(ctx, ended, deadline)
	if ctx.Err() != nil {
		k.awaitDependants()
	}
	k.stop(command, ended)
	<-ended

	result := exit{how: describe(command, waitErr), done: k.Once && waitErr == nil && !late && ctx.Err() == nil}
	if late {
		result.how = fmt.Sprintf("it was not ready within %v", k.Patience)
	}
	state := Down
	if result.done {
		state = Done
	}
	k.change(k, func(s *Status) {
		s.State, s.Identity, s.Since, s.LastExit = state, process.Identity{}, time.Now(), result.how
	})
	if result.done {
		close(k.ready)
	}
	if readySince.IsZero() {
		return 0, result
	}
	return time.Since(readySince), result
}

// watch returns when the process has ended, must stop, or is late for its first readiness; and since when it was ready.
func (k *keeper) watch(ctx context.Context, ended <-chan struct{}, deadline time.Time) (readySince time.Time, late bool) {
	probing, stopProbing := context.WithCancel(ctx)
	defer stopProbing()
	answered := make(chan struct{})
	if !k.Once {
		go func() {
			if probe(probing, k.Ready) == nil {
				close(answered)
			}
		}()
	}
	var expired <-chan time.Time
	if !k.wasReady() {
		expired = time.After(time.Until(deadline))
	}
	for {
		select {
		case <-answered:
			answered, expired, readySince = nil, nil, time.Now()
			k.change(k, func(s *Status) { s.State = Ready })
			if !k.wasReady() {
				close(k.ready)
			}
		case <-ended:
			return readySince, false
		case <-ctx.Done():
			return readySince, false
		case <-expired:
			return readySince, true
		}
	}
}

// awaitDependants waits until nothing needs this process any more. Each of them ends within its own StopGrace.
func (k *keeper) awaitDependants() {
	for _, dependant := range k.dependants {
		<-dependant.stopped
	}
}

// stop ends the process if it still runs: politely, then not.
func (k *keeper) stop(command *exec.Cmd, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	default:
	}
	// An error means that it has just ended.
	_ = command.Process.Signal(unix.SIGTERM)
	select {
	case <-ended:
	case <-time.After(k.StopGrace):
		k.Logger.Warn("Process does not end, killing it", "process", k.Name)
		_ = command.Process.Kill()
	}
}

func describe(command *exec.Cmd, waitErr error) string {
	if command.ProcessState != nil {
		return command.ProcessState.String()
	}
	return fmt.Sprint(waitErr)
}
