// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
)

// front answers the calls of the listening side. Its methods run in connections' readers.
type front struct{ p *Proxy }

// verdict is what is known of a connection: what Authorize said, and when the certificates end that it was made with.
type verdict struct {
	err error
	// client is the end of the client's certificate, serving that of the one that the client was shown; zero where there is none.
	client, serving time.Time
	// cert is the client's certificate; nil where there is none.
	cert *x509.Certificate
}

// Error is the text for the tenant.
func (v verdict) Error() string {
	if v.err == nil {
		return "etcd-storage-proxy: the connection was not judged"
	}
	return v.err.Error()
}

// Accept implements h2.Handler.
func (f front) Accept(info credentials.AuthInfo, remote net.Addr) h2.Admission {
	share, err := f.p.judge(info, remote)
	v := verdict{err: err, client: clientEnd(info), serving: servingEnd(info)}
	if state, _ := stateOf(info); err == nil && len(state.PeerCertificates) > 0 {
		v.cert = state.PeerCertificates[0]
	}
	return h2.Admission{Peer: v, Share: share, Refused: err != nil}
}

// Excess implements h2.Handler.
func (f front) Excess(share string, remote net.Addr) {
	f.p.metrics.refused(limitConnections).Inc()
	if f.p.cfg.Excess != nil {
		f.p.cfg.Excess(share, remote)
	}
}

// Begin implements h2.Handler.
func (f front) Begin(s *h2.Stream, b *h2.Batch) func(*h2.Stream) {
	p := f.p
	r := &rpc{p: p, s: s, metrics: p.metrics.method(s.Method, p.known(s.Method)), started: clock()}
	r.metrics.inFlight.Inc()
	streams := p.streams.Add(1)
	s.Value = r
	if v, ok := s.Peer().(verdict); !ok || v.err != nil {
		r.fail(b, status.Error(codes.PermissionDenied, v.Error()))
		return nil
	}
	route, err := p.route(s.Method)
	if err == nil && p.cfg.Streams > 0 && streams > int64(p.cfg.Streams) && !route.local {
		err = p.refuse(limitStreams, queueRetry)
	}
	if err != nil {
		r.fail(b, err)
		return nil
	}
	r.route = route
	s.OnCancel = r.canceled
	if route.stream == nil {
		return nil
	}
	return func(s *h2.Stream) { r.fail(nil, p.answer(s.Method, r.stream())) }
}

// Refused implements h2.Handler.
func (f front) Refused(s *h2.Stream, st h2.Status) {
	if r, ok := s.Value.(*rpc); ok {
		r.count(st.Code)
		r.release(true)
	}
}

// Unary implements h2.Handler.
func (f front) Unary(s *h2.Stream, b *h2.Batch, request []byte) {
	r := s.Value.(*rpc) //nolint:forcetypeassert // Begin set it
	if r.route.unary == nil {
		r.forward(b, request)
		return
	}
	wait := time.Duration(0)
	if !r.route.local {
		work := quota.Work{Calls: 1}
		if r.route.logged {
			work.Logged = 1
		}
		var err error
		if wait, err = r.p.take(work, quota.Small); err != nil {
			r.fail(b, err)
			return
		}
	}
	if !r.hold(len(request)) {
		r.fail(b, r.p.refuse(limitQueue, queueRetry))
		return
	}
	kept := append(make([]byte, 0, len(request)), request...)
	r.later(func() {
		if wait > 0 && !pause(s.Context(), wait) {
			r.fail(nil, status.FromContextError(s.Context().Err()).Err())
			return
		}
		r.unary(kept)
	})
}

// Panicked implements h2.Handler.
func (f front) Panicked(s *h2.Stream, reason any) h2.Status {
	st := status.Convert(f.p.panicked(s.Method, reason))
	if r, ok := s.Value.(*rpc); ok {
		r.count(st.Code())
		r.release(false)
	}
	return h2.Status{Code: st.Code(), Message: st.Message()}
}

// tenantStream is a streaming call as its handler sees it.
type tenantStream struct{ s *h2.Stream }

// Context implements ServerStream.
func (t tenantStream) Context() context.Context { return t.s.Context() }

// RequireLeader implements ServerStream.
func (t tenantStream) RequireLeader() bool { return t.s.RequireLeader }

// Recv implements ServerStream.
func (t tenantStream) Recv() ([]byte, error) { return t.s.Recv() }

// Send implements ServerStream.
func (t tenantStream) Send(parts ...[]byte) error { return t.s.Send(parts...) }

