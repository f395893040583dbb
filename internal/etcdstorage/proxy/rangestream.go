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
	c := cost{list: true, seen: now, stale: info.Serializable, work: quota.Work{Calls: 1}, values: valuesOf(info)}
	if !info.Single {
		p.estimate(&c, wire.SpanOf(out))
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

// rangeFrom makes the call to the core. The core does not notice that the tenant gave up before it has its next chunk ready:
// the call ends then, and so does the seat.
func (p *Proxy) rangeFrom(stream ServerStream, request []byte, c *cost) error {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	opening := context.AfterFunc(stream.Context(), cancel)
	core, err := p.up.Stream(ctx, etcdserverpb.KV_RangeStream_FullMethodName, stream.RequireLeader())
	if !opening() {
		return status.FromContextError(stream.Context().Err()).Err()
	}
	if err != nil {
		return err
	}
	if err := core.Send(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := core.CloseSend(); err != nil {
		return err
	}
	r := rangeAnswer{p: p, cost: c, core: core, stream: stream}
	defer r.settle()
	return r.run()
}

// rangeAnswer is the answer to a RangeStream.
type rangeAnswer struct {
	p      *Proxy
	cost   *cost
	core   ClientStream
	stream ServerStream

	counted bool  // the last chunk came
	over    bool  // the core has said how it ended
	read    int64 // bytes that came
}

// run passes on what the core answers. Unlike a unary answer, a chunk that is outside the boundary can come after good ones; it is
// withheld, and the stream ends.
func (r *rangeAnswer) run() error {
	for {
		chunk, err := r.core.Recv()
		if errors.Is(err, io.EOF) {
			r.over = true
			return nil
		}
		if err != nil {
			r.over = !uncertain(status.Code(err))
			return err
		}
		r.read += int64(len(chunk))
		if err := r.p.await(r.stream.Context(), quota.Work{Read: int64(len(chunk))}); err != nil {
			return err
		}
		answer, err := r.rewrite(chunk)
		if err != nil {
			return err
		}
		if err := r.p.patiently(r.stream, answer); err != nil {
			return err
		}
	}
}

// rewrite makes a chunk the tenant's.
func (r *rangeAnswer) rewrite(chunk []byte) ([]byte, error) {
	answer, info, err := wire.AppendRangeStreamResponse(roomFor(r.cost, chunk), r.cost.seen.tenant, chunk)
	if err == nil && info.HasHeader {
		r.counted = true
		r.p.counted(r.cost, info.Count)
		err = r.p.responded(r.cost, info.Header)
	}
	if err == nil {
		err = r.p.still(r.cost.seen)
	}
	return answer, err
}

// settle pays for what of the answer the core may have made, and nobody has received: the keys that it looked at, and as
// many bytes as there is room for on the way.
func (r *rangeAnswer) settle() {
	if r.over || r.counted {
		return
	}
	c := *r.cost
	c.work.Read = 0
	r.p.unseen(&c, 1)
	if left := r.p.ledger.expectedOf(c.values) - r.read; left > 0 {
		r.p.pay(quota.Work{Read: min(left, streamWindow)}, quota.Large)
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
