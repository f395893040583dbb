// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/relay"
)

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	listener := must.Get(net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})).Or(t)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// serve relays to a server that does this with each connection.
func serve(t *testing.T, do func(*net.TCPConn)) (server *relay.Server, address string) {
	t.Helper()
	far := listen(t)
	go func() {
		for {
			c, err := far.AcceptTCP()
			if err != nil {
				return
			}
			go do(c)
		}
	}()
	near := listen(t)
	server = relay.Serve(t.Context(), near, relay.DialTo(far.Addr().String()))
	t.Cleanup(server.Close)
	return server, near.Addr().String()
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c := must.Get(net.Dial("tcp", address)).Or(t)
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// digest answers with the sum of all that it hears, which it can say only after the other's end.
func digest(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	sum := sha256.New()
	_, _ = io.Copy(sum, c)
	_, _ = c.Write(sum.Sum(nil))
}

// TestNoByteIsLost sends megabytes through many connections at once; the answer comes after the sender's half-close.
func TestNoByteIsLost(t *testing.T) {
	t.Parallel()
	_, address := serve(t, digest)
	var group sync.WaitGroup
	for i := range 20 {
		c := dial(t, address)
		group.Go(func() {
			content := make([]byte, 1<<20+i*7919)
			random := rand.NewChaCha8([32]byte{byte(i)})
			_, _ = random.Read(content)
			if _, err := c.Write(content); err != nil {
				t.Error(err)
				return
			}
			if err := c.CloseWrite(); err != nil {
				t.Error(err)
			}
			answer, err := io.ReadAll(c)
			if want := sha256.Sum256(content); err != nil || !bytes.Equal(answer, want[:]) {
				t.Errorf("connection %d: the answer is not that to what was sent: %v", i, err)
			}
		})
	}
	group.Wait()
}

// TestServerEndsFirst: the server has said all, and hears the client still.
func TestServerEndsFirst(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 1)
	_, address := serve(t, func(c *net.TCPConn) {
		defer func() { _ = c.Close() }()
		_, _ = c.Write([]byte("hello"))
		_ = c.CloseWrite()
		content, _ := io.ReadAll(c)
		heard <- string(content)
	})
	c := dial(t, address)
	if greeting, err := io.ReadAll(c); string(greeting) != "hello" || err != nil {
		t.Fatalf("heard %q, %v", greeting, err)
	}
	must.Get(c.Write([]byte("thanks"))).Or(t)
	_ = c.CloseWrite()
	if got := <-heard; got != "thanks" {
		t.Errorf("the server heard %q", got)
	}
}

// TestRefused: nobody answers on the far side, so neither does the near one.
func TestRefused(t *testing.T) {
	t.Parallel()
	refuse := errors.New("refused")
	near := listen(t)
	server := relay.Serve(t.Context(), near, func(context.Context) (*net.TCPConn, error) { return nil, refuse })
	t.Cleanup(server.Close)
	c, err := net.Dial("tcp", near.Addr().String())
	if err == nil {
		defer func() { _ = c.Close() }()
		_, err = c.Read(make([]byte, 1))
	} // else the reset was there first
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that leads nowhere: %v", err)
	}
}

// TestAbortIsNoEnd: a server that dies in the middle of a sentence must not seem to have finished it.
func TestAbortIsNoEnd(t *testing.T) {
	t.Parallel()
	_, address := serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("half"))
		_, _ = c.Read(make([]byte, 1)) // until the client has it
		_ = c.SetLinger(0)
		_ = c.Close()
	})
	c := dial(t, address)
	must.Get(io.ReadFull(c, make([]byte, 4))).Or(t)
	_, _ = c.Write([]byte("x"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an abort is read as %v", err)
	}
}

// TestStopAndClose: what is open goes on after Stop and ends with Close.
func TestStopAndClose(t *testing.T) {
	t.Parallel()
	server, address := serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	c := dial(t, address)
	echo := func() error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	must.Do(t, echo())
	server.Stop()
	if err := echo(); err != nil {
		t.Errorf("after Stop: %v", err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("it listens after Stop")
	}
	server.Close()
	if err := echo(); err == nil {
		t.Error("a connection outlived Close")
	}
}