// rpc is one call of the tenant, and the sink of the call to the core that it becomes.
type rpc struct {
	p       *Proxy
	s       *h2.Stream
	route   route
	metrics *methodMetrics
	started time.Time
	counted sync.Once

	place seat // at the core

	request *h2.Buf // as it goes to the core, kept until the answer
	cost    cost
	token   string
	again   bool // it is the second attempt
	waited  bool // it has paid some time before it had its seat

	received int64 // bytes of the core's response

	answer *h2.Buf // as it goes to the tenant
	err    error   // instead

	mu       sync.Mutex
	call     h2.Call
	held     int64  // bytes of the request that count as waiting
	charged  int    // bytes that count as history
	seats    *seats // where place is; nil before there is one
	gone     bool   // the tenant has its answer, or gave up
	atCore   bool   // the core may be working on it, and anyone who waits for the core's answer releases
	released bool
}

// later runs f in a goroutine of its own.
func (r *rpc) later(f func()) {
	r.p.work.Go(func() {
		defer func() {
			if reason := recover(); reason != nil {
				r.fail(nil, r.p.panicked(r.s.Method, reason))
			}
		}()
		f()
	})
}

// hold counts bytes of a request that has to wait; false if too many wait.
func (r *rpc) hold(bytes int) bool {
	if r.p.waiting.Add(int64(bytes)) > r.p.mostWaitingBytes {
		r.p.waiting.Add(-int64(bytes))
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		r.p.waiting.Add(-int64(bytes))
		return true
	}
	r.held += int64(bytes)
	return true
}

// forward rewrites a request and sends it to the core. It never blocks: what would have to wait goes on in a goroutine.
func (r *rpc) forward(b *h2.Batch, request []byte) {
	// The prefix makes a request a little longer.
	r.request = h2.GetBuf(h2.MessageRoom + len(request) + len(request)/8 + 256)
	err := r.rewrite(request)
	switch {
	case errors.Is(err, errNotLoaded), errors.Is(err, errNotCounted), errors.Is(err, errBehind):
		if !r.hold(len(request)) {
			r.fail(b, r.p.refuse(limitQueue, queueRetry))
			return
		}
		request := append(make([]byte, 0, len(request)), request...)
		r.later(func() { r.loaded(request) })
		return
	case err != nil:
		r.fail(b, r.p.answer(r.s.Method, err))
		return
	}
	r.admitted(b)
}

// admitted goes on once there are bytes and a seat for the request.
func (r *rpc) admitted(b *h2.Batch) {
	if r.p.fewKeys(&r.cost) {
		r.cost.spans = nil
	}
	r.p.classify(&r.cost)
	if r.p.answers.Crowded() {
		r.fail(b, r.p.refuse(limitAnswers, queueRetry))
		return
	}
	var wait time.Duration
	var err error
	if !r.cost.list { // a large request takes its price when it has a seat
		wait, err = r.p.take(r.cost.work, quota.Small)
	}
	if err == nil && wait > 0 && !r.hold(len(r.request.B)) {
		err = r.p.refuse(limitQueue, queueRetry)
	}
	if err == nil && r.cost.written > 0 {
		err = r.charge()
	}
	if err != nil {
		r.fail(b, err)
		return
	}
	if wait == 0 {
		r.seatedThen(b)
		return
	}
	r.waited = true
	r.later(func() {
		if ctx := r.s.Context(); !pause(ctx, wait) {
			r.fail(nil, status.FromContextError(ctx.Err()).Err())
			return
		}
		r.seatedThen(nil)
	})
}

// seatedThen sends the request to the core as soon as it has a seat.
func (r *rpc) seatedThen(b *h2.Batch) {
	if !r.seated(b) || !r.leaves() {
		return
	}
	wait, err := r.paid()
	if err != nil {
		r.fail(b, err)
		return
	}
	if wait > 0 || len(r.cost.spans) > 0 {
		r.later(func() { r.startAfter(wait) })
		return
	}
	token, ok := r.p.core.tokenNow()
	if ok {
		r.token = token
		var call h2.Call
		if call, ok = r.p.core.pool.TryStart(b, r.coreRequest(), r.request.B, r); ok {
			r.begun(call)
		}
	}
	if !ok {
		r.later(r.start)
	}
}

// leaves notes that the request is on its way to the core; false if the tenant is gone already.
func (r *rpc) leaves() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atCore = !r.gone
	return r.atCore
}

