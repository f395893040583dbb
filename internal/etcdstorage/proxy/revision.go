// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// errWentBack ends what began before the core went back. Clients of etcd connect again after Unavailable.
var errWentBack = status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd went back to an earlier revision, as after a restore from a backup; restart API servers and their clients")

// past is the history of the core that the proxy has seen. When the core goes back another one begins, so that a late response of the core before
// does not count as seen of the core after.
type past struct {
	highest atomic.Int64
	over    chan struct{} // closed when the core went back
}

// seen is the highest revision that was known when a request began. The zero value is nothing, with which nothing is compared.
type seen struct {
	past     *past
	revision int64
}

// see notes a revision that a member of the core has reached.
func (h *past) see(revision int64) {
	for {
		highest := h.highest.Load()
		if revision <= highest || h.highest.CompareAndSwap(highest, revision) {
			return
		}
	}
}

// seen returns what is known before a request begins. It must be called before the request is sent.
func (p *Proxy) seen() seen {
	h := p.past.Load()
	return seen{past: h, revision: h.highest.Load()}
}

// observe compares the response to a linearizable request with what was known when the request began, and returns errWentBack if its revision is lower.
//
// A member that lags is never taken for a core that went back. A revision that was seen was applied by a member, so it is committed. A linearizable
// request that begins afterwards is served at an index that a majority has confirmed since (etcd's ReadIndex), or is itself a later entry of the log,
// and the member that responds has applied all before it: its revision is not lower, whichever member it is. Only a core that has lost committed
// revisions responds with a lower one. Serializable reads, watches and the status of a member promise nothing of the kind, and are not compared.
func (p *Proxy) observe(before seen, header wire.Header) error {
	if before.past == nil {
		return nil
	}
	if header.Revision >= before.revision {
		before.past.see(header.Revision)
		return nil
	}
	p.wentBack(before, header)
	return errWentBack
}

// wentBack begins another past, unless another request has done so for the same reason.
func (p *Proxy) wentBack(before seen, header wire.Header) {
	p.restarting.Lock()
	defer p.restarting.Unlock()
	if p.past.Load() != before.past {
		return
	}
	p.metrics.wentBack.Inc()
	p.log.Info("The core went back to an earlier revision: ending all streams and reloading what is known of the tenant; restart its API servers and their clients",
		"seenRevision", before.revision, "revision", header.Revision, "clusterID", strconv.FormatUint(header.ClusterID, 16))
	after := &past{over: make(chan struct{})}
	after.highest.Store(header.Revision)
	p.compaction.restart(after) // first: who reads its record in the new past must find that it takes it over
	p.past.Store(after)
	p.ledger.restart() // afterwards: a count of the past before must not end the reload
	p.leases.restart()
	p.hub.EndAll(errWentBack)
	close(before.past.over)
}
