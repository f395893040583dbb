// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// rounds is how often an export begins before it gives up against compaction.
const rounds = 5

// Bounds of one answer of etcd: keys asked for, and the size above which fewer are asked for.
const (
	leastRange = 10
	mostRange  = 1000
	rangeBytes = 4 << 20
)

// A Spool is where an export is written: what was written can be taken back until the export is whole. A file is one.
type Spool interface {
	io.Writer
	io.Seeker
	Truncate(size int64) error
}

// Export writes the tenant's keys as of one revision. After an error the spool holds nothing of use. note, which may be nil, is called when
// the export begins again.
func Export(ctx context.Context, t Tenant, name string, to Spool, note func(string)) (Summary, error) {
	for round := 1; ; round++ {
		out, err := exportOnce(ctx, t, name, to)
		if !is(err, rpctypes.ErrGRPCCompacted) {
			return out, Explain(err)
		}
		if round == rounds {
			return out, fmt.Errorf("the tenant's history was compacted %d times while it was read: let its API servers compact less often "+
				"(--etcd-compaction-interval), or stop them meanwhile: %w", rounds, err)
		}
		if note != nil {
			note(fmt.Sprintf("revision %d was compacted after %d keys; the export begins again at a newer one", out.Revision, out.Keys))
		}
		if err := rewind(to); err != nil {
			return out, err
		}
	}
}

func rewind(to Spool) error {
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("writing the stream: %w", err)
	}
	if err := to.Truncate(0); err != nil {
		return fmt.Errorf("writing the stream: %w", err)
	}
	return nil
}

// exporter is one attempt.
type exporter struct {
	t      Tenant
	w      *writer
	out    Summary
	leases map[int64]int64 // the other side's ID to the stream's; 0 for one that has ended
}

func exportOnce(ctx context.Context, t Tenant, name string, to io.Writer) (Summary, error) {
	e := &exporter{t: t, out: Summary{Tenant: name}, leases: map[int64]int64{}}
	buffered := bufio.NewWriterSize(to, 64<<10)
	from, limit := "", int64(pageKeys)
	for {
		answer, err := e.read(ctx, from, limit)
		if err != nil {
			return e.out, err
		}
		if e.w == nil {
			e.out.Revision = answer.Header.Revision
			if e.w, err = newWriter(buffered, Header{Tenant: name, Revision: e.out.Revision}); err != nil {
				return e.out, err
			}
		}
		var last []byte
		size := 0
		for _, kv := range answer.Kvs {
			if last, err = e.keep(ctx, kv); err != nil {
				return e.out, err
			}
			size += len(kv.Key) + len(kv.Value)
		}
		if !answer.More {
			break
		}
		from, limit = string(last)+"\x00", nextLimit(limit, size)
	}
	if err := e.w.end(); err != nil {
		return e.out, err
	}
	e.out.Leases = e.w.leases
	if err := buffered.Flush(); err != nil {
		return e.out, fmt.Errorf("writing the stream: %w", err)
	}
	return e.out, nil
}

// nextLimit keeps answers at some megabytes, whatever the values are like.
func nextLimit(limit int64, size int) int64 {
	switch {
	case size > rangeBytes:
		return max(leastRange, limit/2)
	case size < rangeBytes/2:
		return min(mostRange, limit*2)
	}
	return limit
}

// read reads some keys, all at the revision of the first answer.
func (e *exporter) read(ctx context.Context, from string, limit int64) (*clientv3.GetResponse, error) {
	key, end := e.t.all(from)
	var answer *clientv3.GetResponse
	err := try(ctx, func(ctx context.Context) (err error) {
		answer, err = e.t.KV.Get(ctx, key, end, clientv3.WithLimit(limit), clientv3.WithRev(e.out.Revision))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the tenant's keys: %w", err)
	}
	if len(answer.Kvs) == 0 && answer.More {
		return nil, errors.New("reading the tenant's keys: the response has no keys and reports that there are more")
	}
	return answer, nil
}

// keep writes one key, unless its lease has ended meanwhile or cannot be read through a proxy, and returns its name.
func (e *exporter) keep(ctx context.Context, kv *mvccpb.KeyValue) ([]byte, error) {
	name, err := e.t.strip(kv.Key)
	if err != nil {
		return nil, err
	}
	entry := KV{Key: name, Value: kv.Value}
	if e.t.Prefix.IsZero() && kv.Lease > tenancy.MaxLease {
		if e.out.Foreign++; e.out.Foreign <= mostNamed {
			e.out.ForeignKeys = append(e.out.ForeignKeys, string(name))
		}
		return name, nil
	}
	if kv.Lease != 0 {
		if entry.Lease, err = e.lease(ctx, kv.Lease); err != nil {
			return nil, err
		}
		if entry.Lease == 0 {
			e.out.Ended++
			return name, nil
		}
	}
	e.out.add(entry)
	return name, e.w.kv(entry)
}

// lease returns the stream's number of a lease, 0 if it has ended.
func (e *exporter) lease(ctx context.Context, id int64) (int64, error) {
	if known, ok := e.leases[id]; ok {
		return known, nil
	}
	var answer *clientv3.LeaseTimeToLiveResponse
	err := try(ctx, func(ctx context.Context) (err error) {
		answer, err = e.t.Lease.TimeToLive(ctx, clientv3.LeaseID(id))
		return err
	})
	gone := is(err, rpctypes.ErrGRPCLeaseNotFound)
	switch {
	case err != nil && !gone:
		return 0, fmt.Errorf("reading a lease: %w", err)
	case gone || answer.TTL <= 0 || answer.GrantedTTL <= 0:
		e.leases[id] = 0
		return 0, nil
	}
	number, err := e.w.lease(answer.GrantedTTL)
	e.leases[id] = number
	return number, err
}
