// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/lab/internal/relay"
)

// proxy listens at the fronts and carries what comes to one of the backends. Only one goroutine may use it.
type proxy struct {
	ctx   context.Context
	ports map[front]*port
	// stopped are servers that listen no more and may have connections still.
	stopped []*relay.Server
}

// port is an open front.
type port struct {
	behind atomic.Pointer[[]netip.AddrPort]
	tcp    *relay.Server
	udp    *forwarder
}

// pick chooses an endpoint as kube-proxy does: any, whether it answers or not.
func (p *port) pick() netip.AddrPort {
	behind := *p.behind.Load()
	return behind[rand.IntN(len(behind))] //nolint:gosec // no secret
}

func newProxy(ctx context.Context) *proxy { return &proxy{ctx: ctx, ports: map[front]*port{}} }

// apply opens, changes and closes ports until they are what is wanted. Connections that are open stay as they are, as with kube-proxy. What cannot be
// opened is in the error, and is tried again by the next call.
func (p *proxy) apply(wanted backends) error {
	for f, open := range p.ports {
		if _, ok := wanted[f]; ok {
			continue
		}
		p.shut(open)
		delete(p.ports, f)
	}
	p.stopped = slices.DeleteFunc(p.stopped, (*relay.Server).Idle)
	var errs []error
	for f, behind := range wanted {
		if open, ok := p.ports[f]; ok {
			open.behind.Store(&behind)
			continue
		}
		open := &port{}
		open.behind.Store(&behind)
		if err := p.open(f, open); err != nil {
			errs = append(errs, fmt.Errorf("listening at %v %s: %w", f.address, f.protocol, err))
			continue
		}
		p.ports[f] = open
	}
	return errors.Join(errs...)
}

func (p *proxy) open(f front, into *port) error {
	var config net.ListenConfig
	if f.protocol == corev1.ProtocolUDP {
		packets, err := config.ListenPacket(p.ctx, "udp4", f.address.String())
		if err != nil {
			return err
		}
		into.udp = forward(packets.(*net.UDPConn), into.pick)
		return nil
	}
	listener, err := config.Listen(p.ctx, "tcp4", f.address.String())
	if err != nil {
		return err
	}
	into.tcp = relay.Serve(p.ctx, listener.(*net.TCPListener), func(ctx context.Context) (*net.TCPConn, error) {
		return relay.DialTo(into.pick().String())(ctx)
	})
	return nil
}

// shut listens no more at a port: whoever comes next is refused.
func (p *proxy) shut(open *port) {
	if open.udp != nil {
		open.udp.close()
		return
	}
	open.tcp.Stop()
	p.stopped = append(p.stopped, open.tcp)
}

// close ends all of it, open connections included.
func (p *proxy) close() {
	for f, open := range p.ports {
		p.shut(open)
		delete(p.ports, f)
	}
	for _, server := range p.stopped {
		server.Close()
	}
}
