// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/process"
)

// State is where a process stands; see the package comment.
type State string

// The states.
const (
	Waiting  State = "waiting"
	Starting State = "starting"
	Ready    State = "ready"
	Down     State = "down"
	Done     State = "done"
	Stopped  State = "stopped"
)

// Status is what is known about one process.
type Status struct {
	Name  string
	State State
	// Identity is zero while it does not run.
	Identity process.Identity
	// Restarts counts starts after the first.
	Restarts int
	// Since is when it started, or ended if it does not run.
	Since time.Time
	// LastExit says how it ended the last time; empty if it never did.
	LastExit string
}

// Config says what to supervise and how patiently.
type Config struct {
	Processes []blueprint.Process
	// Executable is the program of processes that name none.
	Executable string
	// Dir is the working directory of all processes.
	Dir string
	// Patience is how long one process may take to become ready for the first time.
	Patience time.Duration
	// MaxEarlyExits is how often a process may end before it was ever ready until the start is given up.
	MaxEarlyExits int
	// FirstPause is waited before the first restart and doubled up to MaxPause for each further one; a process that was ready for
	// MaxPause starts again with FirstPause.
	FirstPause, MaxPause time.Duration
	// StopGrace is how long a process may take to end after SIGTERM before it gets SIGKILL.
	StopGrace time.Duration
	// OnChange is told all statuses, in the order of Processes, after each change. Calls do not overlap.
	OnChange func([]Status)
	Logger   *slog.Logger
}

// DefaultConfig is patient enough for a busy machine with slow disks.
func DefaultConfig() Config {
	return Config{
		Patience: 10 * time.Minute, MaxEarlyExits: 3,
		FirstPause: 200 * time.Millisecond, MaxPause: 10 * time.Second, StopGrace: 5 * time.Second,
		OnChange: func([]Status) {}, Logger: slog.New(slog.DiscardHandler),
	}
}

// StartError reports that a process did not come up.
type StartError struct {
	Process, Log, Cause string
}

// Error implements error.
func (e *StartError) Error() string {
	return fmt.Sprintf("%s did not come up: %s; its log is %s", e.Process, e.Cause, e.Log)
}

type supervisor struct {
	Config
	spawner *spawner
	keepers []*keeper

	mu sync.Mutex // guards the statuses of all keepers and serializes OnChange
}

// Run starts everything, calls ready once all processes are ready, and keeps them running until ctx ends; then it stops them and returns nil. When
// something does not come up it stops what has been started and returns a *StartError. Either way no child is left when it returns.
func Run(ctx context.Context, config Config, ready func()) error {
	s := &supervisor{Config: config, spawner: newSpawner()}
	defer s.spawner.close()
	if err := s.plan(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for _, k := range s.keepers {
		group.Go(func() {
			if err := k.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	group.Go(func() {
		for _, k := range s.keepers {
			select {
			case <-k.ready:
			case <-ctx.Done():
				return
			}
		}
		ready()
	})
	group.Wait()
	if failed, ok := errors.AsType[*StartError](context.Cause(ctx)); ok {
		return failed
	}
	return nil
}

// plan makes the keepers and ties each to those it depends on, which must come before it: so there are no cycles.
func (s *supervisor) plan() error {
	byName := map[string]*keeper{}
	for _, description := range s.Processes {
		k := &keeper{
			supervisor: s, Process: description,
			ready: make(chan struct{}), stopped: make(chan struct{}),
			status: Status{Name: description.Name, State: Waiting, Since: time.Now()},
		}
		for _, name := range description.DependsOn {
			other, ok := byName[name]
			if !ok {
				return fmt.Errorf("process %s depends on %s, which does not come before it", description.Name, name)
			}
			k.dependencies = append(k.dependencies, other)
			other.dependants = append(other.dependants, k)
		}
		byName[description.Name] = k
		s.keepers = append(s.keepers, k)
	}
	return nil
}

// change applies a change to one status and tells the world.
func (s *supervisor) change(k *keeper, apply func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	apply(&k.status)
	statuses := make([]Status, 0, len(s.keepers))
	for _, other := range s.keepers {
		statuses = append(statuses, other.status)
	}
	s.OnChange(statuses)
}
