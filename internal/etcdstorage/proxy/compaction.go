// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// compactRecord is where a tenant's compact revision is kept, between the system prefix and the name, and behind it. It MUST NOT change:
// replicas of another version read it. Its value is the compact revision, as the tenant names it, as a decimal number; once the core went
// back a space and the offset of the tenant's revisions follow, which versions without one refuse to read.
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

// stored is the tenant's record.
type stored struct {
	compacted int64 // as the tenant names it
	offset    int64 // of the tenant's revisions
	modified  int64 // the record's modification revision; 0 when there is none
}

// parseStored reads a record's value.
func parseStored(value string) (s stored, err error) {
	compacted, offset, raised := strings.Cut(value, " ")
	if s.compacted, err = strconv.ParseInt(compacted, 10, 64); err == nil && raised {
		s.offset, err = strconv.ParseInt(offset, 10, 64)
	}
	if err == nil && (s.offset < 0 || s.compacted < tenancy.NewRevisions(s.offset).Compacted() && s.offset > 0) {
		err = errors.New("the offset is negative, or not below the compact revision")
	}
	return s, err
}

// value is what parseStored reads.
func (s stored) value() string {
	out := strconv.FormatInt(s.compacted, 10)
	if s.offset > 0 {
		out += " " + strconv.FormatInt(s.offset, 10)
	}
	return out
}

// above returns the record with an offset that keeps what the tenant was shown apart from what it is shown from now on: the record itself if its
// offset does, else one that is above what any replica has shown with the record's offset, too. current is the core's revision.
func (s stored) above(shown, current int64) stored {
	if shown <= s.offset {
		return s
	}
	s.offset = max(shown, s.offset+current) + revisionGap
	s.compacted = max(s.compacted, tenancy.NewRevisions(s.offset).Compacted())
	return s
}

// compaction is the tenant's compact revision and the offset of its revisions: numbers in memory that follow a record in the core, which all replicas
// share and which only ever moves forward. The core's own history is not touched.
type compaction struct {
	p      *Proxy
	record string // key in the core; "" keeps the numbers in memory only

	mu       sync.Mutex
	past     *past
	revision int64 // as the tenant names it
	changed  chan struct{}
	isLoaded bool  // the record was read in this past, and since the connections to the core were lost
	doubts   int64 // how often they were
	loading  *loading
}

// loading is an attempt to read the record, for all who need it.
type loading struct {
	done chan struct{}
	err  error
}

func newCompaction(p *Proxy) *compaction {
	c := &compaction{p: p, revision: neverCompacted, changed: make(chan struct{})}
	c.restart(p.past.Load())
	if p.cfg.SystemPrefix != "" {
		c.record = p.cfg.SystemPrefix + compactRecordBefore + p.cfg.TenantName + compactRecordAfter
	} else { // nothing was seen that the core could have lost
		c.isLoaded = true
		c.past.fix(p.cfg.Tenant, 0)
		p.confirm(c.past)
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

// known is Revision, and whether the record was read.
func (c *compaction) known() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.revision, 0), c.isLoaded
}

// wait returns once the record was read. While the core is away that is soon an error, as for any other RPC.
func (c *compaction) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.isLoaded {
		c.mu.Unlock()
		return nil
	}
	l := c.loading
	if l == nil {
		l = &loading{done: make(chan struct{})}
		c.loading = l
		c.p.background(func(ctx context.Context) { c.loadFor(ctx, l) })
	}
	c.mu.Unlock()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// loadFor reads the record for all who wait for it.
