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
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// binaryVariable names the lab's binary when it is not bin/lab of the repository.
const binaryVariable = "MOORING_LAB_BINARY"

// patience is how long anything may take on a busy machine.
const patience = 5 * time.Minute

// lab is a lab with a BGP network.
type lab struct {
	t      *testing.T
	binary string
	blueprint.Layout
}

// need skips the test, or fails it where everything has been installed.
func need(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// start starts a lab with a BGP network and stops it, come what may, at the end of the test. More arguments are those of `lab up`.
func start(t *testing.T, nodes int, args ...string) *lab {
	t.Helper()
	l := prepare(t)
	args = append([]string{"up", "--network", blueprint.NetworkBGP, "--nodes", strconv.Itoa(nodes), "--pods-per-node", "1"}, args...)
	_, err := l.try(args...)
	if err != nil && strings.Contains(err.Error(), netns.ErrNotAllowed.Error()) {
		need(t, err.Error())
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
		need(t, err.Error())
	}
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		binary = filepath.Join("..", "..", "..", "..", "bin", "lab")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		need(t, "the lab's binary is needed: build it with `make bin/lab` or name it in "+binaryVariable)
	}
	l := &lab{t: t, binary: binary, Layout: blueprint.Layout{Dir: filepath.Join(t.TempDir(), "lab")}}
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
	const most = 4000
	speakers, _ := filepath.Glob(filepath.Join(l.BGPNetwork(), "nodes", "*", "logs", "*"))
	for _, path := range append([]string{l.Log(blueprint.BGPNetwork), l.Log(blueprint.Nodes)}, speakers...) {
		if content, err := os.ReadFile(path); err == nil && len(content) > 0 {
			l.t.Logf("log %s:\n%s", strings.TrimPrefix(path, l.Dir), content[max(0, len(content)-most):])
		}
	}
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

func (l *lab) try(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), patience)
	defer cancel()
	c := exec.CommandContext(ctx, l.binary, append(args, "--dir", l.Dir)...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("lab %v: %w\n%s", args, err, problems.String())
	}
	return out.Bytes(), nil
}

func (l *lab) run(args ...string) []byte {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// await polls until nothing is wrong any more.
func (l *lab) await(what string, wrong func() error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for err := wrong(); err != nil; err = wrong() {
		select {
		case <-ctx.Done():
			l.t.Fatalf("waited %v for %s: %v", patience, what, err)
		case <-ticker.C:
		}
	}
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
