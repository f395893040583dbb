// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"maps"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// call is what a unary handler knows of its RPC in addition to the request. seen is not set for what is local.
type call struct {
	method        string
	requireLeader bool
	seen          seen
}

// route answers one method; exactly one of its handlers is set.
type route struct {
	forward *forward
	unary   func(ctx context.Context, c *call, request []byte) (response []byte, err error)
	stream  func(stream ServerStream) error
	// local is set for what is answered without the core, so that it needs no seat and no token.
	local bool
	// logged is set for a unary handler that makes the core write to its log.
	logged bool
}

// forward is a unary RPC that goes to the core once, under the same method name. Its functions run in a connection's goroutine: they must not
// block and must not keep the slices they are given.
//
// Their errors: *wire.RequestError and status errors are the answer, *wire.BoundaryError is a violation of the boundary, all else is Internal.
type forward struct {
	// request appends the rewritten request to dst. The cost is handed to response, with what was seen before.
	request func(dst []byte, tenant *tenancy.Tenant, request []byte) (out []byte, c cost, err error)
	// response appends the rewritten response to dst. With inPlace, dst may end where response begins, in one array: nothing becomes longer, unless the
	// tenant has an offset of revisions.
	response func(dst []byte, c cost, response []byte) (out []byte, err error)
	inPlace  bool
	// ended is called once when the core has done with the RPC, with the last state; nil if nobody needs to know. sure tells that the core has not
	// done what was asked for unless response was called.
	ended func(state int64, sure bool)
}

// ServerStream is one RPC of the tenant, seen from its handler. One goroutine may receive while another sends.
type ServerStream interface {
	// Context ends when the tenant cancels, its deadline passes, its connection is lost or the proxy stops for good.
	Context() context.Context
	// RequireLeader tells whether the tenant sent the metadata hasleader: true.
	RequireLeader() bool
	// Recv returns the next message, which is the caller's; io.EOF after the tenant's last.
	Recv() ([]byte, error)
	// Send sends one message, the concatenation of parts. The parts must never change afterwards; they may be shared between streams.
	// It blocks while the tenant does not read.
	Send(parts ...[]byte) error
}

// ClientStream is one stream to the core. One goroutine may receive while another sends. It ends with the context it was made with.
type ClientStream interface {
	// Send sends one message; the bytes must not change afterwards.
	Send(message []byte) error
	// CloseSend reports that there are no more messages.
	CloseSend() error
	// Recv returns the next message, which is the caller's; io.EOF when the core ended the stream with OK, else a status error.
	Recv() ([]byte, error)
	// Retired is closed when the stream's connection was replaced by a newer one: open-ended streams should be opened again, and the old one is cut
	// off some time later.
	Retired() <-chan struct{}
}

// upstream reaches the core.
type upstream interface {
	Unary(ctx context.Context, method string, requireLeader bool, request []byte) ([]byte, error)
	Stream(ctx context.Context, method string, requireLeader bool) (ClientStream, error)
}

// buildRoutes is the whole table.
func (p *Proxy) buildRoutes() map[string]route {
	out := p.kvRoutes()
	maps.Copy(out, p.syntheticRoutes())
	maps.Copy(out, p.watchRoutes())
	maps.Copy(out, p.leaseRoutes())
	return out
}
