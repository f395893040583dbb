// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Bounds of the pages in which the tenant's keys and values are read.
const (
	usagePage      = 256 << 10
	usageFirstPage = 8
	usageMostKeys  = 1000
)

// pages reads all of the tenant's keys and values, at most rate bytes a second, with pages that grow and shrink with the size of the values. each
// returns the revision at which the next page is read; 0 is the present.
func (p *Proxy) pages(ctx context.Context, rate int64, each func(page *etcdserverpb.RangeResponse) (revision int64)) error {
	request := &etcdserverpb.RangeRequest{
		Key: []byte(p.tenant.Prefix.String()), RangeEnd: []byte(p.tenant.Prefix.End()), Limit: usageFirstPage, Serializable: true,
	}
	for {
		var page etcdserverpb.RangeResponse
		if err := p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &page); err != nil {
			return err
		}
		request.Revision = each(&page)
		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
		size := sizeOf(&page)
		request.Key = append(page.Kvs[len(page.Kvs)-1].Key, 0)
		request.Limit = min(max(usagePage*int64(len(page.Kvs))/max(size, 1), 1), usageMostKeys)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(size) * time.Second / time.Duration(rate)):
		}
	}
}

// sizeOf is the bytes of a page's keys and values.
func sizeOf(page *etcdserverpb.RangeResponse) (bytes int64) {
	for _, kv := range page.Kvs {
		bytes += int64(len(kv.Key) + len(kv.Value))
	}
	return bytes
}