// rewrite makes the request the core's, and keeps what its answer must be told. A tenant that gave up meanwhile has no response.
func (r *rpc) rewrite(request []byte) error {
	now := r.p.seen()
	if now.tenant == nil {
		return errNotLoaded
	}
	out, c, err := r.route.forward.request(r.request.B[:h2.MessageRoom], now.tenant, request)
	c.seen = now
	r.request.B = out
	r.mu.Lock()
	r.cost = c
	over := r.released
	r.mu.Unlock()
	if over {
		r.route.forward.end(c.state, true)
	}
	return err
}

// end tells of the end of an RPC.
func (f *forward) end(state int64, sure bool) {
	if f != nil && f.ended != nil {
		f.ended(state, sure)
	}
}

// loaded goes on once the compact revision is known, and for what grows what the tenant stores: reads do not wait for that.
func (r *rpc) loaded(request []byte) {
	err := errNotLoaded
	for errors.Is(err, errNotLoaded) || errors.Is(err, errNotCounted) { // again, maybe; both waits end with the context
		wait := r.p.compaction.wait
		if errors.Is(err, errNotCounted) {
			wait = r.p.ledger.wait
		}
		if err = wait(r.s.Context()); err == nil {
			err = r.rewrite(request)
		}
	}
	if errors.Is(err, errBehind) {
		r.p.ledger.catchUp(r.s.Context())
		if err = r.rewrite(request); errors.Is(err, errBehind) {
			err = r.p.ledger.refused() // by writes that are newer than this request
		}
	}
	if err != nil {
		r.fail(nil, r.p.answer(r.s.Method, err))
		return
	}
	r.admitted(nil)
}

// seated takes a seat at the core. If there is none it goes on once there is; too many that wait are refused.
func (r *rpc) seated(b *h2.Batch) bool {
	since := clock()
	now, ok := r.enter(r.cost.list, func() {
		r.p.budgets.queued(since)
		r.later(func() {
			if !r.leaves() {
				return
			}
			r.waited = true
			wait, err := r.paid()
			if err != nil {
				r.fail(nil, err)
				return
			}
			r.startAfter(wait)
		})
	})
	if ok && !now {
		r.p.metrics.waited(limitQueue).Inc()
		if !r.hold(len(r.request.B)) {
			ok = false
		}
	}
	if !ok {
		r.fail(b, r.p.refuse(limitQueue, queueRetry))
	}
	return now && ok
}

// enter takes a seat, or a place in the queue for one.
func (r *rpc) enter(list bool, granted func()) (now, ok bool) {
	seats := &r.p.seats
	if list {
		seats = &r.p.lists
	}
	now, ok = seats.enter(&r.place, granted)
	r.mu.Lock()
	r.seats = seats
	over := r.released
	r.mu.Unlock()
	if over { // the tenant gave up before there was a place to give back
		seats.leave(&r.place)
	}
	return now && !over, ok
}

// sit waits for a seat; if there is none the call has failed.
func (r *rpc) sit(ctx context.Context) bool {
	granted, since := make(chan struct{}), clock()
	now, ok := r.enter(false, func() { close(granted) })
	if !ok {
		r.fail(nil, r.p.refuse(limitQueue, queueRetry))
		return false
	}
	if !now {
		r.p.metrics.waited(limitQueue).Inc()
		select {
		case <-granted:
			r.p.budgets.queued(since)
		case <-ctx.Done():
			r.fail(nil, status.FromContextError(ctx.Err()).Err())
			return false
		}
	}
	return r.leaves()
}

// coreRequest is the call to the core. What a tenant gives up is not given up there: at the end of a deadline the core would
// end the call at once, and work on without a word of it. A seat is taken until the core has answered.
func (r *rpc) coreRequest() *h2.Request {
	return &h2.Request{
		Method: r.s.Method, Timeout: h2.AtLeast(r.s.Timeout, unaryTime), Token: r.token, RequireLeader: r.s.RequireLeader,
	}
}

// start sends the request to the core, logging in and waiting for a connection if need be. When all connections were lost, it waits until it is sure that
// the core is the one that the request was rewritten for.
func (r *rpc) start() {
	ctx := r.s.Context()
	now, err := r.p.ready(ctx)
	if err == nil && now.past != r.cost.seen.past {
		err = errWentBack
	}
	var token string
	if err == nil {
		r.cost.seen = now
		token, err = r.p.core.login(ctx)
	}
	if err == nil {
		r.token = token
		var call h2.Call
		if call, err = r.p.core.pool.Start(ctx, r.coreRequest(), r.request.B, r); err == nil {
			r.begun(call)
			return
		}
		err = r.p.core.error(err)
	}
	r.fail(nil, err)
}

