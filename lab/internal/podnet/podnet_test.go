// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podnet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/enclave/enclavetest"
	"github.com/mooring-dev/mooring/lab/internal/podnet"
)

func TestMain(m *testing.M) { enclavetest.Main(m) }

// patience is how long anything may take on a busy machine.
const patience = 2 * time.Minute

// newNetwork makes the only network of the namespace, as it is in a lab; so tests come one after the other.
func newNetwork(t *testing.T) *podnet.Network {
	t.Helper()
	network, err := podnet.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

func attach(t *testing.T, network *podnet.Network, key string) podnet.Attachment {
	t.Helper()
	pod, err := network.Attach(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// greet listens in the pod, on the address and port, and says hello to everybody.
func greet(t *testing.T, do func(func() error) error, address string) {
	t.Helper()
	var listener net.Listener
	if err := do(func() (err error) {
		listener, err = net.Listen("tcp4", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "hello, %s", c.RemoteAddr().(*net.TCPAddr).IP)
			_ = c.Close()
		}
	}()
}

// hear is what is said at the address to somebody in that place.
func hear(do func(func() error) error, address string) (said string, err error) {
	err = do(func() error {
		c, err := (&net.Dialer{Timeout: patience}).Dial("tcp4", address)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		content, err := io.ReadAll(c)
		said = string(content)
		return err
	})
	return said, err
}

// here is the lab's own place.
func here(f func() error) error { return f() }

// TestRoutes: who reaches whom, and from which address.
func TestRoutes(t *testing.T) {
	network := newNetwork(t)
	one, other := attach(t, network, "one"), attach(t, network, "other")
	port := func(address string) string { return net.JoinHostPort(address, "2379") }
	// Every pod may have the same port, on the addresses of its own.
	greet(t, one.Do, ":2379")
	greet(t, other.Do, ":2379")
	const node, service = "172.30.7.7", "10.96.77.77"
	greet(t, here, port(node))
	greet(t, here, port(service))
	for name, c := range map[string]struct {
		from func(func() error) error
		to   string
		want string
	}{
		"pod to pod":        {one.Do, other.IP.String(), "hello, " + one.IP.String()},
		"pod to itself":     {one.Do, one.IP.String(), "hello, " + one.IP.String()},
		"pod to its lo":     {one.Do, "127.0.0.1", "hello, 127.0.0.1"},
		"pod to Node":       {one.Do, node, "hello, " + one.IP.String()},
		"pod to Service":    {other.Do, service, "hello, " + other.IP.String()},
		"lab to pod":        {here, other.IP.String(), "hello, " + podnet.Gateway().String()},
		"lab to Service":    {here, service, "hello, " + service},
		"gateway to itself": {here, node, "hello, " + node},
	} {
		if got, err := hear(c.from, port(c.to)); err != nil || got != c.want {
			t.Errorf("%s: heard %q, %v; want %q", name, got, err, c.want)
		}
	}
	// Nobody listens there, which is said at once.
	for name, from := range map[string]func(func() error) error{"pod": one.Do, "lab": here} {
		if _, err := hear(from, "10.96.1.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("from the %s to a Service without endpoints: %v", name, err)
		}
	}
	if _, err := hear(one.Do, "192.0.2.1:80"); !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Errorf("from a pod to the outside: %v", err)
	}
}

// TestPrograms: a program that is started in a pod has its network, and dies when the pod is detached.
func TestPrograms(t *testing.T) {
	network := newNetwork(t)
	pod := attach(t, network, "pod")
	var out bytes.Buffer
	command := exec.Command("cat", "/proc/self/net/fib_trie", "-")
	command.Stdout = &out
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(command); err != nil {
		t.Fatal(err)
	}
	if err := network.Detach("pod"); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	_ = stdin.Close()
	if status := command.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("the program ended by %v", command.ProcessState)
	}
	again := attach(t, network, "again")
	seen := exec.Command("cat", "/proc/self/net/fib_trie", "/proc/sys/net/ipv4/ip_unprivileged_port_start")
	out.Reset()
	seen.Stdout = &out
	if err := again.Start(seen); err != nil {
		t.Fatal(err)
	}
	if err := seen.Wait(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), again.IP.String()) || strings.Contains(out.String(), "10.96.0.0") {
		t.Errorf("the program is not in the pod's network:\n%s", out.String())
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/ip_unprivileged_port_start"); err == nil && !strings.HasSuffix(out.String(), "\n0\n") {
		t.Errorf("low ports are root's in a pod:\n%s", out.String())
	}
}

// TestAttachIsIdempotent: any number of callers get the same; after Detach the pod is new.
func TestAttachIsIdempotent(t *testing.T) {
	network := newNetwork(t)
	first := attach(t, network, "pod")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			again, err := network.Attach(t.Context(), "pod")
			if err != nil || again.IP != first.IP || again.Namespace != first.Namespace {
				t.Errorf("attached again: %+v, %v", again, err)
			}
		})
	}
	group.Wait()
	for range 2 {
		if err := network.Detach("pod"); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Do(func() error { return nil }); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("the namespace of a detached pod: %v", err)
	}
	second := attach(t, network, "pod")
	if second.IP == first.IP {
		t.Error("an address is given to another pod at once")
	}
}

// TestCrowd: many pods come and go at once, all addresses differ, and nothing is left of those that are gone.
func TestCrowd(t *testing.T) {
	network := newNetwork(t)
	const pods = 40
	var mu sync.Mutex
	addresses := map[netip.Addr]string{}
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() {
			key := fmt.Sprint("pod-", i)
			pod, err := network.Attach(context.WithoutCancel(t.Context()), key)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if other, taken := addresses[pod.IP]; taken || !podnet.PodRange().Contains(pod.IP) || pod.IP == podnet.Gateway() {
				t.Errorf("%s has the address %v (%s has it: %t)", key, pod.IP, other, taken)
			}
			addresses[pod.IP] = key
			mu.Unlock()
			if i%2 == 0 {
				if err := network.Detach(key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for address, key := range addresses {
		pod, err := network.Attach(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		var number int
		_, _ = fmt.Sscanf(key, "pod-%d", &number)
		if kept, want := pod.IP == address, number%2 == 1; kept != want {
			t.Errorf("%s has the address it had: %t, want %t", key, kept, want)
		}
	}
	if cables, want := countCables(t), pods; cables != want {
		t.Errorf("%d pods hang on %d cables", want, cables)
	}
}

// countCables counts what is on the bridge.
func countCables(t *testing.T) int {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex == 0 }))
}

func TestClose(t *testing.T) {
	network, err := podnet.New()
	if err != nil {
		t.Fatal(err)
	}
	pod := attach(t, network, "pod")
	if err := network.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := network.Attach(t.Context(), "late"); !errors.Is(err, podnet.ErrClosed) {
		t.Errorf("attaching to a closed network: %v", err)
	}
	if err := pod.Do(func() error { return nil }); !errors.Is(err, netns.ErrClosed) {
		t.Errorf("a pod of a closed network: %v", err)
	}
}

// TestBuildWhereSomebodyIs: nobody's network is changed by mistake.
func TestBuildWhereSomebodyIs(t *testing.T) {
	if err := podnet.Build(); err == nil || !strings.Contains(err.Error(), "it is not a new one") {
		t.Errorf("furnishing a namespace that is in use: %v", err)
	}
}
