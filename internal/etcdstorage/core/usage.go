// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// Usage is what a tenant stores.
type Usage struct{ Keys, Bytes, Leases int64 }

// A count reads at most scanRate bytes in a second, in pages of about scanPage bytes, so that it is not a load.
const (
	scanRate  = 8 << 20
	scanPage  = 512 << 10
	firstPage = 16
	mostKeys  = 2000
)

// Measure counts keys, bytes of keys and values, and leases of a tenant. Reads are serializable: any member may answer, and the numbers may be a
// moment old.
func (c *Client) Measure(ctx context.Context, now clock.Clock, o operator.Owner) (Usage, error) {
	prefix, err := tenancy.ParsePrefix(o.Prefix)
	if err != nil {
		return Usage{}, err
	}
	var out Usage
	from, limit := prefix.String(), int64(firstPage)
	for {
		keys, bytes, last, more, err := c.scan(ctx, from, prefix.End(), limit)
		if err != nil {
			return Usage{}, err
		}
		out.Keys, out.Bytes = out.Keys+keys, out.Bytes+bytes
		if !more || keys == 0 {
			break
		}
		from, limit = last+"\x00", min(max(scanPage*keys/max(bytes, 1), 1), mostKeys)
		select {
		case <-ctx.Done():
			return Usage{}, ctx.Err()
		case <-now.After(time.Duration(bytes) * time.Second / scanRate):
		}
	}
	leases, err := c.leasesOf(ctx, o.LeaseSpace)
	out.Leases = int64(len(leases))
	return out, err
}

func (c *Client) scan(ctx context.Context, from, to string, limit int64) (keys, bytes int64, last string, more bool, err error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Get(ctx, from, clientv3.WithRange(to), clientv3.WithLimit(limit), clientv3.WithSerializable())
	if err != nil {
		return 0, 0, "", false, fmt.Errorf("reading keys under %s to measure them: %w", from, err)
	}
	for _, kv := range answer.Kvs {
		bytes += int64(len(kv.Key) + len(kv.Value))
		last = string(kv.Key)
	}
	return int64(len(answer.Kvs)), bytes, last, answer.More, nil
}
