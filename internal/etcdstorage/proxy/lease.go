// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// grantAttempts is how often an ID is drawn for a lease whose ID the tenant leaves to the server. A draw fails only if the tenant has a lease of
// that very ID, so the second attempt is rare even for a tenant with a million leases.
const grantAttempts = 16

// leaseBytes is what a lease takes in a LeaseLeasesResponse.
const leaseBytes = 12

// errNoLeaseID is the answer when all draws failed.
var errNoLeaseID = status.Error(codes.Unavailable, "etcd-storage-proxy: no free lease ID was found, try again")

// leaseRoutes are the methods of etcdserverpb.Lease. A lease ID of the tenant is mapped into its lease space and back, so that the leases of others
// cannot even be named.
func (p *Proxy) leaseRoutes() map[string]route {
	return map[string]route{
		etcdserverpb.Lease_LeaseGrant_FullMethodName: {unary: p.leaseGrant, logged: true},
		etcdserverpb.Lease_LeaseRevoke_FullMethodName: {forward: &forward{
			request: func(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
				dst, lease, err := wire.AppendLeaseRevoke(dst, tenant, request)
				return dst, cost{state: lease, stale: true, work: logged(0)}, err
			},
			response: func(dst []byte, c cost, response []byte) ([]byte, error) {
				dst, info, err := wire.AppendLeaseRevokeResponse(dst, c.seen.tenant, response)
				if err == nil {
					p.leases.revoked()
					err = p.responded(&c, info.Header)
				}
				return dst, err
			},
		}},
		etcdserverpb.Lease_LeaseTimeToLive_FullMethodName: {forward: &forward{
			request: func(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
				dst, lease, err := wire.AppendLeaseTimeToLive(dst, tenant, request)
				return dst, cost{state: lease, stale: true, work: quota.Work{Calls: 1}}, err
			},
			response: func(dst []byte, c cost, response []byte) ([]byte, error) {
				dst, info, err := wire.AppendLeaseTimeToLiveResponse(dst, c.seen.tenant, response, c.state)
				if err == nil {
					err = p.responded(&c, info.Header)
				}
				return dst, err
			},
		}},
		etcdserverpb.Lease_LeaseLeases_FullMethodName: {forward: &forward{
			request: func(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
				dst, err := wire.AppendLeaseLeases(dst, tenant, request)
				return dst, cost{stale: true, leases: true, work: quota.Work{Calls: 1, Values: p.listed.Load()}}, err
			},
			response: func(dst []byte, c cost, response []byte) ([]byte, error) {
				dst, info, err := wire.AppendLeaseLeasesResponse(dst, c.seen.tenant, response)
				n := int64(len(response) / leaseBytes) // the core sorts those of all tenants
				p.pay(quota.Work{Values: n - c.work.Values}, c.class())
				p.listed.Store(n)
				if err == nil {
					err = p.responded(&c, info.Header)
				}
				return dst, err
			},
		}},
		etcdserverpb.Lease_LeaseKeepAlive_FullMethodName: {stream: p.leaseKeepAlive},
	}
}

// leaseGrant grants a lease if the tenant may have one more.
func (p *Proxy) leaseGrant(ctx context.Context, c *call, request []byte) ([]byte, error) {
	room, err := p.leases.room(ctx)
	if err != nil {
		return nil, err
	}
	if !room {
		return nil, tooMany(limitLeases, 0)
	}
	response, err := p.grant(ctx, c, request)
	p.leases.answered(err)
	return response, err
}

// grant draws an ID if the tenant gives none, and another if the tenant has that lease already.
func (p *Proxy) grant(ctx context.Context, c *call, request []byte) ([]byte, error) {
	for range grantAttempts {
		draw, err := drawLease()
		if err != nil {
			return nil, err
		}
		tenant := c.seen.tenant
		out, grant, err := wire.AppendLeaseGrant(nil, tenant, request, draw)
		if err != nil {
			return nil, err
		}
		response, err := p.up.Unary(ctx, c.method, c.requireLeader, out)
		switch {
		case err == nil:
			response, info, err := wire.AppendLeaseGrantResponse(nil, tenant, response, grant.Visible)
			if err == nil {
				p.glimpse(c.seen, info.Header)
			}
			return response, err
		case !grant.Drawn || rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseExist):
			return nil, err
		}
	}
	return nil, errNoLeaseID
}

