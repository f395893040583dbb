// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// questionTimeout bounds the wait for one question on a TCP connection.
	questionTimeout = 10 * time.Second
	// pause is waited after a failure to receive.
	pause = 50 * time.Millisecond
)

// Server answers by UDP and TCP. Before Update there is no name.
type Server struct {
	zone     atomic.Pointer[Zone]
	packets  *net.UDPConn
	listener *net.TCPListener
	ended    sync.WaitGroup
	mu       sync.Mutex // guards open
	open     map[net.Conn]bool
}

// Listen starts a server at the address; with port 0 it gets one that is free for both.
func Listen(ctx context.Context, address netip.AddrPort) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", address.String())
	if err != nil {
		return nil, fmt.Errorf("listening for questions: %w", err)
	}
	packets, err := config.ListenPacket(ctx, "udp4", listener.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for questions: %w", err), listener.Close())
	}
	s := &Server{packets: packets.(*net.UDPConn), listener: listener.(*net.TCPListener), open: map[net.Conn]bool{}}
	s.Update(Zone{})
	s.ended.Go(s.servePackets)
	s.ended.Go(s.serveConnections)
	return s, nil
}

// Address is where the server listens.
func (s *Server) Address() netip.AddrPort { return s.listener.Addr().(*net.TCPAddr).AddrPort() }

// Update makes the zone the one that is answered from.
func (s *Server) Update(zone Zone) { s.zone.Store(&zone) }

// Close ends the server.
func (s *Server) Close() error {
	err := errors.Join(s.packets.Close(), s.listener.Close())
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close()
	}
	s.open = nil
	s.mu.Unlock()
	s.ended.Wait()
	return err
}

func (s *Server) servePackets() {
	buffer := make([]byte, math.MaxUint16)
	for {
		size, client, err := s.packets.ReadFromUDPAddrPort(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // such as a client that is gone
			<-time.After(pause)
			continue
		}
		if wire, err := s.zone.Load().answer(buffer[:size], 0); err == nil {
			_, _ = s.packets.WriteToUDPAddrPort(wire, client) // a client that hears nothing asks again
		}
	}
}

func (s *Server) serveConnections() {
	for {
		c, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			<-time.After(pause)
			continue
		}
		if !s.keep(c) {
			return
		}
		s.ended.Go(func() {
			defer s.forget(c)
			for s.answerOne(c) == nil {
			}
		})
	}
}

// answerOne answers one question on a connection; each message has its length before it (RFC 1035, 4.2.2).
func (s *Server) answerOne(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(questionTimeout)); err != nil {
		return err
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	question := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, question); err != nil {
		return err
	}
	wire, err := s.zone.Load().answer(question, math.MaxUint16)
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)) //nolint:gosec // bounded by answer
	return err
}

func (s *Server) keep(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		_ = c.Close()
		return false
	}
	s.open[c] = true
	return true
}

func (s *Server) forget(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}
