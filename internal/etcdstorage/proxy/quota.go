// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// Bounds of the first count of what the tenant stores, in bytes per second: with a quota growth waits for its end, otherwise nobody does.
const (
	quotaScanRate = 64 << 20
	usageScanRate = 4 << 20
)

// usagePatience is how long a request for the size waits for the first count.
const usagePatience = 500 * time.Millisecond

// catchUpLimit bounds how long growth that would be refused waits for the watch to bring the tenant's own newest writes. Usually it takes
// milliseconds.
const catchUpLimit = 2 * time.Second

// errRecount tells that the watch of the tenant's keys lost its place, so that they must be counted again.
var errRecount = errors.New("the watch of the tenant's keys cannot go on where it was")

// ledger is what the tenant stores and what it has written, followed by one watch of all its keys, and the judge of what may grow. Without a
// quota and without a budget of history it begins only when somebody asks for the size.
type ledger struct {
	p       *Proxy
	limits  quota.Limits
	history history
	begun   sync.Once

	mu       sync.Mutex // guards what follows
	book     *quota.Ledger
	counted  bool // since the core went back, if it did
	isLoaded bool
	loaded   chan struct{} // closed when growth can be judged: the keys were counted, and the book has come to until
	answered int64         // revision of the newest write that the tenant knows to be done
	advanced chan struct{} // closed at the book's next change, nil while nobody waits

	// A write is let in by what the book holds. When the keys were counted again, as after a restore of the core, what
	// was let in by the book before may have made keys that it took for known: growth waits until the new book has come
	// to those writes.
	counts int64 // how often the keys were counted
	newest int64 // reservation
	before int64 // the newest reservation when the keys were counted last
	until  int64 // revision of the newest write that was let in by an earlier book

	own int64 // revision of the newest write that was counted as the tenant's
}

func newLedger(p *Proxy) *ledger {
	return &ledger{p: p, limits: p.cfg.Quota, history: history{limit: p.cfg.HistoryBytes}, book: newBook(), loaded: make(chan struct{})}
}

// enforced reports whether there is a quota.
func (l *ledger) enforced() bool { return l.limits != (quota.Limits{}) }

// mostKeys is how many keys the tenant has at most, and whether that is known, and how many it has deleted since the core's last compaction, unless
// they are few.
func (l *ledger) mostKeys() (keys, tombstones int64, known bool) {
	l.mu.Lock()
	if tombstones = l.history.tombstones(); tombstones < fewTombstones {
		tombstones = 0
	}
	due := tombstones > 0 && l.history.due(clock())
	keys, known = l.book.Most().Keys, l.counted
	l.mu.Unlock()
	if due {
		l.p.background(l.probe)
	}
	return keys, tombstones, known
}

// mostOf is how many bytes a number of the tenant's keys may have; 0 if that is not known.
func (l *ledger) mostOf(keys int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.MostOf(keys)
}

// expectedOf is how many bytes a number of the tenant's keys have on average; 0 if that is not known.
func (l *ledger) expectedOf(keys int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.ExpectedOf(keys)
}

// begin starts following the tenant's keys, once.
func (l *ledger) begin() {
	l.begun.Do(func() { l.p.background(l.run) })
}

// size is what the tenant stores. Without a quota it waits only a moment for the first count.
func (l *ledger) size(ctx context.Context) (int64, error) {
	l.begin()
	if l.enforced() {
		if err := l.wait(ctx); err != nil {
			return 0, err
		}
	} else {
		patience := time.NewTimer(usagePatience)
		defer patience.Stop()
		select {
		case <-l.whenLoaded():
		case <-patience.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	used, _ := l.used()
	return used.Bytes, nil
}

// newBook is an empty ledger with a hash that nobody can foresee.
func newBook() *quota.Ledger {
	seed := maphash.MakeSeed()
	return quota.NewLedger(func(key []byte) uint64 { return maphash.Bytes(seed, key) })
}

// wait returns after the first count; at once without a quota.
func (l *ledger) wait(ctx context.Context) error {
	if !l.enforced() {
		return nil
	}
	select {
	case <-l.whenLoaded():
		return nil
	case <-ctx.Done():
		return status.Error(codes.Unavailable, "etcd-storage-proxy: what the tenant stores has not been counted yet, try again")
	}
}

// whenLoaded is closed after the first count.
func (l *ledger) whenLoaded() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded
}

// restart has the tenant's keys counted again, and lets growth wait for that.
func (l *ledger) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered, l.until, l.counted = 0, 0, false
	l.p.budgets.forget()
	l.shut()
}