func (c *compaction) loadFor(ctx context.Context, l *loading) {
	ctx, cancel := context.WithTimeout(ctx, unaryTime)
	defer cancel()
	_, _, err := c.load(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loading, l.err = nil, err
	close(l.done)
}

// adopt takes over a record that was read or written, with the offset that holds as long as its past does. It reports
// whether that past is over: the core has lost it, or another replica has noticed that and raised the offset.
func (c *compaction) adopt(of *past, s stored) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != c.past {
		return true
	}
	if of.tenant.Load() == nil {
		of.fix(c.p.cfg.Tenant, s.offset)
	} else if s.offset > of.offset() {
		return true
	}
	if s.compacted > c.revision {
		c.revision = s.compacted
		close(c.changed)
		c.changed = make(chan struct{})
		c.p.metrics.compactRevision.Set(float64(s.compacted))
	}
	return false
}

// serve has requests served, if no connection was lost since doubts was read.
func (c *compaction) serve(of *past, doubts int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of == c.past && !c.isLoaded && doubts == c.doubts {
		c.isLoaded = true
		c.p.confirm(of)
	}
}

// restart has the record read again.
func (c *compaction) restart(after *past) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past, c.isLoaded = after, false
}

// doubt has the record read again before anything else is served, that of this replica written before.
func (c *compaction) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isLoaded = false
	c.doubts++
	c.past.confirmed.Store(nil)
}

// before returns what the record must have in a past, since it was read there or written, how often all connections
// were lost, and whether anything is served.
func (c *compaction) before(of *past) (least, doubts int64, serves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	serves = of == c.past && c.isLoaded
	if of != c.past || of.tenant.Load() == nil {
		return neverCompacted, c.doubts, serves
	}
	return c.revision, c.doubts, serves
}

// load reads the record, and raises its offset if need be. It returns the store's header, too.
func (c *compaction) load(ctx context.Context) (s stored, header wire.Header, err error) {
	for range compactAttempts {
		before := c.p.seen()
		least, doubts, serves := c.before(before.past)
		if !serves {
			if err = c.p.replicas.announce(ctx); err != nil {
				return s, header, err
			}
		}
		if s, header, err = c.get(ctx, before); err != nil {
			return s, header, err
		}
		raised, done, err := c.raise(ctx, before.past, s, header)
		if err != nil {
			return s, header, err
		}
		if !done {
			continue
		}
		if s.compacted < least || c.adopt(before.past, raised) { // least: it lost what was written there
			c.p.wentBack(before, header)
			return s, header, errWentBack
		}
		if before.past.offset() != raised.offset { // another has read it after this one
			continue
		}
		if !serves { // afterwards nothing is served with a lower offset here
			if err = c.p.replicas.agree(ctx, before.past); err != nil {
				return s, header, err
			}
			c.serve(before.past, doubts)
		}
		return raised, header, nil
	}
	return s, header, errContended
}

// raise writes the record with an offset that keeps the tenant's revisions from going back, if its own does not. done
// is false if another was faster.
func (c *compaction) raise(
	ctx context.Context, of *past, s stored, header wire.Header,
) (raised stored, done bool, err error) {
	if of.tenant.Load() != nil {
		return s, true, nil
	}
	if raised = s.above(of.shown, header.Revision); raised == s {
		return s, true, nil
	}
	if c.record != "" {
		if done, _, err = c.swap(ctx, s.modified, raised); err != nil || !done {
			return s, false, err
		}
	}
	c.p.log.Info("Raised the offset of the tenant's revisions, so that none is below one that it has seen",
		"offset", raised.offset)
	return raised, true, nil
}

// errContended answers when others were always faster.
var errContended = status.Error(codes.Unavailable, "etcd-storage-proxy: the tenant's compact revision is being changed by others, try again")

// get reads the record as it is, with a linearizable read.
func (c *compaction) get(ctx context.Context, before seen) (s stored, header wire.Header, err error) {
	if c.record == "" {
		header, err = c.p.header(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		s.compacted = c.revision
		if tenant := before.past.tenant.Load(); tenant != nil {
			s.offset = tenant.Revisions.Offset()
		}
		return s, header, err
	}
	var answer etcdserverpb.RangeResponse
	if err := c.p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, &etcdserverpb.RangeRequest{Key: []byte(c.record)}, &answer); err != nil {
		return s, header, err
	}
	header = wireHeader(answer.Header)
	if err := c.p.observe(before, header); err != nil {
		return s, header, err
	}
	s.compacted = neverCompacted
	for _, kv := range answer.Kvs {
		if s, err = c.parse(kv); err != nil {
			return s, header, err
		}
	}
	return s, header, nil
}

