// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// idleAfter is how long a client of UDP may be silent and still have the same endpoint: conntrack's time for streams.
	idleAfter = 2 * time.Minute
	// maxClients bounds the clients of one port; packets of further ones are lost until others are idle.
	maxClients = 1024
	// receivePause is waited after a failure to receive.
	receivePause = 50 * time.Millisecond
)

// forwarder carries packets: a client keeps the endpoint that its first packet went to.
type forwarder struct {
	packets *net.UDPConn
	pick    func() netip.AddrPort
	ended   sync.WaitGroup
	mu      sync.Mutex // guards clients, which is nil once it is closed
	clients map[netip.AddrPort]*net.UDPConn
}

func forward(packets *net.UDPConn, pick func() netip.AddrPort) *forwarder {
	f := &forwarder{packets: packets, pick: pick, clients: map[netip.AddrPort]*net.UDPConn{}}
	f.ended.Go(f.receive)
	return f
}

// close ends it at once: there is no end of a conversation to wait for.
func (f *forwarder) close() {
	_ = f.packets.Close()
	f.mu.Lock()
	for _, c := range f.clients {
		_ = c.Close()
	}
	f.clients = nil
	f.mu.Unlock()
	f.ended.Wait()
}

func (f *forwarder) receive() {
	buffer := make([]byte, math.MaxUint16)
	for {
		size, client, err := f.packets.ReadFromUDPAddrPort(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			<-time.After(receivePause)
			continue
		}
		if far := f.connect(client); far != nil {
			_ = far.SetReadDeadline(time.Now().Add(idleAfter))
			_, _ = far.Write(buffer[:size]) // what is lost is lost, as packets may be
		}
	}
}

// connect returns the client's connection to its endpoint, nil if it cannot have one.
func (f *forwarder) connect(client netip.AddrPort) *net.UDPConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if far, ok := f.clients[client]; ok || f.clients == nil || len(f.clients) >= maxClients {
		return far
	}
	far, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(f.pick()))
	if err != nil {
		return nil
	}
	_ = far.SetReadDeadline(time.Now().Add(idleAfter))
	f.clients[client] = far
	f.ended.Go(func() { f.reply(client, far) })
	return far
}

// reply carries what an endpoint says to its client, from the address that the client has spoken to, until both have been silent for a while.
func (f *forwarder) reply(client netip.AddrPort, far *net.UDPConn) {
	defer func() {
		_ = far.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.clients, client)
	}()
	buffer := make([]byte, math.MaxUint16)
	for {
		size, err := far.Read(buffer)
		if err != nil {
			return // silent, closed, or refused by the endpoint; the next packet chooses one anew
		}
		_ = far.SetReadDeadline(time.Now().Add(idleAfter))
		_, _ = f.packets.WriteToUDPAddrPort(buffer[:size], client)
	}
}
