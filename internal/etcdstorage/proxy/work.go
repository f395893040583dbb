// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

const (
	// mostKeysOfWrites is how many keys the ranges of a Txn that is not read-only may have together. The core does it
	// within its one apply loop, where every other tenant's write waits for it: at some 140 ns for each key that is
	// looked at, and some microseconds for each that is read, 2,000 keys take no longer than a write to a disk.
	// API servers' Txns have ranges of one key only.
	mostKeysOfWrites = 2_000
	// mostKeys is the same for other requests that are one piece of work at the core: a Txn that only reads, outside of
	// the apply loop, and a DeleteRange, which people make and no API server does.
	mostKeys = 10_000
	// mostScanned is how many bytes of values the compares and ranges of a Txn that is not read-only may have together,
	// which take the core's apply loop some 15 ms.
	mostScanned = 64 << 20
)

// bound says that the keys of some ranges must be counted first. Such a request has a seat of those for lists.
func (c *cost) bound(spans []wire.Span, most int64) {
	c.spans, c.most, c.list = spans, most, c.list || len(spans) > 0
}

// fewKeys reports whether the ranges of a request cannot have too many keys, because the tenant has not that many.
func (p *Proxy) fewKeys(c *cost) bool {
	if len(c.spans) == 0 {
		return true
	}
	keys, tombstones, known := p.ledger.mostKeys()
	spans := int64(len(c.spans))
	scanned := p.scanned(c, keys) * spans
	if keys += tombstones; !known || keys*spans > c.most || c.heavy(scanned) {
		return false
	}
	c.work.Keys, c.found = keys*spans, keys*spans
	if !c.deletes {
		c.work.Values, c.work.Scanned = keys*spans, scanned
	}
	return true
}

// scanned is how many bytes of values the core may read for keys in one of the spans. To delete them it reads none.
func (p *Proxy) scanned(c *cost, keys int64) int64 {
	if c.deletes {
		return 0
	}
	return p.ledger.mostOf(keys)
}

// heavy reports whether that is too much for the core's apply loop.
func (c *cost) heavy(scanned int64) bool { return c.most == mostKeysOfWrites && scanned > mostScanned }

// logged is the work of a request that goes through the core's log.
func logged(bytes int) quota.Work {
	return quota.Work{Calls: 1, Logged: 1, Written: int64(bytes)}
}

// mostLearnt are the ranges of which it is known how many keys they have, or how large responses are; then all are
// forgotten.
const mostLearnt = 4096

// learnt is how many keys ranges had when they were read last, and how large the responses were that may have so many
// values of a range, under a hash that cannot be foreseen. The revision, and whatever else a request may vary without
// end, is not in it: a request must not be unknown each time.
type learnt struct {
	seed maphash.Seed

	mu     sync.Mutex
	counts map[uint64]int64
}

// response is what the size of a response is learnt for. One with 0 values is for the number of keys of the range.
type response struct {
	span   wire.Span
	values int64
	scans  bool
}

// hash is never 0.
func (l *learnt) hash(r response) uint64 { return max(maphash.Comparable(l.seed, r), 1) }

func (l *learnt) keys(span uint64) (keys int64, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys, known = l.counts[span]
	return keys, known
}

func (l *learnt) learn(span uint64, keys int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.counts) >= mostLearnt || l.counts == nil {
		l.counts = map[uint64]int64{}
	}
	l.counts[span] = keys
}

// estimate prices a range by the keys that it had last, and by those that the tenant has deleted: it is not known where they
// were. One of which nothing is known is a large request.
func (p *Proxy) estimate(c *cost, span wire.Span) {
	c.span = p.learnt.hash(response{span: span})
	keys, tombstones, known := p.keysOf(c)
	c.tombstones = tombstones
	c.list = c.list || !known
	if !c.list {
		p.expect(c, keys)
	}
}

// classify makes what the core is expected to be busy with for long a large request, by its work as far as it is known
// and the size of its response: as it was last, or by what the tenant's keys have on average.
func (p *Proxy) classify(c *cost) {
	if c.list {
		return
	}
	expected := c.work
	if bytes, known := p.learnt.keys(c.asked); known && c.asked != 0 {
		expected.Read += bytes
	} else {
		values := c.values
		if c.span != 0 {
			values = min(values, c.work.Keys)
		}
		expected.Read += p.ledger.expectedOf(values)
	}
	c.list = expected.Class() == quota.Large
}

// keysOf is how many keys a range had last, or the tenant has at most, and how many it has deleted.
func (p *Proxy) keysOf(c *cost) (keys, tombstones int64, known bool) {
	all, tombstones, counted := p.ledger.mostKeys()
	if keys, known = p.learnt.keys(c.span); !known {
		keys, known = all, counted
	}
	return keys, tombstones, known
}

// unseen pays for what the core may have done for a request without telling: its response was given up, or is too large,
// or the core was lost. It is what the ledger knows of the request's ranges. unread are the bytes of a response that the
// core has made; read pays for them.
func (p *Proxy) unseen(c *cost, unread int64) {
	var more quota.Work
	keys, values := c.found, c.values
	if c.span != 0 {
		keys, _, _ = p.keysOf(c)
		values = min(values, keys)
		read, scanned := p.valuesIn(c, keys)
		more.Keys = max(keys+c.tombstones-c.work.Keys, 0)
		more.Values, more.Scanned = max(read-c.work.Values, 0), max(scanned-c.work.Scanned, 0)
	}
	if c.removes {
		more.Deleted = keys
	}
	if c.leases {
		more.Values = max(unread/leaseBytes-c.work.Values, 0)
	}
	if unread == 0 {
		more.Read = max(p.ledger.expectedOf(values)-c.work.Read, 0)
	}
	p.pay(more, c.class())
}

