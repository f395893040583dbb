// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"io"
	"net"
	"net/url"
	"testing"
	"time"
)

// requestDelay is how much later each piece of a request arrives: a clean-up of a dozen calls then takes seconds, not milliseconds.
const requestDelay = 60 * time.Millisecond

// relay is a slow way to a server on loopback.
type relay struct {
	listener net.Listener
	target   string
	delay    time.Duration
}

func newRelay(t *testing.T, endpoint string) *relay {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, target: u.Host, delay: requestDelay}
	t.Cleanup(func() { _ = listener.Close() })
	go r.accept()
	return r
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

func (r *relay) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.carry(from)
	}
}

func (r *relay) carry(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	buffer := make([]byte, 64*1024)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			<-time.After(r.delay)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
