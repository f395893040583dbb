// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// historyCost is what a change costs the core alongside key and value: revisions, and the index.
	historyCost = 64
	// historyMarks are the revisions that are kept to find out what the core has compacted.
	historyMarks = 32
	// historyProbe is how often the core is asked at most whether it has compacted. It is asked only while half of the budget is used.
	historyProbe = 2 * time.Second
	historyPart  = 2
	// fewTombstones are deleted keys that the core looks at in some 0.3 ms.
	fewTombstones = 2_000
)

// history is what the tenant has written since the core's last compaction: keys and values of every change, also of those that are gone. The
// core keeps them all until it is compacted, whatever the tenant stores in the end. Each replica counts the changes of all replicas, since
// it counts what its watch of the tenant's keys brings, and finds out by itself what the core has compacted, by reading at the revisions
// that it has kept: a replica that starts begins with nothing. The ledger's lock guards it, but for underWay.
type history struct {
	limit    int64
	written  int64  // by all changes that the watch brought
	freed    int64  // of written, what the core has compacted
	deleted  int64  // keys that the watch has seen deleted
	dropped  int64  // of deleted, what the core has compacted
	marks    []mark // by revision
	probed   time.Time
	probing  bool
	refused  int64 // what the last put asked for that was refused
	underWay atomic.Int64
}

// mark is how much was written and how many keys were deleted up to a revision.
type mark struct{ revision, written, deleted int64 }

func (h *history) used() int64 { return h.written - h.freed }

// tombstones are the keys that were deleted since the core's last compaction, as far as is known. The core looks at each of them for a range that it lies
// in, as at one that is there (etcd v3.7.3, mvcc treeIndex).
func (h *history) tombstones() int64 { return h.deleted - h.dropped }

// wrote counts a change.
func (h *history) wrote(bytes int) { h.written += int64(bytes) + historyCost }

// at notes that all changes up to a revision were counted.
func (h *history) at(revision int64) {
	last := mark{written: h.freed, deleted: h.dropped}
	if n := len(h.marks); n > 0 {
		last = h.marks[n-1]
	}
	if (h.limit <= 0 || h.written-last.written < max(h.limit/historyMarks, 1)) && h.deleted-last.deleted < fewTombstones {
		return
	}
	if len(h.marks) == 2*historyMarks { // a tenant that goes far beyond what it may cannot, but deletes pass
		h.marks = append(h.marks[:1], h.marks[2:]...)
	}
	h.marks = append(h.marks, mark{revision, h.written, h.deleted})
}

// forget frees everything.
func (h *history) forget() { h.freed, h.dropped, h.marks = h.written, h.deleted, nil }

// due reports whether the core should be asked, and notes that it is.
func (h *history) due(now time.Time) bool {
	much := h.limit > 0 && h.used() >= h.limit/historyPart || h.tombstones() >= fewTombstones
	if !much || h.probing || now.Sub(h.probed) < historyProbe || len(h.marks) == 0 {
		return false
	}
	h.probing, h.probed = true, now
	return true
}

// charge takes room in the history for a put, which done gives back once the watch will bring it; or refuses it.
func (l *ledger) charge(bytes int) error {
	h := &l.history
	if h.limit <= 0 {
		return nil
	}
	underWay := h.underWay.Add(int64(bytes) + historyCost)
	l.mu.Lock()
	used := h.used()
	due := h.due(clock())
	fits := used+underWay <= h.limit
	if !fits {
		h.refused = int64(bytes) + historyCost
	}
	l.mu.Unlock()
	if due {
		l.p.background(l.probe)
	}
	if fits {
		return nil
	}
	l.charged(bytes)
	l.p.metrics.refused(limitHistory).Inc()
	return status.Error(codes.ResourceExhausted, fmt.Sprintf(
		"%s: the tenant's budget %q (%s) is used up: %d bytes were written since the core's last compaction; it is free again when the core is compacted next, "+
			"try again in %s; deletes pass", rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace), limitHistory, flagOf(limitHistory), used, historyProbe))
}

// charged ends a charge.
func (l *ledger) charged(bytes int) {
	if l.history.limit > 0 {
		l.history.underWay.Add(-int64(bytes) - historyCost)
	}
}

// historyExceeded reports whether the put that was refused last would still be refused.
func (l *ledger) historyExceeded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.history
	if h.used()+h.refused <= h.limit {
		h.refused = 0
	}
	return h.refused > 0
}

// probe finds out what the core has compacted: a revision below its compacted one cannot be read.
func (l *ledger) probe(ctx context.Context) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.history.probing = false
		l.tell()
	}()
	for {
		l.mu.Lock()
		var oldest mark
		if len(l.history.marks) > 0 {
			oldest = l.history.marks[0]
		}
		l.mu.Unlock()
		if oldest.revision == 0 {
			return
		}
		request := &etcdserverpb.RangeRequest{Key: []byte(l.p.cfg.Tenant.Prefix.String()), CountOnly: true, Revision: oldest.revision}
		err := l.p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &etcdserverpb.RangeResponse{})
		if rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted) {
			return
		}
		l.mu.Lock()
		if marks := l.history.marks; len(marks) > 0 && marks[0] == oldest {
			l.history.freed, l.history.dropped, l.history.marks = oldest.written, oldest.deleted, marks[1:]
		}
		l.mu.Unlock()
	}
}
