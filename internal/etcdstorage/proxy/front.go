// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
)

// front answers the calls of the listening side. Its methods run in connections' readers.
type front struct{ p *Proxy }

// verdict is what is known of a connection: what Authorize said, and when the certificates end that it was made with.
type verdict struct {
	err error
	// client is the end of the client's certificate, serving that of the one that the client was shown; zero where there is none.
	client, serving time.Time
}

// Error is the text for the tenant.
func (v verdict) Error() string {
	if v.err == nil {
		return "etcd-storage-proxy: the connection was not judged"
	}
	return v.err.Error()
}

// Accept implements h2.Handler.
func (f front) Accept(info credentials.AuthInfo) any {
	return verdict{err: f.p.judge(info), client: clientEnd(info), serving: servingEnd(info)}
}

// Begin implements h2.Handler.
func (f front) Begin(s *h2.Stream, b *h2.Batch) func(*h2.Stream) {
	p := f.p
	r := &rpc{p: p, s: s, metrics: p.metrics.method(s.Method, p.known(s.Method)), started: time.Now()} //nolint:forbidigo // a measurement
	r.metrics.inFlight.Inc()
	s.Value = r
	if v, ok := s.Peer().(verdict); !ok || v.err != nil {
		r.fail(b, status.Error(codes.PermissionDenied, v.Error()))
		return nil
	}
	route, err := p.route(s.Method)
	if err != nil {
		r.fail(b, err)
		return nil
	}
	r.route = route
	s.OnCancel = r.canceled
	if route.stream == nil {
		return nil
	}
	return func(s *h2.Stream) {
		r.fail(nil, p.answer(s.Method, route.stream(tenantStream{s})))
	}
}

// Unary implements h2.Handler.
func (f front) Unary(s *h2.Stream, b *h2.Batch, request []byte) {
	r := s.Value.(*rpc) //nolint:forcetypeassert // Begin set it
	wait, ok := r.p.paced()
	if !ok {
		r.p.metrics.refused("rate").Inc()
		r.fail(b, rpctypes.ErrGRPCRequestTooManyRequests)
		return
	}
	if wait == 0 && r.route.unary == nil {
		r.forward(b, request)
		return
	}
	kept := append(make([]byte, 0, len(request)), request...)
	r.later(func() {
		if wait > 0 && !pause(s.Context(), wait) {
			return // the tenant gave up, and canceled has counted it
		}
		if r.route.unary != nil {
			r.unary(kept)
			return
		}
		r.forward(nil, kept)
	})
}

