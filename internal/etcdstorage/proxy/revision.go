// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// errWentBack ends what began before the core went back. Clients of etcd connect again after Unavailable.
var errWentBack = status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd went back to an earlier revision, as after a restore from a backup, try again")

// revisionGap is how far the offset is raised above what this replica knows that the tenant was shown: others may have shown it more.
const revisionGap = 1_000_000

// past is the history of the core that the proxy has seen. When the core goes back another one begins, so that a late response of the core before
// does not count as seen of the core after.
type past struct {
	highest atomic.Int64
	term    atomic.Uint64 // the highest of Raft
	cluster atomic.Uint64 // the cluster's ID; 0 before the first response
	shown   int64         // the highest revision that the tenant was shown in the pasts before, as far as is known; 0 if there were none
	// tenant has the offset of revisions, which holds as long as the past does; nil before the offset is known.
	tenant atomic.Pointer[tenancy.Tenant]
	// confirmed is a copy of tenant; nil until it is sure that the core is the one that the past is of. Until then nothing is served.
	confirmed atomic.Pointer[tenancy.Tenant]
	over      chan struct{} // closed when the core went back
}

// seen is what was known when a request began. Its tenant is nil if the request must wait, and another value each time that the core was confirmed.
type seen struct {
	past     *past
	tenant   *tenancy.Tenant
	revision int64
	term     uint64
}

// see notes how far a member of the core was that responded.
func (h *past) see(header wire.Header) {
	for {
		highest := h.highest.Load()
		if header.Revision <= highest || h.highest.CompareAndSwap(highest, header.Revision) {
			break
		}
	}
	for {
		term := h.term.Load()
		if header.RaftTerm <= term || h.term.CompareAndSwap(term, header.RaftTerm) {
			return
		}
	}
}

// mostShown is the highest revision that the tenant was shown so far, as far as is known.
func (h *past) mostShown() int64 {
	tenant := h.tenant.Load()
	if tenant == nil {
		return h.shown
	}
	return max(h.shown, tenant.Revisions.Show(h.highest.Load()))
}

// offset is that of the tenant's revisions; 0 while it is not known.
func (h *past) offset() int64 {
	tenant := h.tenant.Load()
	if tenant == nil {
		return 0
	}
	return tenant.Revisions.Offset()
}

// fix sets the offset by which the tenant's revisions are above the core's, once.
func (h *past) fix(tenant tenancy.Tenant, offset int64) {
	tenant.Revisions = tenancy.NewRevisions(offset)
	h.tenant.Store(&tenant)
}

// confirm lets requests be served, with the offset that was fixed.
func (p *Proxy) confirm(h *past) {
	again := *h.tenant.Load()
	h.confirmed.Store(&again)
	p.metrics.revisionOffset.Set(float64(h.offset()))
}

// seen returns what is known before a request begins. It must be called before the request is sent.
func (p *Proxy) seen() seen {
	h := p.past.Load()
	return seen{past: h, tenant: h.confirmed.Load(), revision: h.highest.Load(), term: h.term.Load()}
}

// ready is seen once the core was confirmed.
func (p *Proxy) ready(ctx context.Context) (seen, error) {
	for {
		if s := p.seen(); s.tenant != nil {
			return s, nil
		}
		if err := p.compaction.wait(ctx); err != nil {
			return seen{}, err
		}
	}
}

// errUnsure is the response to a request that may have gone to another core than it was rewritten for.
var errUnsure = status.Error(codes.Unavailable, "etcd-storage-proxy: all connections to the core etcd were lost, try again")

// still returns an error if the core went back since s, or may have.
func (p *Proxy) still(s seen) error {
	switch h := p.past.Load(); {
	case h != s.past:
		return errWentBack
	case h.confirmed.Load() != s.tenant:
		return errUnsure
	}
	return nil
}

// restarted is called when all connections to the core were lost: another core, or an earlier state of it, may respond on the next. Nothing is served
// until a linearizable read and the tenant's record have shown that it has all that was seen.
func (p *Proxy) restarted() {
	p.compaction.doubt()
}

// observe compares the response to a linearizable request with what was known when the request began, and returns errWentBack if the core has lost
// some of that.
//
// A member that lags is never taken for a core that went back. A revision that was seen was applied by a member, so it is committed. A linearizable
// request that begins afterwards is served at an index that a majority has confirmed since (etcd's ReadIndex), or is itself a later entry of the log,
// and the member that responds has applied all before it: neither its revision nor its term, which is that of the entry applied last (etcd v3.7.3,
// EtcdServer.setTerm), is lower, whichever member it is. Only a core that has lost committed entries responds with a lower one, or with the ID
// of another cluster. Serializable reads, watches and the status of a member promise nothing of the kind: see glimpse.
func (p *Proxy) observe(before seen, header wire.Header) error {
	cluster := before.past.cluster.Load()
	if cluster == 0 && header.ClusterID != 0 {
		before.past.cluster.CompareAndSwap(0, header.ClusterID)
		cluster = before.past.cluster.Load()
	}
	if header.Revision < before.revision || header.RaftTerm < before.term || header.ClusterID != cluster {
		p.wentBack(before, header)
		return errWentBack
	}
	before.past.see(header)
	return nil
}

// glimpse notes a response that is not linearizable. One that is behind what was known before comes from a member that lags, or from a core that went
// back: a linearizable read finds out which.
func (p *Proxy) glimpse(before seen, header wire.Header) {
	switch {
	case header.Revision == 0: // the notice of a compacted watch has none
	case header.Revision < before.revision || header.RaftTerm < before.term:
		p.verify()
	default:
		before.past.see(header)
	}
}

// verify makes a linearizable read unless one is under way.
func (p *Proxy) verify() {
	if p.verifying.CompareAndSwap(false, true) {
		p.background(func(ctx context.Context) {
			defer p.verifying.Store(false)
			ctx, cancel := context.WithTimeout(ctx, unaryTime)
			defer cancel()
			_, _ = p.header(ctx) // which observes
		})
	}
}

// wentBack begins another past, unless another request has done so for the same reason. What began before ends. What begins afterwards waits until the
// tenant's record has an offset that is above all that the tenant was shown.
func (p *Proxy) wentBack(before seen, header wire.Header) {
	p.restarting.Lock()
	defer p.restarting.Unlock()
	if p.past.Load() != before.past {
		return
	}
	p.metrics.wentBack.Inc()
	p.log.Info("The core went back to an earlier revision: ending all streams and reloading what is known of the tenant; its clients must list again",
		"seenRevision", before.revision, "revision", header.Revision, "clusterID", strconv.FormatUint(header.ClusterID, 16))
	after := &past{over: make(chan struct{}), shown: before.past.mostShown()}
	after.cluster.Store(header.ClusterID)
	after.see(header)
	p.compaction.restart(after) // first: who reads its record in the new past must find that it takes it over
	p.past.Store(after)
	p.ledger.restart() // afterwards: a count of the past before must not end the reload
	p.leases.restart()
	p.hub.EndAll(errWentBack)
	close(before.past.over)
}
