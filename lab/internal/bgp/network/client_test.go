// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
)

// serve answers as a network without nodes does, in a folder whose path is longer than that of a socket may be.
func serve(t *testing.T) *Client {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := listen(filepath.Join("/proc/self/fd", strconv.Itoa(int(folder.Fd())), SocketName))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		hosts:     func() []fabric.Host { return nil },
		processes: func() map[string]int { return nil },
		pending:   func() ([]string, error) { return []string{"late"}, nil },
		probers:   map[string]running{},
	}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() {
		_ = web.Close()
		_ = folder.Close()
	})
	return Connect(dir)
}

func TestClientOfALongPath(t *testing.T) {
	t.Parallel()
	client := serve(t)
	state, err := client.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Converged() || !slices.Equal(state.Pending, []string{"late"}) {
		t.Error("a network without nodes is said to have all routes; nothing may pass for everything")
	}
	id, err := client.StartProbe(t.Context(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if report, err := client.StopProbe(t.Context(), id, nil); err != nil || report.Pairs != 0 {
		t.Errorf("report %+v, %v", report, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	client := serve(t)
	if _, err := client.StartProbe(t.Context(), 0); err == nil || err.Error() != `the BGP network answers: interval "0s" is not a duration of at least 1ms` {
		t.Errorf("interval 0: %v", err)
	}
	if _, err := client.StopProbe(t.Context(), "7", nil); err == nil || err.Error() != "the BGP network answers: there is no such probe" {
		t.Errorf("unknown probe: %v", err)
	}
}

func TestConverged(t *testing.T) {
	t.Parallel()
	whole := NodeState{Name: "a"}
	lacking := NodeState{Name: "b", Missing: []netip.Addr{netip.MustParseAddr("10.244.0.1")}}
	if !(State{Nodes: []NodeState{whole}}).Converged() || (State{Nodes: []NodeState{whole, lacking}}).Converged() {
		t.Error("converged is when no node lacks a route")
	}
	if (State{Nodes: []NodeState{whole}, Pending: []string{"c"}}).Converged() {
		t.Error("a network that has a machine to follow is said to be whole")
	}
	if got := missing(State{Nodes: []NodeState{whole}, Pending: []string{"c", "d"}}, nil); got != "the network has yet to follow c, d" {
		t.Error(got)
	}
	if got := missing(State{Nodes: []NodeState{whole, lacking}}, nil); got != "b has none to 10.244.0.1" {
		t.Error(got)
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	pod := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 244, 0, n}) }
	s := State{Nodes: []NodeState{
		{Name: "a", Pods: []netip.Addr{pod(1), pod(2)}, Missing: []netip.Addr{pod(3)}}, {Name: "b", Pods: []netip.Addr{pod(3)}}, {Name: "c"},
	}}
	if have, want := s.Routes(); have != 5 || want != 6 {
		t.Errorf("%d of %d routes; want 5 of 6: one from a, two from b, three from c", have, want)
	}
}

// TestNobodyAnswers asks in a folder without a network, and in one that a killed network has left.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	empty, left := t.TempDir(), t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(left, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = listener.Close()
	for _, dir := range []string{empty, left} {
		if _, err := Connect(dir).State(t.Context()); !errors.Is(err, ErrDown) {
			t.Errorf("in %s: %v", dir, err)
		}
	}
}
