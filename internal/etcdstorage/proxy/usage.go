// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Bounds of a count. A count reads the tenant's keys and values once, in pages, at no more than usageRate; it begins only when somebody asks for
// the size, at most once in usageInterval, and not at all while the core's revision stands still.
const (
	usageInterval  = 5 * time.Minute
	usageRate      = 4 << 20 // bytes per second
	usagePage      = 256 << 10
	usageFirstPage = 8
	usageMostKeys  = 1000
	usagePatience  = 500 * time.Millisecond // how long the first question waits for the first count
)

// usage knows how much the tenant stores: keys and bytes of keys and values, without history and without the core's overhead.
type usage struct {
	p *Proxy

	mu       sync.Mutex
	keys     int64
	bytes    int64         // of the last count, and what was written through this replica since
	revision int64         // the core's at the last count
	next     time.Time     // when a count may begin again
	counting chan struct{} // closed when the running count ends; nil when none runs
	counted  bool
}

func newUsage(p *Proxy) *usage { return &usage{p: p} }

// wrote adds what a put wrote. An overwrite counts twice until the next count: the size is never understated by it.
func (u *usage) wrote(bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counted {
		u.bytes += bytes
	}
}

// Bytes is the tenant's size now, as well as it is known. It waits a moment for the first count, and starts another when one is due.
func (u *usage) Bytes(ctx context.Context) (int64, error) {
	u.mu.Lock()
	now := time.Now() //nolint:forbidigo // how old a count is; no decision about data
	if u.counting == nil && now.After(u.next) {
		u.next = now.Add(usageInterval)
		u.counting = make(chan struct{})
		u.p.background(u.count)
	}
	counting, counted := u.counting, u.counted
	u.mu.Unlock()
	if counting != nil && !counted {
		patience := time.NewTimer(usagePatience)
		defer patience.Stop()
		select {
		case <-counting:
		case <-patience.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.p.metrics.bytes.Set(float64(u.bytes))
	return u.bytes, nil
}

// count reads everything once.
func (u *usage) count(ctx context.Context) {
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		close(u.counting)
		u.counting = nil
	}()
	header, err := u.p.header(ctx)
	if err != nil {
		u.retrySoon()
		return
	}
	u.mu.Lock()
	still := u.counted && u.revision == header.Revision
	u.mu.Unlock()
	if still {
		return
	}
	keys, bytes, err := u.scan(ctx)
	if err != nil {
		u.retrySoon()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keys, u.bytes, u.revision, u.counted = keys, bytes, header.Revision, true
	u.p.metrics.keys.Set(float64(keys))
	u.p.metrics.bytes.Set(float64(bytes))
}

// retrySoon lets the next question try again after a count that failed.
func (u *usage) retrySoon() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next = time.Time{}
}

// scan counts the tenant's keys.
func (u *usage) scan(ctx context.Context) (keys, bytes int64, err error) {
	err = u.pages(ctx, usageRate, func(page *etcdserverpb.RangeResponse) int64 {
		keys += int64(len(page.Kvs))
		bytes += sizeOf(page)
		return 0
	})
	return keys, bytes, err
}

// pages reads all of the tenant's keys and values, at most rate bytes a second, with pages that grow and shrink with the size of the values. each
// returns the revision at which the next page is read; 0 is the present.
func (u *usage) pages(ctx context.Context, rate int64, each func(page *etcdserverpb.RangeResponse) (revision int64)) error {
	request := &etcdserverpb.RangeRequest{
		Key: []byte(u.p.tenant.Prefix.String()), RangeEnd: []byte(u.p.tenant.Prefix.End()), Limit: usageFirstPage, Serializable: true,
	}
	for {
		var page etcdserverpb.RangeResponse
		if err := u.p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &page); err != nil {
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
