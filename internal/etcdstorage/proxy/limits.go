// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

const (
	// mostWaiting is how many requests may wait for a seat at the core.
	mostWaiting = 4096
	// leaseCountEvery is how often the tenant's leases are counted at most.
	leaseCountEvery = 10 * time.Second
	// listShare is the part of the seats that there are again for requests whose answer may be large.
	listShare = 8
)

// limit sets up what bounds the tenant's requests.
func (p *Proxy) limit() {
	if p.cfg.Lists == 0 && p.cfg.InFlight > 0 {
		p.cfg.Lists = max(p.cfg.InFlight/listShare, 1)
	}
	p.seats.bounded, p.seats.most = p.cfg.InFlight > 0, mostWaiting
	p.lists.bounded, p.lists.most = p.cfg.Lists > 0, mostWaiting
	p.budgets.set(&p.cfg)
	p.exportBudgets()
	p.leases = &leaseCount{p: p}
}

// overQuota reports whether growth is refused now.
func (p *Proxy) overQuota() bool {
	_, exceeded := p.ledger.used()
	return exceeded || p.ledger.historyExceeded()
}

// leaseCount knows how many leases the tenant has: a count, and what was granted through this replica since. Leases that end are found by the
// next count, which is made only when the bound seems to be reached, since etcd lists the leases of all tenants for it.
type leaseCount struct {
	p *Proxy

	// mu guards what follows, and is held for no call to the core: those that read the core's answers take it, and would wait for themselves.
	mu       sync.Mutex
	known    bool
	count    int // those of the last count, and those granted or under way since
	underWay int // grants that the core has not answered
	counted  time.Time
	counting chan struct{} // closed when the count that is being made ends; nil when none is
}

// room reports whether there is room for one more lease. If there is it counts as granted, and answered must be told how the grant ended.
func (l *leaseCount) room(ctx context.Context) (bool, error) {
	if l.p.cfg.Leases <= 0 {
		return true, nil
	}
	for {
		room, wait, err := l.take(ctx)
		if wait == nil {
			return room, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return false, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// take takes the room there is. While somebody else counts wait is what is to be waited for.
func (l *leaseCount) take(ctx context.Context) (room bool, wait <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	most := l.p.cfg.Leases
	if l.counting != nil {
		return false, l.counting, nil
	}
	if l.due(most) {
		if err := l.again(ctx); err != nil {
			return false, nil, err
		}
	}
	if l.count >= most {
		l.p.metrics.refused(limitLeases).Inc()
		return false, nil, nil
	}
	l.count++
	l.underWay++
	return true, nil, nil
}

// due reports whether to count.
func (l *leaseCount) due(most int) bool {
	now := time.Now() //nolint:forbidigo // how old a count is; no decision about data
	return !l.known || l.count >= most && now.Sub(l.counted) >= leaseCountEvery
}

// again counts. The lock is held, but not while the core is asked: nothing is granted meanwhile, and what was under way before counts as granted,
// whether the core has listed it or not.
func (l *leaseCount) again(ctx context.Context) error {
	l.counting = make(chan struct{})
	defer func() {
		close(l.counting)
		l.counting = nil
	}()
	underWay := l.underWay
	count, err := l.ask(ctx)
	if err != nil {
		return err
	}
	l.known, l.count, l.counted = true, count+underWay, time.Now() //nolint:forbidigo // as above
	return nil
}

// answered says how a grant for which there was room ended. One that may have been made without a word of it stays counted until the next count: else
// giving up each grant would be a way to any number of leases.
func (l *leaseCount) answered(err error) {
	if l.p.cfg.Leases <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	if err != nil && !uncertain(status.Code(err)) {
		l.count = max(l.count-1, 0)
	}
}

// restart has the leases counted again.
func (l *leaseCount) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = false
}

// revoked reports that a lease was revoked.
func (l *leaseCount) revoked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count = max(l.count-1, 0)
}

// uncertain says of a code whether what it answers may have been done all the same.
func uncertain(code codes.Code) bool {
	switch code { // the others are the core's refusals
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown, codes.Internal:
		return true
	default:
		return false
	}
}

// ask asks the core, and gives the lock to others meanwhile.
func (l *leaseCount) ask(ctx context.Context) (int, error) {
	l.mu.Unlock()
	defer l.mu.Lock()
	request, err := wire.AppendLeaseLeases(nil, &l.p.cfg.Tenant, nil)
	if err != nil {
		return 0, err
	}
	answer, err := l.p.up.Unary(ctx, etcdserverpb.Lease_LeaseLeases_FullMethodName, false, request)
	l.p.pay(quota.Work{Calls: 1, Values: max(int64(len(answer)/leaseBytes), l.p.listed.Load())}, quota.Small)
	if err != nil {
		return 0, err
	}
	_, info, err := wire.AppendLeaseLeasesResponse(nil, &l.p.cfg.Tenant, answer)
	return info.Leases, err
}