// drawLease is a random number above 0.
func drawLease() (uint32, error) {
	for {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("drawing a lease ID: %w", err)
		}
		if n := binary.BigEndian.Uint32(b[:]); n > 0 {
			return n, nil
		}
	}
}

// leaseKeepAlive passes one stream on. As in etcd, a request is read when the one before it is answered. The end of the core's stream (no leader,
// connection lost) is the end of the tenant's at once, even while nothing is asked. When the connection to the core was replaced, the stream goes on
// over the new one; the tenant sees nothing of it.
func (p *Proxy) leaseKeepAlive(stream ServerStream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	now, err := p.ready(ctx)
	if err != nil {
		return err
	}
	k := keepAlive{p: p, seen: now, stream: stream}
	if err := k.connect(ctx, p.up); err != nil {
		return err
	}
	requests := receiveAll(ctx, func() ([]byte, error) {
		m, err := stream.Recv()
		if err == nil {
			err = p.budgets.keeps.await(ctx, 1, p.metrics.waited(limitKeeps).Inc)
		}
		return m, err
	})
	open := requests // nil while the core's answer is awaited
	for {
		retired := k.retired
		if open == nil {
			retired = nil // the answer comes on the old stream
		}
		var err error
		select {
		case <-p.draining:
			return errDraining
		case <-now.past.over:
			return errWentBack
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-retired:
			if k.connect(ctx, p.up) != nil {
				k.retired = nil // the old one still serves
			}
		case r := <-open:
			if errors.Is(r.err, io.EOF) {
				return nil // the tenant has no more
			}
			err = k.request(r)
			open = nil
		case r := <-k.responses:
			err = k.response(r)
			open = requests
		}
		if err != nil {
			return p.answer(etcdserverpb.Lease_LeaseKeepAlive_FullMethodName, err)
		}
	}
}

// keepAlive is one stream of keep-alives.
type keepAlive struct {
	p         *Proxy
	seen      seen
	stream    ServerStream
	core      ClientStream
	responses <-chan received
	retired   <-chan struct{} // of core
	leave     func()          // ends core
	asked     int64           // the lease of the last request
}

// connect opens a stream to the core in place of the one that there was, if there was one.
func (k *keepAlive) connect(ctx context.Context, up upstream) error {
	if now, err := k.p.ready(ctx); err != nil || now.past != k.seen.past {
		return cmp.Or(err, errWentBack)
	}
	ctx, cancel := context.WithCancel(ctx)
	core, err := up.Stream(ctx, etcdserverpb.Lease_LeaseKeepAlive_FullMethodName, k.stream.RequireLeader())
	if err != nil {
		cancel()
		return err
	}
	if k.leave != nil {
		k.leave()
	}
	k.core, k.leave, k.retired, k.responses = core, cancel, core.Retired(), receiveAll(ctx, core.Recv)
	return nil
}

func (k *keepAlive) request(r received) (err error) {
	if r.err != nil {
		return r.err
	}
	var out []byte
	if out, k.asked, err = wire.AppendLeaseKeepAlive(nil, k.seen.tenant, r.message); err != nil {
		return err
	}
	if err := k.core.Send(out); !errors.Is(err, io.EOF) { // if it is, the responses have the reason
		return err
	}
	return nil
}

func (k *keepAlive) response(r received) error {
	switch {
	case errors.Is(r.err, io.EOF):
		return errCoreEnded
	case r.err != nil:
		return r.err
	}
	out, info, err := wire.AppendLeaseKeepAliveResponse(nil, k.seen.tenant, r.message, k.asked)
	if err == nil {
		k.p.glimpse(k.seen, info.Header)
	}
	if err != nil {
		return err
	}
	return k.stream.Send(out)
}

// errCoreEnded answers a stream whose counterpart the core ended without an error.
var errCoreEnded = status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd ended the stream")

// received is a message of a stream, or its end.
type received struct {
	message []byte
	err     error
}

// receiveAll reads a stream in a goroutine of its own, which ends with the stream, or with ctx once the stream has something to say.
func receiveAll(ctx context.Context, receive func() ([]byte, error)) <-chan received {
	out := make(chan received)
	go func() {
		for {
			var r received
			r.message, r.err = receive()
			select {
			case out <- r:
			case <-ctx.Done():
				return
			}
			if r.err != nil {
				return
			}
		}
	}()
	return out
}
