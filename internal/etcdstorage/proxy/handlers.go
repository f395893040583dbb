// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
)

// unaryTime bounds what a call may take that goes to the core on the tenant's behalf. It goes on when the tenant gives up, so that its seat
// is taken for as long as the core works; the core itself gives requests up after some seven seconds.
const unaryTime = 30 * time.Second

// unary answers a call that the proxy answers itself, or with several calls to the core.
func (r *rpc) unary(request []byte) {
	ctx := r.s.Context()
	if !r.route.local {
		if !r.sit(ctx) {
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(r.p.ctx, unaryTime)
		defer cancel()
	}
	response, err := r.handle(ctx, request)
	if err != nil {
		r.fail(nil, r.p.answer(r.s.Method, err))
		return
	}
	r.p.read(int64(len(response)), &cost{})
	buf := h2.GetBuf(h2.MessageRoom + len(response))
	buf.B = append(buf.B[:h2.MessageRoom], response...)
	r.release(true)
	r.reply(nil, buf)
}

// handle calls the handler of a unary call. A response from before the core went back is none.
func (r *rpc) handle(ctx context.Context, request []byte) (response []byte, err error) {
	c := &call{method: r.s.Method, requireLeader: r.s.RequireLeader}
	if r.route.local {
		return r.route.unary(ctx, c, request)
	}
	if c.seen, err = r.p.ready(ctx); err != nil {
		return nil, err
	}
	if response, err = r.route.unary(ctx, c, request); err == nil {
		err = r.p.still(c.seen)
	}
	return response, err
}

// stream serves a streaming call. To begin one costs a call.
func (r *rpc) stream() error {
	if !r.route.local {
		wait, err := r.p.take(quota.Work{Calls: 1}, quota.Small)
		if err != nil {
			return err
		}
		ctx := r.s.Context()
		if wait > 0 && !pause(ctx, wait) {
			return status.FromContextError(ctx.Err()).Err()
		}
		if _, err := r.p.ready(ctx); err != nil {
			return err
		}
	}
	return r.route.stream(tenantStream{r.s})
}
