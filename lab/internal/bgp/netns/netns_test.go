// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"

	"github.com/mooring-dev/mooring/internal/testkit"
)

func newNamespace(t *testing.T) *netns.Namespace {
	t.Helper()
	n, err := netns.New()
	if errors.Is(err, netns.ErrNotAllowed) {
		testkit.Skip(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNamespaceIsApart sees that a namespace has nothing of this process's network, and that the process keeps its own.
func TestNamespaceIsApart(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	defer n.Close()
	var inside []net.Interface
	if err := n.Do(func() (err error) { inside, err = net.Interfaces(); return err }); err != nil {
		t.Fatal(err)
	}
	for _, i := range inside {
		if i.Flags&net.FlagUp != 0 {
			t.Errorf("a new namespace has the device %s, and it is up", i.Name)
		}
	}
}

// TestChildrenDieWithTheNamespace starts a program that would run for long.
func TestChildrenDieWithTheNamespace(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "600")
	if err := n.Start(command); err != nil {
		t.Fatal(err)
	}
	n.Close()
	err := command.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Errorf("the child ended with %v; it should have been killed", err)
	}
}

// TestClosed asks a namespace for something while and after it is closed.
func TestClosed(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for n.Do(func() error { return nil }) == nil {
			}
		})
	}
	n.Close()
	n.Close()
	group.Wait()
	if err := n.Do(func() error { return nil }); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("a namespace that is closed answers %v", err)
	}
}