// shut lets growth wait; the caller holds the lock.
func (l *ledger) shut() {
	if l.isLoaded {
		l.isLoaded, l.loaded = false, make(chan struct{})
	}
}

// open ends that when the book holds all that growth is judged by; the caller holds the lock.
func (l *ledger) open() {
	if l.counted && !l.isLoaded && l.book.Revision() >= l.until {
		l.isLoaded = true
		close(l.loaded)
	}
}

// growth is what a request would add, branch by branch; a request without puts adds nothing.
type growth struct {
	ledger           *ledger
	success, failure quota.Size
}

// visit counts a put.
func (g *growth) visit(put wire.Put) {
	g.ledger.mu.Lock()
	defer g.ledger.mu.Unlock()
	size := g.ledger.book.Growth(put.Key, put.Bytes, put.KeepsValue)
	branch := &g.failure
	if put.Success {
		branch = &g.success
	}
	branch.Bytes += size.Bytes
	branch.Keys += size.Keys
}

// reserve makes room for a request, or refuses it. It must be the last thing that can refuse one. The ID of one that
// grows nothing is negative and tells by which count it was judged.
func (l *ledger) reserve(g *growth) (id int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isLoaded {
		return 0, errNotCounted
	}
	id, ok := l.book.Reserve(l.limits, g.success, g.failure, clock())
	switch {
	case ok && id == 0:
		return -l.counts, nil
	case ok:
		l.newest = id
		return id, nil
	case l.book.Revision() < l.answered:
		return 0, errBehind
	}
	return 0, l.refuse()
}

// refuse counts a refusal; the caller holds the lock.
func (l *ledger) refuse() error {
	l.p.metrics.refused(limitSpace).Inc()
	l.tell()
	return rpctypes.ErrGRPCNoSpace
}

// refused is refuse for who does not hold the lock.
func (l *ledger) refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refuse()
}

// answeredAt is told of the revision of each write, before the tenant is: anyone who has the answer to a write may rely
// on it in the next, so a key that was just written does not count as new, and what was just deleted leaves room. id is
// what reserve returned for it, 0 if it was not asked.
func (l *ledger) answeredAt(id, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = max(l.answered, revision)
	earlier := id > 0 && id <= l.before || id < 0 && -id < l.counts
	if earlier && revision > l.book.Revision() {
		l.until = max(l.until, revision)
		l.shut()
	}
}

// catchUp returns when all writes that were answered by now are in the book, or when that takes too long.
func (l *ledger) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	l.mu.Lock()
	until := l.answered
	l.mu.Unlock()
	for {
		l.mu.Lock()
		done := l.book.Revision() >= until
		if l.advanced == nil {
			l.advanced = make(chan struct{})
		}
		advanced := l.advanced
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return
		}
	}
}

// advance wakes who waits for the book; the caller holds the lock.
func (l *ledger) advance() {
	if l.advanced != nil {
		close(l.advanced)
		l.advanced = nil
	}
}

// settle is told of the answer to a request for which room was made, and which branch of a Txn ran; all else succeeds.
func (l *ledger) settle(id int64, succeeded bool, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.Settle(id, succeeded, revision, time.Now()) //nolint:forbidigo // how long ago; no decision about data
}

// ended is called at the end of each request for which room was made, answered or not. Room of one that the core may have done without a
// word of it is kept until that would be in the book.
func (l *ledger) ended(id int64, sure bool) {
	if id <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.Abandon(id, sure, time.Now()) //nolint:forbidigo // how long ago; no decision about data
}

// used is what is stored, and whether the tenant is at its limit.
func (l *ledger) used() (size quota.Size, exceeded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.Used(), l.book.Exceeded(l.limits)
}

