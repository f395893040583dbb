// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// SetReadPatience sets how long a RangeStream may wait for the tenant to read.
func (p *Proxy) SetReadPatience(d time.Duration) { p.readPatience = d }

// Poison makes handlers of every kind panic, for the tests of what contains that.
func (p *Proxy) Poison(forwardRequest, forwardAnswer, unary, stream string) {
	table := make(map[string]route, len(p.routes))
	for method, r := range p.routes {
		switch method {
		case forwardRequest:
			r.forward = &forward{request: func([]byte, *tenancy.Tenant, []byte) ([]byte, cost, error) { panic("request") }, response: r.forward.response}
		case forwardAnswer:
			r.forward = &forward{request: r.forward.request, response: func([]byte, cost, []byte) ([]byte, error) { panic("answer") }}
		case unary:
			r.unary = func(context.Context, *call, []byte) ([]byte, error) { panic("unary") }
		case stream:
			r.stream = func(ServerStream) error { panic("stream") }
		}
		table[method] = r
	}
	p.routes = table
}

// Betray makes answers of a method break the boundary.
func (p *Proxy) Betray(method string, err error) {
	r := p.routes[method]
	r.forward = &forward{request: r.forward.request, response: func(dst []byte, _ cost, _ []byte) ([]byte, error) {
		return append(dst, "secret"...), err
	}}
	p.routes[method] = r
}
