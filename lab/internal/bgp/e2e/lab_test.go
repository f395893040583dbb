// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// patience is how long anything may take on a busy machine.
const patience = 5 * time.Minute

// lab is a lab with a BGP network.
type lab struct {
	t *testing.T
	blueprint.Layout
}

// start starts a lab with a BGP network and stops it, come what may, at the end of the test. More arguments are those of `lab up`.
func start(t *testing.T, nodes int, args ...string) *lab {
	t.Helper()
	l := prepare(t)
	args = append([]string{"up", "--network", blueprint.NetworkBGP, "--nodes", strconv.Itoa(nodes), "--pods-per-node", "1"}, args...)
	_, err := l.try(args...)
	if err != nil && strings.Contains(err.Error(), netns.ErrNotAllowed.Error()) {
		testkit.Skip(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// prepare is start without a start.
func prepare(t *testing.T) *lab {
	t.Helper()
	if _, _, err := speaker.FindBird(); err != nil {
		testkit.Skip(t, "%v", err)
	}
	testkit.Binary(t, "lab")
	l := &lab{t: t, Layout: blueprint.Layout{Dir: filepath.Join(t.TempDir(), "lab")}}
	t.Cleanup(func() {
		if t.Failed() {
			l.showLogs()
		}
		_, _ = l.try("down", "--delete")
	})
	return l
}

// showLogs logs the ends of what the network and its machines have said.
func (l *lab) showLogs() {
	speakers, _ := filepath.Glob(filepath.Join(l.BGPNetwork(), "nodes", "*", "logs", "*"))
	testkit.LogEnds(l.t, 4000, append([]string{l.Log(blueprint.BGPNetwork), l.Log(blueprint.Nodes)}, speakers...)...)
}

// stopNetwork sends a signal to the process that holds the network. The supervisor starts it again.
func (l *lab) stopNetwork(signal syscall.Signal) {
	l.t.Helper()
	if err := l.runningState().Identities[blueprint.BGPNetwork].Signal(signal); err != nil {
		l.t.Fatal(err)
	}
}

// runningState is what the supervisor says of its processes.
func (l *lab) runningState() folder.State {
	l.t.Helper()
	var state folder.State
	if err := folder.ReadJSON(l.StateFile(), &state); err != nil {
		l.t.Fatal(err)
	}
	return state
}

func (l *lab) client() *network.Client { return network.Connect(l.BGPNetwork()) }

func (l *lab) try(args ...string) (string, error) {
	return testkit.TryLab(l.t, patience, l.Dir, args...)
}

func (l *lab) run(args ...string) string {
	l.t.Helper()
	return testkit.RunLab(l.t, patience, l.Dir, args...)
}

func (l *lab) await(what string, wrong func() error) {
	l.t.Helper()
	l.awaitFor(patience, what, wrong)
}

// awaitFor is await for what takes its time even on a machine that is not busy.
func (l *lab) awaitFor(most time.Duration, what string, wrong func() error) {
	l.t.Helper()
	testkit.Await(l.t, most, what, wrong)
}

// awaitRoutes waits for every route and returns how long that took.
func (l *lab) awaitRoutes() time.Duration {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	took, err := l.client().AwaitRoutes(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	return took
}

// gone reports which of the processes still run.
func gone(pids map[string]int) error {
	var errs []error
	for name, pid := range pids {
		if content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")); err == nil && !bytes.Contains(content, []byte(") Z ")) {
			errs = append(errs, fmt.Errorf("%s (%d) still runs", name, pid))
		}
	}
	return errors.Join(errs...)
}