// tell sets the metrics; the caller holds the lock.
func (l *ledger) tell() {
	used := l.book.Used()
	l.p.metrics.bytes.Set(float64(used.Bytes))
	l.p.metrics.keys.Set(float64(used.Keys))
	exceeded := 0.0
	if l.book.Exceeded(l.limits) {
		exceeded = 1
	}
	l.p.metrics.exceeded.Set(exceeded)
	l.p.metrics.history.Set(float64(l.history.used()))
}

// run counts the tenant's keys once and follows them until ctx ends.
func (l *ledger) run(ctx context.Context) {
	var counted *past // of which the keys were counted
	l.p.keepFollowing(ctx, "what the tenant stores", func(ctx context.Context) (began bool, err error) {
		if now := l.p.past.Load(); counted != now {
			if err := l.count(ctx, now); err != nil {
				return false, err
			}
			counted = now
		}
		began, err = l.watch(ctx, counted)
		if errors.Is(err, errRecount) {
			counted = nil
		}
		return began, err
	})
}

// count reads all keys as of one revision. What it has read of a past that the core has lost meanwhile is of no use.
func (l *ledger) count(ctx context.Context, of *past) error {
	book := newBook()
	prefix := len(l.p.cfg.Tenant.Prefix.String())
	rate := int64(usageScanRate)
	if l.enforced() {
		rate = quotaScanRate
	}
	revision, err := l.p.everything(ctx, rate, func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			book.Put(kv.Key[prefix:], len(kv.Key)+len(kv.Value))
		}
	})
	if err != nil {
		return err
	}
	book.Advance(revision, time.Time{})
	return l.takeOver(book, of)
}

// takeOver goes on with a book that was counted.
func (l *ledger) takeOver(book *quota.Ledger, of *past) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.p.past.Load() != of {
		return errRecount
	}
	l.book.Replace(book, time.Now()) //nolint:forbidigo // how long ago; no decision about data
	l.history.forget()               // a watch that lost its place lost it to a compaction, which all that it had seen went with
	l.counts, l.before, l.counted = l.counts+1, l.newest, true
	l.own = l.book.Revision()
	l.p.budgets.begin(l.own)
	l.until = l.answered
	if l.book.Revision() < l.until {
		l.shut()
	}
	l.open()
	l.advance()
	l.tell()
	return nil
}

// watch follows all keys of the tenant from where the ledger is.
func (l *ledger) watch(ctx context.Context, of *past) (began bool, err error) {
	l.mu.Lock()
	from := l.book.Revision() + 1
	l.mu.Unlock()
	return l.p.follow(ctx, of, &etcdserverpb.WatchCreateRequest{
		Key: []byte(l.p.cfg.Tenant.Prefix.String()), RangeEnd: []byte(l.p.cfg.Tenant.Prefix.End()), StartRevision: from,
		ProgressNotify: true, // so that an idle tenant's place is not compacted away beneath it
		Fragment:       true,
	}, func(answer *etcdserverpb.WatchResponse) error {
		switch {
		case answer.CompactRevision > 0:
			return errRecount
		case !answer.Canceled:
			of.see(wireHeader(answer.Header))
			l.follow(answer)
		}
		return nil
	})
}

// follow takes over what a watch brought. A fragment of a revision does not yet bring the ledger to it: the rest would be lost with the stream.
func (l *ledger) follow(answer *etcdserverpb.WatchResponse) {
	prefix := len(l.p.cfg.Tenant.Prefix.String())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = l.p.followed(answer, l.own)
	for _, event := range answer.Events {
		if event.Type == mvccpb.Event_DELETE {
			l.book.Delete(event.Kv.Key[prefix:])
			l.history.wrote(len(event.Kv.Key))
			l.history.deleted++
			continue
		}
		l.history.wrote(len(event.Kv.Key) + len(event.Kv.Value))
		l.book.Put(event.Kv.Key[prefix:], len(event.Kv.Key)+len(event.Kv.Value))
	}
	if !answer.Fragment && !answer.Created {
		l.book.Advance(answer.Header.Revision, time.Now()) //nolint:forbidigo // how long ago; no decision about data
		l.history.at(answer.Header.Revision)
		l.open()
		l.advance()
	}
	l.tell()
}