// expect prices a range by the keys that it may have.
func (p *Proxy) expect(c *cost, keys int64) {
	c.work.Keys = keys + c.tombstones
	c.work.Values, c.work.Scanned = p.valuesIn(c, keys)
}

// valuesIn is how many values the core reads for a range with so many keys, and how many bytes of them only to compare,
// sort or filter.
func (p *Proxy) valuesIn(c *cost, keys int64) (values, scanned int64) {
	if c.scans {
		return keys, p.ledger.mostOf(keys)
	}
	return min(c.values, keys), 0
}

// price is what a large request costs as far as it is known. It is taken when the request has a seat: by then those before
// it were corrected, and no more can have turned out to be dear than there are seats.
func (p *Proxy) price(c *cost) quota.Work {
	c.work.Read = leastList
	if bytes, known := p.learnt.keys(c.asked); known && c.asked != 0 {
		c.work.Read = bytes
	}
	if keys, known := p.learnt.keys(c.span); known && c.span != 0 {
		p.expect(c, keys)
	}
	return c.work
}

// paid takes the price of a large request, which has its seat now, and returns how long to wait for it. A small one has
// paid before, but if it had to wait for its seat, those before it may have needed more than they had paid.
func (r *rpc) paid() (wait time.Duration, err error) {
	switch {
	case r.cost.list:
		return r.p.take(r.p.price(&r.cost), quota.Large)
	case r.waited:
		return r.p.overdue()
	}
	return 0, nil
}

// counted corrects the price of a range by the keys that it has had.
func (p *Proxy) counted(c *cost, keys int64) {
	if c.span == 0 {
		return
	}
	values, scanned := p.valuesIn(c, keys)
	p.pay(quota.Work{
		Keys: keys + c.tombstones - c.work.Keys, Values: values - c.work.Values, Scanned: scanned - c.work.Scanned,
	}, c.class())
	p.learnt.learn(c.span, keys)
}

// weigh counts the keys of a request's ranges, and refuses those with too many. A range counts as one key at least. A
// tenant that gives up does not end the count, for which the request has its seat.
func (r *rpc) weigh() error {
	ctx, cancel := context.WithTimeout(r.p.ctx, unaryTime)
	defer cancel()
	counts := map[wire.Span]int64{}
	left := r.cost.most
	_, tombstones, _ := r.p.ledger.mostKeys()
	if r.cost.deletes {
		tombstones = 0 // it looks at them once, and people must be able to delete in parts
	}
	var work quota.Work
	defer func() { r.p.pay(work, r.cost.class()) }()
	for _, span := range r.cost.spans {
		n, counted := counts[span]
		if !counted {
			var err error
			n, err = r.p.countKeys(ctx, span)
			work.Calls, work.Keys = work.Calls+1, work.Keys+n+tombstones
			if err != nil {
				return err
			}
			counts[span] = n
		}
		r.cost.found += n
		work.Values, work.Scanned = work.Values+n, work.Scanned+r.p.scanned(&r.cost, n) // a compare reads them
		if left -= max(n+tombstones, 1); left < 0 || r.cost.heavy(work.Scanned) {
			return r.p.tooMuch(r.s.Method, r.cost.most)
		}
	}
	return nil
}

// countKeys asks the core how many keys a range has: a read of its index, outside of the apply loop. If that fails it is
// not known which of the tenant's keys the core has looked at: all of them count.
func (p *Proxy) countKeys(ctx context.Context, span wire.Span) (int64, error) {
	request := &etcdserverpb.RangeRequest{Key: []byte(span.Key), RangeEnd: []byte(span.End), CountOnly: true, Serializable: true}
	var answer etcdserverpb.RangeResponse
	if err := p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &answer); err != nil {
		keys, _, _ := p.ledger.mostKeys()
		return keys, err
	}
	return answer.Count, nil
}

// tooMuch refuses a request for good, with etcd's own text for one that asks for too much, and InvalidArgument as there:
// clients repeat what is ResourceExhausted, and to repeat this is of no use.
func (p *Proxy) tooMuch(method string, most int64) error {
	p.metrics.refused(limitWork).Inc()
	text, instead := rpctypes.ErrorDesc(rpctypes.ErrGRPCTooManyOps), "range over them outside of the Txn, or name single keys"
	if method == etcdserverpb.KV_DeleteRange_FullMethodName {
		text, instead = rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge), "delete them in several parts"
	}
	return status.Errorf(codes.InvalidArgument, "%s: its ranges have more than %d keys, or with a write more than %d MiB, the "+
		"most for one request: %s", text, most, mostScanned>>20, instead)
}

// startAfter is start for a request that must wait for its price, and whose keys must be counted if it has spans.
func (r *rpc) startAfter(wait time.Duration) {
	if ctx := r.s.Context(); wait > 0 && !pause(ctx, wait) {
		r.fail(nil, status.FromContextError(ctx.Err()).Err())
		return
	}
	if len(r.cost.spans) > 0 {
		if err := r.weigh(); err != nil {
			r.fail(nil, r.p.answer(r.s.Method, err))
			return
		}
	}
	r.start()
}

// charge takes room in the history for what is written.
func (r *rpc) charge() error {
	if err := r.p.ledger.charge(r.cost.written); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		r.p.ledger.charged(r.cost.written)
		return nil
	}
	r.charged = r.cost.written
	return nil
}
