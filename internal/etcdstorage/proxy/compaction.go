// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// compactRecord is where a tenant's compact revision is kept, between the system prefix and the name, and behind it. It MUST NOT change:
// replicas of another version read it.
const (
	compactRecordBefore = "tenants/"
	compactRecordAfter  = "/compact-revision"
)

// neverCompacted is etcd's own start value (mvcc's compactMainRev): even revision 0 can be compacted once.
const neverCompacted = -1

// Pauses between attempts to follow the record.
const (
	followPauseLeast = 200 * time.Millisecond
	followPauseMost  = 5 * time.Second
	compactAttempts  = 16 // of the compare-and-swap; each loss means that another replica moved the record forward
)

// compaction is the tenant's compact revision: a number in memory that follows a record in the core, which all replicas share and which only
// ever moves forward. The core's own history is not touched.
type compaction struct {
	p      *Proxy
	record string // key in the core; "" keeps the number in memory only

	mu       sync.Mutex
	past     *past // that revision is of
	revision int64
	changed  chan struct{}
	isLoaded bool // the record was read
}

func newCompaction(p *Proxy) *compaction {
	c := &compaction{p: p, past: p.past.Load(), revision: neverCompacted, changed: make(chan struct{})}
	if p.cfg.SystemPrefix == "" {
		c.isLoaded = true
	} else {
		c.record = p.cfg.SystemPrefix + compactRecordBefore + p.cfg.TenantName + compactRecordAfter
	}
	return c
}

// Revision is the tenant's compact revision as far as this replica knows; 0 when there is none.
func (c *compaction) Revision() int64 {
	revision, _ := c.known()
	return revision
}

// Changed is closed when Revision changes next.
func (c *compaction) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// known is Revision, and whether the record was read since the start.
func (c *compaction) known() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.revision, 0), c.isLoaded
}

// wait returns once the record was read. While the core is away that is soon an error, as for any other RPC.
func (c *compaction) wait(ctx context.Context) error {
	if _, loaded := c.known(); loaded {
		return nil
	}
	if _, _, err := c.load(ctx); err != nil {
		return err
	}
	return nil
}

// observe takes over a revision that was read or written, if it is further than ours, and is not of a past that the core has lost.
func (c *compaction) observe(of *past, revision int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != c.past {
		return
	}
	if revision > c.revision {
		c.set(revision)
	}
	c.isLoaded = true
}

// set changes the revision; the caller holds the lock.
func (c *compaction) set(revision int64) {
	c.revision = revision
	close(c.changed)
	c.changed = make(chan struct{})
	c.p.metrics.compactRevision.Set(float64(revision))
}

// restart forgets the revision, which the core has lost or not: its record says so. Kept in memory only, nothing is compacted any more.
func (c *compaction) restart(after *past) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past, c.isLoaded = after, c.record == ""
	c.set(neverCompacted)
}

// load reads the record: its modification revision (0 when there is none) and the store's revision.
func (c *compaction) load(ctx context.Context) (modified, current int64, err error) {
	var answer etcdserverpb.RangeResponse
	before := c.p.seen()
	if err := c.p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, &etcdserverpb.RangeRequest{Key: []byte(c.record)}, &answer); err != nil {
		return 0, 0, err
	}
	if err := c.p.observe(before, wireHeader(answer.Header)); err != nil {
		return 0, 0, err
	}
	for _, kv := range answer.Kvs {
		modified = kv.ModRevision
		if err := c.read(before.past, kv); err != nil {
			return 0, 0, err
		}
	}
	c.observe(before.past, neverCompacted)
	return modified, answer.Header.Revision, nil
}

// read takes over a version of the record.
func (c *compaction) read(of *past, kv *mvccpb.KeyValue) error {
	revision, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil {
		c.p.log.Error(err, "The record of the tenant's compact revision cannot be read; it must be a decimal number", "record", c.record)
		return status.Error(codes.Unavailable, "etcd-storage-proxy: the record of the tenant's compact revision cannot be read")
	}
	c.observe(of, revision)
	return nil
}

