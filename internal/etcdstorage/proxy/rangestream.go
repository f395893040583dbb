// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

const (
	// streamWindow is how many bytes of a RangeStream the core may send that the tenant has not taken.
	streamWindow = 1 << 20
	// readPatience is how long a RangeStream may wait for the tenant to read. It has a seat, and the core keeps a revision for it.
	readPatience = 30 * time.Second
)

// rangeStream forwards one request and rewrites the chunks of its answer one by one. It has a seat of those for large answers until its end.
func (p *Proxy) rangeStream(stream ServerStream) error {
	request, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return errNoMessage
	}
	if err != nil {
		return err
	}
	now, err := p.ready(stream.Context())
	if err != nil {
		return err
	}
	out, info, err := wire.AppendRangeStream(nil, now.tenant, request)
	if err == nil {
		err = p.readable(info.Revision)
	}
	if err != nil {
		return err
	}
	c := cost{list: true, seen: now, stale: info.Serializable, work: quota.Work{Calls: 1}}
	if !info.Single {
		p.estimate(&c, out)
	}
	var place seat
	if err := p.sitForList(stream.Context(), &place); err != nil {
		return err
	}
	defer p.lists.leave(&place)
	if err := p.await(stream.Context(), p.price(&c)); err != nil {
		return err
	}
	if s, ok := stream.(tenantStream); ok {
		s.s.Uncounted = true // there are no more of them than seats
	}
	return p.rangeFrom(stream, out, &c)
}

// sitForList waits for a seat of those for large answers.
func (p *Proxy) sitForList(ctx context.Context, place *seat) error {
	granted := make(chan struct{})
	now, ok := p.lists.enter(place, func() { close(granted) })
	switch {
	case !ok:
		return p.refuse(limitQueue, queueRetry)
	case now:
		return nil
	}
	p.metrics.waited(limitQueue).Inc()
	select {
	case <-granted:
		return nil
	case <-p.draining:
		p.lists.leave(place)
		return errDraining
	case <-ctx.Done():
		p.lists.leave(place)
		return status.FromContextError(ctx.Err()).Err()
	}
}

// rangeFrom makes the call to the core, which ends with the stream: the core stops at its next chunk.
func (p *Proxy) rangeFrom(stream ServerStream, request []byte, c *cost) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	core, err := p.up.Stream(ctx, etcdserverpb.KV_RangeStream_FullMethodName, stream.RequireLeader())
	if err != nil {
		return err
	}
	if err := core.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := core.CloseSend(); err != nil {
		return err
	}
	return p.rangeChunks(core, stream, c)
}

// rangeChunks passes on what the core answers. Unlike a unary answer, a chunk that is outside the boundary can come after good ones; it is
// withheld, and the stream ends.
func (p *Proxy) rangeChunks(core ClientStream, stream ServerStream, c *cost) error {
	for {
		chunk, err := core.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.await(stream.Context(), quota.Work{Read: int64(len(chunk))}); err != nil {
			return err
		}
		answer, info, err := wire.AppendRangeStreamResponse(roomFor(c, chunk), c.seen.tenant, chunk)
		if err == nil && info.HasHeader {
			p.counted(c, info.Count)
			err = p.responded(c, info.Header)
		}
		if err == nil {
			err = p.still(c.seen)
		}
		if err != nil {
			return err
		}
		if err := p.patiently(stream, answer); err != nil {
			return err
		}
	}
}

// roomFor is where a chunk is rewritten: where it is, unless it may become longer.
func roomFor(c *cost, chunk []byte) []byte {
	if c.seen.tenant.Revisions.Offset() > 0 {
		return nil
	}
	return chunk[:0]
}

// patiently sends a message and waits until the client has taken it; when that takes too long the stream ends, with what it holds. So a stream that has a
// seat holds one chunk, and none holds more without a seat.
func (p *Proxy) patiently(stream ServerStream, message []byte) error {
	s, ok := stream.(tenantStream)
	if !ok {
		return stream.Send(message)
	}
	defer time.AfterFunc(p.readPatience, s.s.Abort).Stop()
	if err := s.Send(message); err != nil {
		return err
	}
	return s.s.Drained()
}
