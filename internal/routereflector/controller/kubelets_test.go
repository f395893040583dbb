// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// network has a listener for some addresses of nodes, real connections to these, and a count of them.
type network struct {
	mu    sync.Mutex
	to    map[string]string
	calls []string
}

func (n *network) dial(ctx context.Context, family, address string) (net.Conn, error) {
	n.mu.Lock()
	n.calls = append(n.calls, address)
	to, exists := n.to[address]
	n.mu.Unlock()
	if !exists {
		return nil, fmt.Errorf("dialing %s: %w", address, syscall.EHOSTUNREACH)
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // so that the test is short
	defer cancel()
	return (&net.Dialer{}).DialContext(ctx, family, to)
}

func (n *network) set(address, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to[address] = to
}

func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.calls)
}

// listens is the address of a kubelet that accepts connections, refuses that of a machine on which none runs, and
// swallows that of one that does not answer: its queue of connections is full.
func listens(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func refuses(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func swallows(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	four, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("it is bound to %T", bound)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(four.Port))
	for range 3 { // one is queued; the queue has room for one more than it is said to have
		c, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue is not full")
	return ""
}

// doubted is a World of five nodes: r0 and r1 are reflectors, and some Nodes are unknown.
func doubted(unknown ...string) *routereflector.World {
	w := &routereflector.World{Topology: v1alpha1.RouteReflectorTopology{}}
	w.Topology.Name = "main"
	for i, name := range []string{"r0", "r1", "c0", "c1", "c2"} {
		n := routereflector.Node{
			Name: name, Ready: corev1.ConditionTrue, IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Labels: map[string]string{},
		}
		if name[0] == 'r' {
			n.Labels[v1alpha1.ReflectorLabel] = "main"
		}
		if slices.Contains(unknown, name) {
			n.Ready = corev1.ConditionUnknown
		}
		w.Nodes = append(w.Nodes, n)
	}
	return w
}

// watch lets a minute pass, a second at a time, and returns which kubelets do not answer at its end.
func watch(t *testing.T, k *Kubelets, clock *clocktesting.FakePassiveClock, unknown ...string) []string {
	t.Helper()
	var out []string
	for range 20 {
		w := doubted(unknown...)
		k.observe(t.Context(), w)
		testkit.Eventually(t, "the connections to end", func() string {
			k.mu.Lock()
			defer k.mu.Unlock()
			for name, is := range k.known {
				if is.busy {
					return name
				}
			}
			return ""
		})
		k.observe(t.Context(), w)
		out = nil
		for name := range w.NoAnswer {
			out = append(out, name)
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
	slices.Sort(out)
	return out
}

// The kubelet of a reflector whose Node is unknown is connected to, by real connections, and so are two others; it does
// not answer if these do. While nobody is doubted there is no connection, whatever else is unknown.
func TestKubelets(t *testing.T) {
	t.Parallel()
	alive, refusing, mute := listens(t), refuses(t), swallows(t)
	for name, c := range map[string]struct {
		r0, r1, c0 string
		unknown    []string
		want       []string
		calls      int
	}{
		"nobody is doubted":            {r0: alive, r1: alive, c0: alive},
		"a client is unknown":          {r0: alive, r1: alive, unknown: []string{"c0"}},
		"it does not answer":           {r0: mute, r1: alive, c0: alive, unknown: []string{"r0"}, want: []string{"r0"}, calls: 21},
		"there is no route to it":      {r1: alive, c0: alive, unknown: []string{"r0"}, want: []string{"r0"}, calls: 21},
		"it answers":                   {r0: alive, r1: alive, c0: alive, unknown: []string{"r0"}, calls: 21},
		"it refuses":                   {r0: refusing, r1: alive, c0: alive, unknown: []string{"r0"}, calls: 21},
		"one of the others answers":    {r1: alive, unknown: []string{"r0"}, want: []string{"r0"}, calls: 21},
		"nobody answers":               {unknown: []string{"r0"}, calls: 21},
		"others refuse: no kubelet":    {r1: refusing, c0: refusing, unknown: []string{"r0"}, want: []string{"r0"}, calls: 21},
		"two reflectors do not answer": {c0: alive, unknown: []string{"r0", "r1"}, want: []string{"r0", "r1"}, calls: 28},
		"all are unknown: no control":  {unknown: []string{"r0", "r1", "c0", "c1", "c2"}, calls: 14},
		"one reflector of two answers": {r1: alive, c0: alive, unknown: []string{"r0", "r1"}, want: []string{"r0"}, calls: 28},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &network{to: map[string]string{}}
			for address, to := range map[string]string{"10.0.0.0:10250": c.r0, "10.0.0.1:10250": c.r1, "10.0.0.2:10250": c.c0} {
				if to != "" {
					n.set(address, to)
				}
			}
			clock := clocktesting.NewFakePassiveClock(then())
			k := &Kubelets{Port: KubeletPort, Pause: KubeletPause, Clock: clock, Dial: n.dial}
			if got := watch(t, k, clock, c.unknown...); !slices.Equal(got, c.want) {
				t.Errorf("%v do not answer, want %v", got, c.want)
			}
			if n.count() != c.calls {
				t.Errorf("there are %d connections in 20 s, want %d", n.count(), c.calls)
			}
		})
	}
}

// A kubelet that answers again is believed at once, and what is known of one is forgotten.
func TestAKubeletAnswersAgain(t *testing.T) {
	t.Parallel()
	n := &network{to: map[string]string{"10.0.0.1:10250": listens(t)}}
	clock := clocktesting.NewFakePassiveClock(then())
	k := &Kubelets{Port: KubeletPort, Pause: KubeletPause, Clock: clock, Dial: n.dial}
	if got := watch(t, k, clock, "r0"); !slices.Equal(got, []string{"r0"}) {
		t.Fatalf("%v do not answer", got)
	}
	n.set("10.0.0.0:10250", listens(t))
	if got := watch(t, k, clock, "r0"); len(got) > 0 {
		t.Errorf("%v do not answer", got)
	}
	clock.SetTime(clock.Now().Add(2 * kubeletMemory))
	k.observe(t.Context(), doubted())
	if len(k.known) > 0 {
		t.Errorf("it remembers %v", k.known)
	}
}
