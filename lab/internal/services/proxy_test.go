// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/lab/internal/enclave/enclavetest"
	"github.com/mooring-dev/mooring/lab/internal/podnet"
)

func TestMain(m *testing.M) { enclavetest.Main(m) }

// patience is how long anything may take on a busy machine.
const patience = 2 * time.Minute

// echo is an endpoint in a pod: it says its name, then what it hears, and ends when it has heard the end.
func echo(t *testing.T, pod podnet.Attachment) netip.AddrPort {
	t.Helper()
	address := netip.AddrPortFrom(pod.IP, 8080)
	var listener net.Listener
	var packets net.PacketConn
	if err := pod.Do(func() (err error) {
		if listener, err = net.Listen("tcp4", address.String()); err != nil {
			return err
		}
		packets, err = net.ListenPacket("udp4", address.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = listener.Close(), packets.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = fmt.Fprintln(c, pod.Key)
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	go func() {
		buffer := make([]byte, 1500)
		for {
			size, client, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(append([]byte(pod.Key+" "), buffer[:size]...), client)
		}
	}()
	return address
}

// dial connects from a pod.
func dial(t *testing.T, from podnet.Attachment, network string, to netip.AddrPort) (c net.Conn, err error) {
	t.Helper()
	err = from.Do(func() error {
		c, err = (&net.Dialer{Timeout: patience}).Dial(network, to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, c.SetDeadline(time.Now().Add(patience))
}

// pods are attached pods by name.
func pods(t *testing.T, keys ...string) []podnet.Attachment {
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
	var out []podnet.Attachment
	for _, key := range keys {
		pod, err := network.Attach(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pod)
	}
	return out
}

// TestProxy is one test, since there is one network to a namespace.
func TestProxy(t *testing.T) {
	all := pods(t, "client", "one", "other")
	client, one, other := all[0], echo(t, all[1]), echo(t, all[2])
	t.Run("TCP", func(t *testing.T) { testTCP(t, client, one, other) })
	t.Run("UDP", func(t *testing.T) { testUDP(t, client, one, other) })
	t.Run("dead endpoint", func(t *testing.T) { testDead(t, client) })
}

// testTCP: connections go to the endpoints there are, and are refused where there are none; those that are open stay.
func testTCP(t *testing.T, client podnet.Attachment, one, other netip.AddrPort) {
	p := newProxy(t.Context())
	defer p.close()
	f := front{netip.MustParseAddrPort("10.96.3.3:443"), corev1.ProtocolTCP}
	if _, err := dial(t, client, "tcp4", f.address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before there is an endpoint: %v", err)
	}
	apply(t, p, backends{f: {one, other}})
	first := hello(t, client, f)
	heard := map[string]bool{}
	for i := 0; len(heard) < 2; i++ {
		if i == 200 {
			t.Fatalf("200 connections went to %v alone", heard)
		}
		heard[hello(t, client, f).name] = true
	}
	apply(t, p, backends{f: {other}})
	for range 20 {
		if got := hello(t, client, f).name; got != "other" {
			t.Fatalf("a new connection went to %s, which is no endpoint any more", got)
		}
	}
	apply(t, p, backends{})
	if _, err := dial(t, client, "tcp4", f.address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the last endpoint: %v", err)
	}
	first.say(t, "still there?")
	apply(t, p, backends{f: {one}})
	if got := hello(t, client, f).name; got != "one" {
		t.Errorf("when endpoints are back, one hears %s", got)
	}
}

// testUDP: a client keeps its endpoint and hears that alone.
func testUDP(t *testing.T, client podnet.Attachment, one, other netip.AddrPort) {
	p := newProxy(t.Context())
	defer p.close()
	f := front{netip.MustParseAddrPort("10.96.3.4:53"), corev1.ProtocolUDP}
	apply(t, p, backends{f: {one, other}})
	var clients sync.WaitGroup
	for i := range 8 {
		c, err := dial(t, client, "udp4", f.address)
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			var endpoint string
			for j := range 5 {
				question := fmt.Sprintf("%d-%d", i, j)
				answer, err := exchange(c, question)
				name, said, _ := strings.Cut(answer, " ")
				if endpoint == "" {
					endpoint = name
				}
				if err != nil || said != question || name != endpoint {
					t.Errorf("client %d asked %s of %s and heard %q, %v", i, question, endpoint, answer, err)
				}
			}
		})
	}
	clients.Wait()
	apply(t, p, backends{})
	c, err := dial(t, client, "udp4", f.address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exchange(c, "x"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without endpoints: %v", err)
	}
}

// testDead: an endpoint that nobody answers at is as good as none for who is sent there, and nobody waits.
func testDead(t *testing.T, client podnet.Attachment) {
	p := newProxy(t.Context())
	defer p.close()
	f := front{netip.MustParseAddrPort("10.96.3.5:443"), corev1.ProtocolTCP}
	apply(t, p, backends{f: {netip.AddrPortFrom(client.IP, 9)}})
	c, err := dial(t, client, "tcp4", f.address)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection to an endpoint that is dead: %v", err)
	}
}

func apply(t *testing.T, p *proxy, wanted backends) {
	t.Helper()
	if err := p.apply(wanted); err != nil {
		t.Fatal(err)
	}
}

// conversation is a connection to an endpoint that has said its name.
type conversation struct {
	net.Conn
	name string
}

func hello(t *testing.T, client podnet.Attachment, f front) conversation {
	t.Helper()
	c, err := dial(t, client, "tcp4", f.address)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if _, err := fmt.Fscanln(c, &name); err != nil {
		t.Fatal(err)
	}
	return conversation{c, name}
}

func (c conversation) say(t *testing.T, words string) {
	t.Helper()
	if _, err := io.WriteString(c, words); err != nil {
		t.Fatal(err)
	}
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != words || err != nil {
		t.Errorf("said %q and heard %q, %v", words, got, err)
	}
}

// exchange asks until it is answered, since a packet may be lost; what answers an earlier question is left alone.
func exchange(c net.Conn, question string) (string, error) {
	buffer := make([]byte, 1500)
	for deadline := time.Now().Add(patience); ; {
		if _, err := io.WriteString(c, question); err != nil {
			return "", err
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		size, err := c.Read(buffer)
		if isTimeout(err) {
			if time.Now().After(deadline) {
				return "", err
			}
			continue
		}
		if answer := string(buffer[:size]); err != nil || strings.HasSuffix(answer, " "+question) {
			return answer, err
		}
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
