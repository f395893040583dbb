// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Bounds of the pages in which the tenant's keys and values are read from a core that does not stream.
const (
	usagePage      = 256 << 10
	usageFirstPage = 8
	usageMostKeys  = 1000
)

// everything reads all of the tenant's keys and values as of one revision, which it returns, at most rate bytes a second: in one RangeStream, for which the
// core looks at each key once, or from a core before etcd 3.7 in pages, for each of which it counts all keys that are left.
func (p *Proxy) everything(ctx context.Context, rate int64, each func(kvs []*mvccpb.KeyValue)) (revision int64, err error) {
	request := &etcdserverpb.RangeRequest{
		Key: []byte(p.cfg.Tenant.Prefix.String()), RangeEnd: []byte(p.cfg.Tenant.Prefix.End()), Serializable: true,
	}
	if revision, err = p.streamed(ctx, request, rate, each); status.Code(err) == codes.Unimplemented {
		return p.paged(ctx, request, rate, each)
	}
	return revision, err
}

// streamed reads a range in one stream.
func (p *Proxy) streamed(ctx context.Context, request *etcdserverpb.RangeRequest, rate int64, each func(kvs []*mvccpb.KeyValue)) (revision int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.up.Stream(ctx, etcdserverpb.KV_RangeStream_FullMethodName, false)
	if err != nil {
		return 0, err
	}
	message, err := proto.Marshal(request)
	if err != nil {
		return 0, fmt.Errorf("encoding the request for the tenant's keys: %w", err)
	}
	if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) { // then Recv has the reason
		return 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) && revision > 0 { // which the last chunk has
			return revision, nil
		}
		if err != nil {
			return 0, err
		}
		var chunk etcdserverpb.RangeStreamResponse
		if err := proto.Unmarshal(message, &chunk); err != nil {
			return 0, fmt.Errorf("decoding the tenant's keys: %w", err)
		}
		revision = chunk.GetRangeResponse().GetHeader().GetRevision()
		if err := paced(ctx, rate, chunk.GetRangeResponse().GetKvs(), each); err != nil {
			return 0, err
		}
	}
}

// paged reads a range with pages that grow and shrink with the size of the values.
func (p *Proxy) paged(ctx context.Context, request *etcdserverpb.RangeRequest, rate int64, each func(kvs []*mvccpb.KeyValue)) (revision int64, err error) {
	request.Limit = usageFirstPage
	for {
		var page etcdserverpb.RangeResponse
		if err := p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &page); err != nil {
			return 0, err
		}
		if request.Revision == 0 {
			request.Revision = page.GetHeader().GetRevision()
		}
		if err := paced(ctx, rate, page.Kvs, each); err != nil {
			return 0, err
		}
		if !page.More || len(page.Kvs) == 0 {
			return request.Revision, nil
		}
		request.Key = append(page.Kvs[len(page.Kvs)-1].Key, 0)
		request.Limit = min(max(usagePage*int64(len(page.Kvs))/max(sizeOf(page.Kvs), 1), 1), usageMostKeys)
	}
}

// paced hands keys and values on, and waits for as long as they may take.
func paced(ctx context.Context, rate int64, kvs []*mvccpb.KeyValue, each func(kvs []*mvccpb.KeyValue)) error {
	each(kvs)
	if !pause(ctx, time.Duration(sizeOf(kvs))*time.Second/time.Duration(rate)) {
		return ctx.Err()
	}
	return nil
}

// sizeOf is the bytes of keys and values.
func sizeOf(kvs []*mvccpb.KeyValue) (bytes int64) {
	for _, kv := range kvs {
		bytes += int64(len(kv.Key) + len(kv.Value))
	}
	return bytes
}
