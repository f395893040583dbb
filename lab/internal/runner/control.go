// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/process"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
)

const (
	// stopPatience is how long a supervisor may take to stop everything before it is killed; its children then die with it.
	stopPatience = time.Minute
	// killPatience is how long a process may take to be gone after SIGKILL.
	killPatience = 10 * time.Second
)

// NotRunningError reports that no lab runs in a folder.
type NotRunningError struct{ Dir string }

// Error implements error.
func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no lab runs in %s; start one with `lab up --dir %s`", e.Dir, e.Dir)
}

// Inspect returns the state of the lab that runs in the folder, or a *NotRunningError.
func Inspect(layout blueprint.Layout) (folder.State, error) {
	busy, err := folder.Busy(layout)
	if err != nil {
		return folder.State{}, err
	}
	if !busy {
		return folder.State{}, &NotRunningError{Dir: layout.Dir}
	}
	var state folder.State
	err = folder.ReadJSON(layout.StateFile(), &state)
	if errors.Is(err, fs.ErrNotExist) {
		return folder.State{}, &NotRunningError{Dir: layout.Dir} // between taking the lock and writing the first state
	}
	return state, err
}

// Down stops the lab of the folder, whatever state it is in, and returns what it had to stop. It is idempotent.
func Down(ctx context.Context, layout blueprint.Layout) ([]string, error) {
	var stopped []string
	state, err := Inspect(layout)
	var notRunning *NotRunningError
	switch {
	case errors.As(err, &notRunning):
	case err != nil:
		return nil, err
	default:
		if err := stopSupervisor(ctx, state.Supervisor); err != nil {
			return nil, err
		}
		for _, process := range state.Processes {
			if process.PID != 0 {
				stopped = append(stopped, process.Name)
			}
		}
	}
	left, err := clearLeftovers(ctx, layout)
	if err != nil {
		return stopped, err
	}
	for _, name := range left {
		if !slices.Contains(stopped, name) {
			stopped = append(stopped, name)
		}
	}
	return stopped, nil
}

func stopSupervisor(ctx context.Context, supervisor process.Identity) error {
	err := supervisor.Signal(unix.SIGTERM)
	if errors.Is(err, process.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stopping the supervisor: %w", err)
	}
	if waitGone(ctx, supervisor, stopPatience) == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return kill(ctx, "the supervisor", supervisor)
}

// clearLeftovers ends what a crashed supervisor may have left running and removes the files that speak of it. The caller knows that no
// supervisor runs. Children die with their supervisor by themselves; this is for the case that one could not.
func clearLeftovers(ctx context.Context, layout blueprint.Layout) ([]string, error) {
	var state folder.State
	err := folder.ReadJSON(layout.StateFile(), &state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var left []string
	for _, p := range state.Processes {
		identity := state.Identities[p.Name]
		if !identity.Alive() {
			continue
		}
		if err := kill(ctx, p.Name, identity); err != nil {
			return left, err
		}
		left = append(left, p.Name)
	}
	return left, errors.Join(cgroup.Remove(ctx, cgroup.Root(layout.Dir)), forget(layout))
}

func kill(ctx context.Context, name string, identity process.Identity) error {
	err := identity.Signal(unix.SIGKILL)
	if err != nil && !errors.Is(err, process.ErrGone) {
		return fmt.Errorf("killing %s: %w", name, err)
	}
	if err := waitGone(ctx, identity, killPatience); err != nil {
		return fmt.Errorf("%s (process %d) is not gone after SIGKILL: %w", name, identity.PID, err)
	}
	return nil
}

func waitGone(ctx context.Context, identity process.Identity, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return identity.WaitGone(ctx)
}

// Kill sends SIGKILL to one process of the running lab; the supervisor starts it again.
func Kill(layout blueprint.Layout, name string) (pid int, err error) {
	state, err := Inspect(layout)
	if err != nil {
		return 0, err
	}
	identity, ok := state.Identities[name]
	if !ok {
		return 0, unknownProcess(state, name)
	}
	if err := identity.Signal(unix.SIGKILL); err != nil {
		return 0, fmt.Errorf("killing %s: %w; look at `lab status`", name, err)
	}
	return identity.PID, nil
}

func unknownProcess(state folder.State, name string) error {
	var running []string
	for _, p := range state.Processes {
		if p.Name == name {
			return fmt.Errorf("%s does not run (%s); look at `lab status`", name, p.State)
		}
		if p.PID != 0 {
			running = append(running, p.Name)
		}
	}
	return fmt.Errorf("the lab has no process %s; it has: %s", name, strings.Join(running, ", "))
}