// begun keeps the call to the core, so that it is known when the tenant gives up.
func (r *rpc) begun(call h2.Call) {
	r.mu.Lock()
	r.call = call
	gone := r.gone
	r.mu.Unlock()
	if gone {
		call.Abandon()
	}
}

// canceled notes that the tenant gave up. What the core works on goes on: its seat and its room are held until the core has done with it.
func (r *rpc) canceled(*h2.Batch) {
	r.mu.Lock()
	r.gone = true
	call, atCore := r.call, r.atCore
	r.mu.Unlock()
	r.count(codes.Canceled)
	if atCore {
		call.Abandon()
	} else {
		r.release(true)
	}
}

// Message implements h2.Sink: the core's answer is rewritten, and kept until the status comes. A large one is rewritten where it is.
func (r *rpc) Message(_ *h2.Batch, message []byte, own *h2.Buf) {
	defer func() {
		if reason := recover(); reason != nil {
			r.err = r.p.panicked(r.s.Method, reason)
		}
	}()
	f := r.route.forward
	r.received += int64(len(message))
	if own != nil && f.inPlace && r.cost.seen.tenant.Revisions.Offset() == 0 {
		r.answer = own
		own.B, r.err = f.response(own.B[:h2.MessageRoom], r.cost, message)
	} else {
		r.answer = h2.GetBuf(h2.MessageRoom + len(message))
		r.answer.B, r.err = f.response(r.answer.B[:h2.MessageRoom], r.cost, message)
		own.MoveHold(r.answer)
		own.Release()
	}
	if r.err == nil {
		r.err = r.p.still(r.cost.seen)
	}
}

// Done implements h2.Sink.
func (r *rpc) Done(b *h2.Batch, s h2.Status) {
	if !s.OK() && !r.again && (s.Unprocessed || r.p.core.loggedOut(r.token, s.Message)) {
		r.again = true
		r.later(r.start)
		return
	}
	r.settle(s)
	r.request.Release()
	r.request = nil
	r.release(s.OK() && r.err == nil || s.Unprocessed || !s.OK() && !uncertain(s.Code))
	switch {
	case !s.OK():
		r.fail(b, r.p.core.error(s))
	case r.err != nil:
		r.fail(b, r.p.answer(r.s.Method, r.err))
	default:
		r.reply(b, r.answer)
		r.answer = nil
		return
	}
	r.answer.Release()
	r.answer = nil
}

// settle pays for what the core has done, as its response shows, or for what it may have done without one. The seat is given
// back afterwards.
func (r *rpc) settle(s h2.Status) {
	if r.answer == nil && !s.Answered && !s.Unprocessed {
		r.p.unseen(&r.cost, s.Unread)
		if s.Unread == 0 {
			return
		}
	}
	r.p.read(r.received+s.Unread, &r.cost)
}

// reply answers with a message.
func (r *rpc) reply(b *h2.Batch, buf *h2.Buf) {
	r.count(codes.OK)
	r.s.Reply(b, buf)
}

// fail answers with a status; nil is OK, for streams. The core has nothing to do with the call any more.
func (r *rpc) fail(b *h2.Batch, err error) {
	s := status.Convert(err)
	r.count(s.Code())
	r.release(true)
	r.s.Fail(b, h2.Status{Code: s.Code(), Message: s.Message()})
}

// count counts the end of the call, as the tenant sees it, once.
func (r *rpc) count(code codes.Code) {
	r.counted.Do(func() {
		r.metrics.inFlight.Dec()
		r.p.streams.Add(-1)
		r.mu.Lock()
		r.gone = true
		r.mu.Unlock()
		r.metrics.done(code, clock().Sub(r.started), r.route.stream == nil)
	})
}

// release gives back what the call has taken of the core, once. sure tells that nothing was done there that has not been answered.
func (r *rpc) release(sure bool) {
	r.mu.Lock()
	if r.released {
		r.mu.Unlock()
		return
	}
	r.released = true
	seats, held, state, charged := r.seats, r.held, r.cost.state, r.charged
	r.mu.Unlock()
	if charged > 0 {
		r.p.ledger.charged(charged)
	}
	if held > 0 {
		r.p.waiting.Add(-held)
	}
	if seats != nil {
		seats.leave(&r.place)
	}
	r.route.forward.end(state, sure)
}