// compact answers KV.Compact: it moves the record forward and never reaches the core's own compaction.
func (p *Proxy) compact(ctx context.Context, _ *call, request []byte) ([]byte, error) {
	asked, err := wire.ParseCompact(request)
	if err != nil {
		return nil, err
	}
	header, err := p.compaction.advance(ctx, asked.Revision)
	if err != nil {
		return nil, err
	}
	return wire.AppendHeaderField(nil, header), nil
}

// advance makes revision the tenant's compact revision, with etcd's refusals, and returns the header to answer with.
func (c *compaction) advance(ctx context.Context, revision int64) (wire.Header, error) {
	of := c.p.past.Load()
	if c.record == "" {
		header, err := c.p.header(ctx)
		if err != nil {
			return header, err
		}
		if err := c.admissible(revision, header.Revision); err != nil {
			return header, err
		}
		c.observe(of, revision)
		return header, nil
	}
	for range compactAttempts {
		modified, current, err := c.load(ctx)
		if err != nil {
			return wire.Header{}, err
		}
		if err := c.admissible(revision, current); err != nil {
			return wire.Header{}, err
		}
		done, header, err := c.swap(ctx, modified, revision)
		if err != nil {
			return wire.Header{}, err
		}
		if done {
			c.observe(of, revision)
			return header, nil
		}
	}
	return wire.Header{}, status.Error(codes.Unavailable, "etcd-storage-proxy: the tenant's compact revision is being changed by others, try again")
}

// admissible is etcd's judgment (mvcc's updateCompactRev), in its order.
func (c *compaction) admissible(revision, current int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case revision <= c.revision:
		return rpctypes.ErrGRPCCompacted
	case revision > current:
		return rpctypes.ErrGRPCFutureRev
	}
	return nil
}

// swap writes the record if it is still the one that was read.
func (c *compaction) swap(ctx context.Context, modified, revision int64) (bool, wire.Header, error) {
	key := []byte(c.record)
	request := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{
			Key: key, Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: modified},
		}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: key, Value: strconv.AppendInt(nil, revision, 10)},
		}}},
	}
	var answer etcdserverpb.TxnResponse
	if err := c.p.callCore(ctx, etcdserverpb.KV_Txn_FullMethodName, request, &answer); err != nil {
		return false, wire.Header{}, err
	}
	return answer.Succeeded, wireHeader(answer.Header), nil
}

// run follows the record until ctx ends.
func (c *compaction) run(ctx context.Context) {
	if c.record == "" {
		return
	}
	pause := followPauseLeast
	for ctx.Err() == nil {
		started := c.followed(ctx)
		if started {
			pause = followPauseLeast
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, followPauseMost)
	}
}

// followed reads the record and watches it until the watch breaks; true when it had begun.
func (c *compaction) followed(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, current, err := c.load(ctx)
	if err == nil {
		err = c.watch(ctx, current+1)
	}
	if err != nil && ctx.Err() == nil {
		c.p.log.V(1).Info("The record of the tenant's compact revision is not being followed", "error", err.Error())
	}
	return err == nil
}

// watch reads changes of the record from a revision on; nil when it worked for a while.
func (c *compaction) watch(ctx context.Context, from int64) error {
	of := c.p.past.Load()
	stream, err := c.p.follow(ctx)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(c.record), StartRevision: from},
	}})
	if err != nil {
		return fmt.Errorf("encoding the watch of the record: %w", err)
	}
	if err := stream.Send(request); err != nil {
		return err
	}
	for began := false; ; began = true {
		data, err := stream.Recv()
		if err != nil {
			if began {
				return nil
			}
			return err
		}
		var answer etcdserverpb.WatchResponse
		if err := proto.Unmarshal(data, &answer); err != nil {
			return fmt.Errorf("decoding the watch of the record: %w", err)
		}
		if answer.Canceled {
			return fmt.Errorf("the core ended the watch of the record (%s): %w", answer.CancelReason, io.EOF)
		}
		for _, event := range answer.Events {
			if event.Type == mvccpb.Event_PUT && event.Kv != nil {
				_ = c.read(of, event.Kv) // it is logged; the next one may be right
			}
		}
	}
}
