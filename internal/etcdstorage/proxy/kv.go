// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"io"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// kvRoutes are the RPCs of etcd's KV service.
func (p *Proxy) kvRoutes() map[string]route {
	return map[string]route{
		etcdserverpb.KV_Range_FullMethodName:       {forward: &forward{request: p.rangeRequest, response: p.rangeResponse}},
		etcdserverpb.KV_RangeStream_FullMethodName: {stream: p.rangeStream},
		etcdserverpb.KV_Put_FullMethodName:         {forward: &forward{request: p.putRequest, response: p.putResponse, ended: p.ended}},
		etcdserverpb.KV_DeleteRange_FullMethodName: {forward: &forward{request: p.deleteRequest, response: p.deleteResponse}},
		etcdserverpb.KV_Txn_FullMethodName:         {forward: &forward{request: p.txnRequest, response: p.txnResponse, ended: p.ended}},
		etcdserverpb.KV_Compact_FullMethodName:     {unary: p.compact},
	}
}

func (p *Proxy) rangeRequest(dst, request []byte) ([]byte, int64, error) {
	out, info, err := wire.AppendRange(dst, p.tenant, request)
	if err == nil {
		err = p.readable(info.Revision)
	}
	return out, 0, err
}

// readable refuses what lies below the tenant's compact revision, as etcd does. The revision itself can still be read.
func (p *Proxy) readable(revision int64) error {
	if revision <= 0 {
		return nil
	}
	compacted, loaded := p.compaction.known()
	switch {
	case !loaded:
		return errNotLoaded
	case revision < compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

func (p *Proxy) rangeResponse(dst []byte, _ int64, response []byte) ([]byte, error) {
	out, _, err := wire.AppendRangeResponse(dst, p.tenant, response)
	return out, err
}

func (p *Proxy) putRequest(dst, request []byte) ([]byte, int64, error) {
	g, visit := p.growth()
	out, info, err := wire.AppendPutVisiting(dst, p.tenant, request, visit)
	if err == nil {
		err = p.sized(len(out) - len(dst))
	}
	if err != nil {
		return out, 0, err
	}
	state, err := p.room(g, int64(info.Key+info.Value))
	return out, state, err
}

// growth returns what is told of a request's puts; nil without a quota.
func (p *Proxy) growth() (*growth, func(wire.Put)) {
	if p.ledger == nil {
		return nil, nil
	}
	g := &growth{ledger: p.ledger}
	return g, g.visit
}

// room makes room for what a request writes, and returns what its answer is told: with a quota the reservation, else the bytes.
func (p *Proxy) room(g *growth, bytes int64) (state int64, err error) {
	if g == nil {
		return bytes, nil
	}
	return p.ledger.reserve(g)
}

// changed is told of each answer to a write.
func (p *Proxy) changed(info wire.ResponseInfo) {
	if p.ledger != nil && info.Wrote {
		p.ledger.answeredAt(info.Header.Revision)
	}
}

// wrote is told of the answer to a request for which room was made, and whether it succeeded: a Txn that did not has run its other branch.
func (p *Proxy) wrote(state int64, succeeded bool, revision int64) {
	switch {
	case p.ledger != nil && state != 0:
		p.ledger.settle(state, succeeded, revision)
	case p.ledger == nil && succeeded: // a Txn that did not writes nothing as a rule: the other branch reads what is there instead
		p.usage.wrote(state)
	}
}

// ended is told of the end of each request for which room may have been made.
func (p *Proxy) ended(state int64) {
	if p.ledger != nil {
		p.ledger.ended(state)
	}
}

// sized refuses writes that the core would refuse for their size. It decides here because the prefix makes a request longer: one that is a
// little above etcd's limit must get etcd's answer and not the core's gRPC layer's.
func (p *Proxy) sized(bytes int) error {
	if bytes > p.cfg.MaxRequestBytes {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	return nil
}

func (p *Proxy) putResponse(dst []byte, state int64, response []byte) ([]byte, error) {
	out, info, err := wire.AppendPutResponse(dst, p.tenant, response)
	if err == nil {
		p.changed(info)
		p.wrote(state, true, info.Header.Revision)
	}
	return out, err
}

func (p *Proxy) deleteRequest(dst, request []byte) ([]byte, int64, error) {
	out, _, err := wire.AppendDeleteRange(dst, p.tenant, request)
	if err == nil {
		err = p.sized(len(out) - len(dst))
	}
	return out, 0, err
}

func (p *Proxy) deleteResponse(dst []byte, _ int64, response []byte) ([]byte, error) {
	out, info, err := wire.AppendDeleteRangeResponse(dst, p.tenant, response)
	if err == nil {
		p.changed(info)
	}
	return out, err
}

func (p *Proxy) txnRequest(dst, request []byte) ([]byte, int64, error) {
	compacted, loaded := p.compaction.known()
	g, visit := p.growth()
	out, info, err := wire.AppendTxnVisiting(dst, p.tenant, request, compacted, visit)
	switch {
	case err != nil:
		return out, 0, err
	case info.MinRevision > 0 && !loaded:
		return out, 0, errNotLoaded
	case info.ReadOnly:
		return out, 0, nil
	}
	if err := p.sized(len(out) - len(dst)); err != nil {
		return out, 0, err
	}
	state, err := p.room(g, int64(info.PutBytes))
	return out, state, err
}

func (p *Proxy) txnResponse(dst []byte, state int64, response []byte) ([]byte, error) {
	out, info, err := wire.AppendTxnResponse(dst, p.tenant, response)
	if err == nil {
		p.changed(info)
		if state > 0 {
			p.wrote(state, info.Succeeded, info.Header.Revision)
		}
	}
	return out, err
}

// rangeStream forwards one request and rewrites the chunks of its answer one by one.
func (p *Proxy) rangeStream(stream ServerStream) error {
	const method = etcdserverpb.KV_RangeStream_FullMethodName
	request, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return errNoMessage
	}
	if err != nil {
		return err
	}
	out, info, err := wire.AppendRangeStream(nil, p.tenant, request)
	if err == nil {
		err = p.readable(info.Revision)
	}
	if errors.Is(err, errNotLoaded) {
		if err = p.compaction.wait(stream.Context()); err == nil {
			err = p.readable(info.Revision)
		}
	}
	if err != nil {
		return err
	}
	core, err := p.up.Stream(stream.Context(), method, stream.RequireLeader())
	if err != nil {
		return err
	}
	if err := core.Send(out); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := core.CloseSend(); err != nil {
		return err
	}
	return p.rangeChunks(core, stream)
}

// rangeChunks passes on what the core answers. Unlike a unary answer, a chunk that is outside the boundary can come after good ones; it is
// withheld, and the stream ends.
func (p *Proxy) rangeChunks(core ClientStream, stream ServerStream) error {
	for {
		chunk, err := core.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, _, err := wire.AppendRangeStreamResponse(make([]byte, 0, len(chunk)), p.tenant, chunk)
		if err != nil {
			return err
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}
