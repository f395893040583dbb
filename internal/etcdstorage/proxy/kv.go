// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"math"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// kvRoutes are the RPCs of etcd's KV service.
func (p *Proxy) kvRoutes() map[string]route {
	return map[string]route{
		etcdserverpb.KV_Range_FullMethodName:       {forward: &forward{request: p.rangeRequest, response: p.rangeResponse, inPlace: true}},
		etcdserverpb.KV_RangeStream_FullMethodName: {stream: p.rangeStream},
		etcdserverpb.KV_Put_FullMethodName:         {forward: &forward{request: p.putRequest, response: p.putResponse, inPlace: true, ended: p.ended}},
		etcdserverpb.KV_DeleteRange_FullMethodName: {forward: &forward{request: p.deleteRequest, response: p.deleteResponse, inPlace: true}},
		etcdserverpb.KV_Txn_FullMethodName:         {forward: &forward{request: p.txnRequest, response: p.txnResponse, inPlace: true, ended: p.ended}},
		etcdserverpb.KV_Compact_FullMethodName:     {unary: p.compact, logged: true},
	}
}

func (p *Proxy) rangeRequest(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
	out, info, err := wire.AppendRange(dst, tenant, request)
	if err == nil {
		err = p.readable(info.Revision)
	}
	c := cost{list: info.Large, stale: info.Serializable, work: quota.Work{Calls: 1}, values: valuesOf(info)}
	if err != nil {
		return out, c, err
	}
	span := wire.SpanOf(out[len(dst):])
	if c.values > 0 {
		c.asked = p.learnt.hash(response{span: span, values: c.values, scans: info.Scans})
	}
	if !info.Single {
		c.scans = info.Scans
		p.estimate(&c, span)
	}
	return out, c, nil
}

// valuesOf is how many values the response to a range may have.
func valuesOf(info wire.RangeInfo) int64 {
	switch {
	case info.CountOnly, info.KeysOnly:
		return 0
	case info.Single:
		return 1
	case info.Limit > 0:
		return info.Limit
	default:
		return math.MaxInt64
	}
}

