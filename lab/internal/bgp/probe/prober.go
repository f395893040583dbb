// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// DefaultInterval is between two probes of a pair.
const DefaultInterval = 20 * time.Millisecond

const (
	// patience is how long after the end a packet may still arrive.
	patience = time.Second
	// buffer is the size of a socket's receive buffer. A packet that arrives while this process waits for a processor must not be dropped.
	buffer = 4 << 20
	// packetSize is that of a probe: the numbers of the pair and of the shot.
	packetSize = 8
	// longest is how long a probe lasts that nobody stops.
	longest = time.Hour
)

// End is a pod address of a node.
type End struct {
	Node    string
	Address netip.Addr
	// Do runs a function in the node's network namespace.
	Do func(func() error) error
}

// Prober sends probes until it is stopped, or an hour has passed.
type Prober struct {
	ends     []End
	sockets  []*net.UDPConn
	targets  []netip.AddrPort
	interval time.Duration
	started  time.Time
	cancel   context.CancelFunc
	senders  sync.WaitGroup
	readers  sync.WaitGroup
	// tracks are of from*len(ends)+to.
	tracks []track
}

// track is what is known of one direction.
type track struct {
	mu    sync.Mutex
	shots []Shot
}

// family is that of the end, as in Pair.
func (e End) family() string {
	if e.Address.Is6() {
		return IPv6
	}
	return ""
}

// pair reports whether packets go from one end to another: they are of different nodes and one family.
func (p *Prober) pair(from, to int) bool {
	return p.ends[from].Node != p.ends[to].Node && p.ends[from].family() == p.ends[to].family()
}

// Start begins to send; the end of ctx ends that. The sockets are bound to the ends' addresses, in their namespaces.
func Start(ctx context.Context, ends []End, interval time.Duration) (*Prober, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	p := &Prober{ends: ends, interval: interval, started: time.Now(), cancel: cancel, tracks: make([]track, len(ends)*len(ends))}
	for _, end := range ends {
		socket, err := end.listen()
		if err != nil {
			p.close()
			return nil, fmt.Errorf("opening a socket on %s: %w", end.Node, err)
		}
		p.sockets = append(p.sockets, socket)
		p.targets = append(p.targets, socket.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	for i := range p.sockets {
		p.readers.Go(func() { p.receive(i) })
		p.senders.Go(func() { p.send(ctx, i) })
	}
	return p, nil
}

func (e End) listen() (socket *net.UDPConn, err error) {
	err = e.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(e.Address, 0)))
		return err
	})
	if err == nil {
		err = socket.SetReadBuffer(buffer)
	}
	return socket, err
}

func (p *Prober) close() {
	p.cancel()
	for _, socket := range p.sockets {
		_ = socket.Close()
	}
}

// Stop ends it, waits for packets that are on their way, and returns what became of all.
func (p *Prober) Stop() map[Pair][]Shot {
	p.cancel()
	p.senders.Wait()
	timer := time.NewTimer(patience)
	<-timer.C
	p.close()
	p.readers.Wait()
	out := make(map[Pair][]Shot, len(p.tracks))
	for from, a := range p.ends {
		for to, b := range p.ends {
			if p.pair(from, to) {
				out[Pair{From: a.Node, To: b.Node, Family: a.family()}] = p.tracks[from*len(p.ends)+to].shots
			}
		}
	}
	return out
}

// send sends a probe from one end to each other in every interval. A tick that comes too late is left out by the ticker.
func (p *Prober) send(ctx context.Context, from int) {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	var packet [packetSize]byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for to := range p.ends {
			if !p.pair(from, to) {
				continue
			}
			number := from*len(p.ends) + to
			binary.BigEndian.PutUint32(packet[:], uint32(number))
			binary.BigEndian.PutUint32(packet[4:], p.tracks[number].add(time.Since(p.started)))
			// An error, such as that there is no route, is a loss.
			_, _ = p.sockets[from].WriteToUDPAddrPort(packet[:], p.targets[to])
		}
	}
}

func (p *Prober) receive(at int) {
	var packet [packetSize + 1]byte
	for {
		n, _, err := p.sockets[at].ReadFromUDPAddrPort(packet[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != packetSize {
			continue
		}
		number := int(binary.BigEndian.Uint32(packet[:]))
		if number < len(p.tracks) {
			p.tracks[number].arrived(binary.BigEndian.Uint32(packet[4:]))
		}
	}
}

func (t *track) add(at time.Duration) (number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shots = append(t.shots, Shot{At: at})
	return uint32(len(t.shots) - 1)
}

func (t *track) arrived(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int(number) < len(t.shots) {
		t.shots[number].Arrived = true
	}
}
