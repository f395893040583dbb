// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ports_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/ports"
)

// plainBindVariable makes the test binary bind the given address in the plain way and report, instead of running tests.
const plainBindVariable = "MOORING_TEST_PLAIN_BIND"

func TestMain(m *testing.M) {
	if address := os.Getenv(plainBindVariable); address != "" {
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			fmt.Println("refused:", err)
			os.Exit(0)
		}
		_ = listener.Close()
		fmt.Println("bound")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func address(port int) string { return net.JoinHostPort(ports.Host, strconv.Itoa(port)) }

func newHolder(t *testing.T) *ports.Holder {
	t.Helper()
	holder := &ports.Holder{}
	t.Cleanup(func() {
		if err := holder.Close(); err != nil {
			t.Errorf("closing the holder: %v", err)
		}
	})
	return holder
}

func anyPort(t *testing.T, holder *ports.Holder) int {
	t.Helper()
	port := must.Get(holder.Any()).Or(t)
	return port
}

func plainBindElsewhere(t *testing.T, port int) string {
	t.Helper()
	executable := must.Get(os.Executable()).Or(t)
	command := exec.CommandContext(t.Context(), executable)
	command.Env = append(os.Environ(), plainBindVariable+"="+address(port))
	output := must.Get(command.Output()).Or(t)
	return strings.TrimSpace(string(output))
}

func TestHeldPortRefusesAPlainBind(t *testing.T) {
	t.Parallel()
	port := anyPort(t, newHolder(t))
	for _, state := range []string{"nobody listens", "our process listens"} {
		if state == "our process listens" {
			listener := must.Get(ports.Listen(t.Context(), port)).Or(t)
			defer listener.Close()
		}
		if foreign, err := net.Listen("tcp4", address(port)); err == nil {
			_ = foreign.Close()
			t.Errorf("%s: a plain bind in this process was let in", state)
		}
		if got := plainBindElsewhere(t, port); !strings.HasPrefix(got, "refused:") {
			t.Errorf("%s: a plain bind of another process of the same user: %s", state, got)
		}
	}
}

func TestAllConnectionsGoToTheListener(t *testing.T) {
	t.Parallel()
	port := anyPort(t, newHolder(t))
	for range 2 { // the second round is a restart of the process on the same port
		listener := must.Get(ports.Listen(t.Context(), port)).Or(t)
		for range 50 {
			client := must.Get(net.Dial("tcp4", address(port))).Or(t)
			server := must.Get(listener.Accept()).Or(t)
			if client.LocalAddr().String() != server.RemoteAddr().String() {
				t.Fatalf("accepted %s, dialed from %s", server.RemoteAddr(), client.LocalAddr())
			}
			_, _ = client.Close(), server.Close()
		}
		must.Do(t, listener.Close())
		waitUntilRefused(t, port)
	}
}

// waitUntilRefused returns when nobody answers on the port. Another test may just have forked: until its child has called exec it holds
// a copy of the closed listener, so that a few more connections get through.
func waitUntilRefused(t *testing.T, port int) {
	t.Helper()
	for range 1000 {
		conn, err := net.Dial("tcp4", address(port))
		if err != nil {
			return
		}
		_ = conn.Close()
		runtime.Gosched()
	}
	t.Fatal("somebody answers on a held port while its process is down")
}

func TestManyHoldersNeverShareAPort(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[int]bool{}
	var group sync.WaitGroup
	for range 8 {
		holder := newHolder(t)
		group.Go(func() {
			for range 50 {
				port, err := holder.Any()
				mu.Lock()
				if err != nil || seen[port] {
					t.Errorf("port %d: error %v, handed out before: %v", port, err, seen[port])
				}
				seen[port] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

func TestExactly(t *testing.T) { // serial: a parallel test could be given the port that is free for a moment
	scout := &ports.Holder{}
	port := anyPort(t, scout)
	must.Do(t, scout.Close())
	if err := newHolder(t).Exactly(t.Context(), port); err != nil {
		t.Fatalf("a free port: %v", err)
	}
	if got := plainBindElsewhere(t, port); !strings.HasPrefix(got, "refused:") {
		t.Errorf("a plain bind of a chosen and held port: %s", got)
	}
	listener, err := ports.Listen(t.Context(), port)
	if err != nil {
		t.Fatalf("the process itself: %v", err)
	}
	defer listener.Close()

	var occupied *ports.OccupiedError
	if err := newHolder(t).Exactly(t.Context(), port); !errors.As(err, &occupied) || occupied.Port != port {
		t.Errorf("a port that another lab holds and serves: %v", err)
	}
}

func TestExactlyRefusesAHeldPortWithoutListener(t *testing.T) { // serial: a parallel test could be given the port that is free for a moment
	port := anyPort(t, newHolder(t))
	var occupied *ports.OccupiedError
	if err := newHolder(t).Exactly(t.Context(), port); !errors.As(err, &occupied) {
		t.Errorf("a port that another lab holds: %v", err)
	}
	chosen := &ports.Holder{}
	free := anyPort(t, chosen)
	must.Do(t, chosen.Close())
	must.Do(t, newHolder(t).Exactly(t.Context(), free))
	if err := newHolder(t).Exactly(t.Context(), free); !errors.As(err, &occupied) {
		t.Errorf("a port that another lab chose and holds: %v", err)
	}
}

func TestExactlyRefusesAForeignListener(t *testing.T) {
	t.Parallel()
	foreign, err := net.Listen("tcp4", address(0))
	must.Do(t, err)
	defer foreign.Close()
	port := foreign.Addr().(*net.TCPAddr).Port
	err = newHolder(t).Exactly(t.Context(), port)
	if _, ok := errors.AsType[*ports.OccupiedError](err); !ok {
		t.Fatalf("a port with a foreign listener: %v", err)
	}
	if want := fmt.Sprintf("port %d on 127.0.0.1 is already in use", port); !strings.Contains(err.Error(), want) {
		t.Errorf("the message %q does not say %q", err, want)
	}
	for _, bad := range []int{0, -1, 65536} {
		if err := newHolder(t).Exactly(t.Context(), bad); err == nil {
			t.Errorf("port %d was accepted", bad)
		}
	}
}

// Connections of a former server stay in TIME_WAIT for a minute; its port must be usable again at once all the same.
func TestExactlyAfterTheServerClosedItsConnections(t *testing.T) { // serial: a parallel test could be given the port that is free for a moment
	first := &ports.Holder{}
	port := anyPort(t, first)
	serveAndCloseOne(t.Context(), t, port)
	must.Do(t, first.Close())
	must.Do(t, newHolder(t).Exactly(t.Context(), port))
}

func serveAndCloseOne(ctx context.Context, t *testing.T, port int) {
	t.Helper()
	listener := must.Get(ports.Listen(ctx, port)).Or(t)
	defer listener.Close()
	client := must.Get(net.Dial("tcp4", address(port))).Or(t)
	server := must.Get(listener.Accept()).Or(t)
	_ = server.Close() // the side that closes first keeps TIME_WAIT
	_ = client.Close()
}