// parse reads a version of the record.
func (c *compaction) parse(kv *mvccpb.KeyValue) (stored, error) {
	s, err := parseStored(string(kv.Value))
	if err != nil {
		c.p.log.Error(err, "The record of the tenant's compact revision cannot be read; it must be a decimal number, or two with a space between", "record", c.record)
		return s, status.Error(codes.Unavailable, "etcd-storage-proxy: the record of the tenant's compact revision cannot be read")
	}
	s.modified = kv.ModRevision
	return s, nil
}

// compact answers KV.Compact: it moves the record forward and never reaches the core's own compaction.
func (p *Proxy) compact(ctx context.Context, call *call, request []byte) ([]byte, error) {
	asked, err := wire.ParseCompact(request)
	if err != nil {
		return nil, err
	}
	header, err := p.compaction.advance(ctx, call.seen, asked.Revision)
	if err != nil {
		return nil, err
	}
	return wire.AppendHeaderField(nil, header.For(call.seen.tenant)), nil
}

// advance makes revision the tenant's compact revision, with etcd's refusals, and returns the core's header to answer with.
func (c *compaction) advance(ctx context.Context, now seen, revision int64) (wire.Header, error) {
	c.p.pay(quota.Work{Calls: 1}, quota.Small) // it reads the record, too
	for range compactAttempts {
		s, header, err := c.load(ctx)
		if err == nil {
			err = c.p.still(now)
		}
		if err == nil {
			err = c.admissible(revision, now.tenant.Revisions.Show(header.Revision))
		}
		if err != nil {
			return wire.Header{}, err
		}
		s.compacted = revision
		done := c.record == ""
		if !done {
			if done, header, err = c.swap(ctx, s.modified, s); err != nil {
				return wire.Header{}, err
			}
		}
		if !done { // one attempt was paid
			c.p.pay(quota.Work{Calls: 2, Logged: 1}, quota.Small)
		}
		if done {
			c.adopt(now.past, s)
			return header, nil
		}
	}
	return wire.Header{}, errContended
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
func (c *compaction) swap(ctx context.Context, modified int64, s stored) (bool, wire.Header, error) {
	key := []byte(c.record)
	request := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{
			Key: key, Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: modified},
		}},
		Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: key, Value: []byte(s.value())},
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
	c.p.keepFollowing(ctx, "the tenant's compact revision", c.followed)
}

// followed reads the record and watches it until the watch breaks; began reports whether that had begun.
func (c *compaction) followed(ctx context.Context) (began bool, err error) {
	if err := c.wait(ctx); err != nil { // or this replica would be recorded for this reading, too
		return false, err
	}
	of := c.p.past.Load()
	_, header, err := c.load(ctx)
	if err != nil {
		return false, err
	}
	own := header.Revision
	watch := &etcdserverpb.WatchCreateRequest{Key: []byte(c.record), StartRevision: own + 1}
	return c.p.follow(ctx, of, watch, func(answer *etcdserverpb.WatchResponse) error {
		own = c.p.followed(answer, own)
		for _, event := range answer.Events {
			if event.Type == mvccpb.Event_PUT && event.Kv != nil {
				c.follow(of, event.Kv, wireHeader(answer.Header))
			}
		}
		return nil
	})
}

// follow takes over a version of the record.
func (c *compaction) follow(of *past, kv *mvccpb.KeyValue, header wire.Header) {
	s, err := c.parse(kv)
	if err == nil && c.adopt(of, s) { // another replica has noticed
		c.p.wentBack(seen{past: of, revision: of.highest.Load()}, header)
	}
}