// readable refuses what lies below the tenant's compact revision, as etcd does. The revision itself can still be read.
func (p *Proxy) readable(revision int64) error {
	if revision <= 0 {
		return nil
	}
	if revision < p.compaction.Revision() {
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

// responded compares the header of a response with what was known when the request began.
func (p *Proxy) responded(c *cost, header wire.Header) error {
	if c.stale {
		p.glimpse(c.seen, header)
		return nil
	}
	return p.observe(c.seen, header)
}

func (p *Proxy) rangeResponse(dst []byte, c cost, response []byte) ([]byte, error) {
	out, info, err := wire.AppendRangeResponse(dst, c.seen.tenant, response)
	if err == nil {
		p.counted(&c, info.Count)
		err = p.responded(&c, info.Header)
	}
	return out, err
}

func (p *Proxy) putRequest(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
	g, visit := p.growth()
	out, info, err := wire.AppendPutVisiting(dst, tenant, request, visit)
	if err == nil {
		err = p.sized(len(out) - len(dst))
	}
	if err != nil {
		return out, cost{}, err
	}
	state, err := p.room(g)
	bytes := len(out) - len(dst)
	c := cost{state: state, written: bytes, work: logged(bytes)}
	if info.PrevKV {
		c.values = 1
	}
	if info.Lease != 0 {
		c.work.Deleted = 1 // when the lease ends, without a request of the tenant's or with one for all its keys
	}
	return out, c, err
}

// growth returns what is told of a request's puts; nil without a quota.
func (p *Proxy) growth() (*growth, func(wire.Put)) {
	if !p.ledger.enforced() {
		return nil, nil
	}
	g := &growth{ledger: p.ledger}
	return g, g.visit
}

// room makes room for what a request writes, and returns the reservation, as [ledger.reserve] does; 0
// without a quota.
func (p *Proxy) room(g *growth) (state int64, err error) {
	if g == nil {
		return 0, nil
	}
	return p.ledger.reserve(g)
}

// changed is told of each answer to a write, with what room returned for it.
func (p *Proxy) changed(state int64, info wire.ResponseInfo) {
	if info.Wrote && p.ledger.enforced() {
		p.ledger.answeredAt(state, info.Header.Revision)
	}
}

// wrote is told of the answer to a request for which room was made, and whether it succeeded: a Txn that did not has run its other branch.
func (p *Proxy) wrote(state int64, succeeded bool, revision int64) {
	if state > 0 {
		p.ledger.settle(state, succeeded, revision)
	}
}

// ended is called at the end of each request for which room may have been made.
func (p *Proxy) ended(state int64, sure bool) {
	p.ledger.ended(state, sure)
}

// sized refuses writes that the core would refuse for their size. It decides here because the prefix makes a request longer: one that is a
// little above etcd's limit must get etcd's answer and not the core's gRPC layer's.
func (p *Proxy) sized(bytes int) error {
	if bytes > p.cfg.MaxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}

func (p *Proxy) putResponse(dst []byte, c cost, response []byte) ([]byte, error) {
	out, info, err := wire.AppendPutResponse(dst, c.seen.tenant, response)
	if err == nil {
		err = p.responded(&c, info.Header)
	}
	if err == nil {
		p.changed(c.state, info)
		p.wrote(c.state, true, info.Header.Revision)
	}
	return out, err
}

func (p *Proxy) deleteRequest(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
	out, info, err := wire.AppendDeleteRange(dst, tenant, request)
	if err == nil {
		err = p.sized(len(out) - len(dst))
	}
	c := cost{list: info.PrevKV && !info.Single, deletes: true, removes: true, work: logged(len(out) - len(dst))}
	if info.PrevKV {
		c.values = 1
	}
	if err == nil && !info.Single {
		c.bound([]wire.Span{wire.SpanOf(out[len(dst):])}, mostKeys)
	}
	return out, c, err
}

func (p *Proxy) deleteResponse(dst []byte, c cost, response []byte) ([]byte, error) {
	out, info, err := wire.AppendDeleteRangeResponse(dst, c.seen.tenant, response)
	if err == nil {
		p.pay(quota.Work{Deleted: info.Removed}, c.class())
		err = p.responded(&c, info.Header)
	}
	if err == nil {
		p.changed(c.state, info)
	}
	return out, err
}

func (p *Proxy) txnRequest(dst []byte, tenant *tenancy.Tenant, request []byte) ([]byte, cost, error) {
	g, visit := p.growth()
	out, info, err := wire.AppendTxnVisiting(dst, tenant, request, p.compaction.Revision(), visit)
	if err != nil {
		return out, cost{}, err
	}
	c := cost{list: info.Large, stale: info.Serializable, work: quota.Work{Calls: 1}}
	if !info.ReadOnly {
		c.work = logged(len(out) - len(dst))
	}
	c.work.Deleted = int64(info.Leased)
	c.work.Parts = info.Compares + info.Ranges + info.Puts + info.Deletes
	c.values, c.removes = int64(info.Ranges), info.Deletes > 0
	if info.ReadOnly {
		c.bound(info.Spans, mostKeys)
		return out, c, nil
	}
	c.bound(info.Spans, mostKeysOfWrites)
	if err := p.sized(len(out) - len(dst)); err != nil {
		return out, cost{}, err
	}
	if info.Puts > 0 {
		c.written = len(out) - len(dst)
	}
	c.state, err = p.room(g)
	return out, c, err
}

func (p *Proxy) txnResponse(dst []byte, c cost, response []byte) ([]byte, error) {
	out, info, err := wire.AppendTxnResponse(dst, c.seen.tenant, response)
	if err == nil && info.Counted+info.Removed > 1 { // a key more or less is in the price of its operation
		p.pay(quota.Work{Keys: info.Counted, Deleted: info.Removed}, c.class())
	}
	if err == nil {
		err = p.responded(&c, info.Header)
	}
	if err == nil {
		p.changed(c.state, info)
		p.wrote(c.state, info.Succeeded, info.Header.Revision)
	}
	return out, err
}