// Panicked implements h2.Handler.
func (f front) Panicked(s *h2.Stream, reason any) h2.Status {
	st := status.Convert(f.p.panicked(s.Method, reason))
	if r, ok := s.Value.(*rpc); ok {
		r.count(st.Code())
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
	state   int64
	token   string
	again   bool // it is the second attempt

	answer *h2.Buf // as it goes to the tenant
	err    error   // instead

	mu    sync.Mutex
	call  h2.Call
	gone  bool
	ended bool // and counted
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

// unary answers a call that the proxy answers itself, or with several calls to the core.
func (r *rpc) unary(request []byte) {
	response, err := r.route.unary(r.s.Context(), &call{method: r.s.Method, requireLeader: r.s.RequireLeader}, request)
	if err != nil {
		r.fail(nil, r.p.answer(r.s.Method, err))
		return
	}
	buf := h2.GetBuf(h2.MessageRoom + len(response))
	buf.B = append(buf.B[:h2.MessageRoom], response...)
	r.reply(nil, buf)
}

// forward rewrites a request and sends it to the core. It never blocks: what would have to wait goes on in a goroutine.
func (r *rpc) forward(b *h2.Batch, request []byte) {
	// The prefix makes a request a little longer.
	r.request = h2.GetBuf(h2.MessageRoom + len(request) + len(request)/8 + 256)
	err := r.rewrite(request)
	switch {
	case errors.Is(err, errNotLoaded), errors.Is(err, errBehind):
		request := append(make([]byte, 0, len(request)), request...)
		r.later(func() { r.loaded(request) })
		return
	case err != nil:
		r.fail(b, r.p.answer(r.s.Method, err))
		return
	}
	if !r.seated(b) {
		return
	}
	token, ok := r.p.core.tokenNow()
	if ok {
		r.token = token
		var call h2.Call
		call, ok = r.p.core.pool.TryStart(b, r.coreRequest(), r.request.B, r)
		r.begun(b, call)
	}
	if !ok {
		r.later(r.start)
	}
}

// rewrite makes the request the core's, and keeps what its answer must be told. A tenant that gave up meanwhile has no answer.
func (r *rpc) rewrite(request []byte) error {
	out, state, err := r.route.forward.request(r.request.B[:h2.MessageRoom], request)
	r.request.B = out
	r.mu.Lock()
	r.state = state
	over := r.ended
	r.mu.Unlock()
	if over {
		r.route.forward.end(state)
	}
	return err
}

// end tells of the end of an RPC.
func (f *forward) end(state int64) {
	if f != nil && f.ended != nil {
		f.ended(state)
	}
}

// loaded goes on once the compact revision and what the tenant stores are known.
func (r *rpc) loaded(request []byte) {
	err := r.p.compaction.wait(r.s.Context())
	if err == nil {
		err = r.p.ledger.wait(r.s.Context())
	}
	if err == nil {
		err = r.rewrite(request)
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
	if r.seated(nil) {
		r.start()
	}
}

// seated takes a seat at the core. If there is none it goes on once there is; too many that wait are refused.
func (r *rpc) seated(b *h2.Batch) bool {
	now, ok := r.p.seats.enter(&r.place, func() { r.later(r.start) })
	if !ok {
		r.p.metrics.refused("queue").Inc()
		r.fail(b, rpctypes.ErrGRPCRequestTooManyRequests)
	}
	r.mu.Lock()
	over := r.ended
	r.mu.Unlock()
	if over { // the tenant gave up before there was a place to give back
		r.p.seats.leave(&r.place)
	}
	return now && !over
}

func (r *rpc) coreRequest() *h2.Request {
	return &h2.Request{Method: r.s.Method, Timeout: r.s.Timeout, Token: r.token, RequireLeader: r.s.RequireLeader}
}

// start sends the request to the core, logging in and waiting for a connection if need be.
func (r *rpc) start() {
	ctx := r.s.Context()
	token, err := r.p.core.login(ctx)
	if err == nil {
		r.token = token
		var call h2.Call
		if call, err = r.p.core.pool.Start(ctx, r.coreRequest(), r.request.B, r); err == nil {
			r.begun(nil, call)
			return
		}
		err = r.p.core.error(err)
	}
	r.fail(nil, err)
}

// begun keeps the call to the core, so that it can be given up; it is at once when the tenant is gone already.
func (r *rpc) begun(b *h2.Batch, call h2.Call) {
	r.mu.Lock()
	r.call = call
	gone := r.gone
	r.mu.Unlock()
	if gone {
		call.Cancel(b)
	}
}

// canceled gives the call to the core up, because the tenant did.
func (r *rpc) canceled(b *h2.Batch) {
	r.mu.Lock()
	r.gone = true
	call := r.call
	r.mu.Unlock()
	call.Cancel(b)
	r.count(codes.Canceled)
}

// Message implements h2.Sink: the core's answer is rewritten, and kept until the status comes.
func (r *rpc) Message(_ *h2.Batch, message []byte) {
	defer func() {
		if reason := recover(); reason != nil {
			r.err = r.p.panicked(r.s.Method, reason)
		}
	}()
	r.answer = h2.GetBuf(h2.MessageRoom + len(message))
	r.answer.B, r.err = r.route.forward.response(r.answer.B[:h2.MessageRoom], r.state, message)
}

// Done implements h2.Sink.
func (r *rpc) Done(b *h2.Batch, s h2.Status) {
	if !s.OK() && !r.again && (s.Unprocessed || r.p.core.loggedOut(r.token, s.Message)) {
		r.again = true
		r.later(r.start)
		return
	}
	r.request.Release()
	r.request = nil
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

// reply answers with a message.
func (r *rpc) reply(b *h2.Batch, buf *h2.Buf) {
	r.count(codes.OK)
	r.s.Reply(b, buf)
}

// fail answers with a status; nil is OK, for streams.
func (r *rpc) fail(b *h2.Batch, err error) {
	s := status.Convert(err)
	r.count(s.Code())
	r.s.Fail(b, h2.Status{Code: s.Code(), Message: s.Message()})
}

// count counts the end of the call once.
func (r *rpc) count(code codes.Code) {
	r.counted.Do(func() {
		r.metrics.inFlight.Dec()
		r.mu.Lock()
		r.ended = true
		state := r.state
		r.mu.Unlock()
		r.p.seats.leave(&r.place)
		r.route.forward.end(state)
		r.metrics.done(code, time.Since(r.started), r.route.stream == nil) //nolint:forbidigo // a measurement
	})
}
