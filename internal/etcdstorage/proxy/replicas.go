// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// replicaRecord is where the replicas of a tenant's proxy are recorded, between the tenant's records and the name of one. It MUST NOT change:
// replicas of another version read it.
const replicaRecord = "/replicas/"

// readRecord is before the name of a replica whose tenant only reads. In the order of keys it is next to replicaRecord.
const readRecord = "/reads/"

const (
	// replicaExpiry is how long a replica counts as alive that has died, unless it is configured. It renews its record three
	// times in that time.
	replicaExpiry = 15 * time.Second
	replicaBeats  = 3
	// demandParts is what a record's demand is a part of.
	demandParts = 1000
	// leastReads are the units between two beats that others need to know of.
	leastReads = 10
)

// errReplicaGone tells that the replica's own record has gone, as when the core was away for longer than replicaExpiry.
var errReplicaGone = errors.New("the record of this replica is gone")

// replicas knows how many replicas of the tenant's proxy there are, and gives this one its share of the budgets that are the
// tenant's as a whole. Each replica has a record in the core, which its lease ends when it dies, and watches those of the
// others. While they are not known, and without records, there are as many as are configured.
//
// A record's value is the replica's demand, in thousandths of the tenant's budgets, and after a space the offset of the
// tenant's revisions if there is one. A replica that has just begun has no demand in it, nor have versions that divide
// equally: they take an equal share, and all others leave it to them.
type replicas struct {
	p      *Proxy
	prefix string // of the records; "" without any
	reads  string // of the keys of those whose tenant only reads
	end    string // of the range of both
	self   string // the record of this replica
	lease  int64
	expiry time.Duration
	own    ownRecord
	// spent and written are the units and the own writes of the tenant as of the beat before.
	spent   float64
	written int64

	mu      sync.Mutex
	demands map[string]float64 // by record: a part of 1, 0 for one that has none
	renewed time.Time          // when the lease was renewed last
	joined  bool               // this one has its own
	left    bool               // and will not have it again
	// awaited is the offset that the others were waited for to show, since when.
	awaited      int64
	awaitedSince time.Time
}

func newReplicas(p *Proxy) (*replicas, error) {
	r := &replicas{p: p, expiry: cmp.Or(p.cfg.ReplicaExpiry, replicaExpiry)}
	r.own.expired = time.AfterFunc(r.expiry, p.compaction.doubt)
	r.own.expired.Stop() // until there is a record
	if p.cfg.SystemPrefix != "" {
		tenant := p.cfg.SystemPrefix + compactRecordBefore + p.cfg.TenantName
		r.prefix, r.reads = tenant+replicaRecord, tenant+readRecord
		r.end = strings.TrimSuffix(r.prefix, "/") + "0" // which follows a slash
		if err := r.name(); err != nil {
			return nil, err
		}
	}
	p.divide(make([]float64, p.cfg.Replicas), p.cfg.Replicas-1)
	return r, nil
}

// name draws the names of this replica's record and lease.
func (r *replicas) name() error {
	name, err := drawLease()
	if err != nil {
		return err
	}
	id, err := drawLease()
	if err != nil {
		return err
	}
	r.self, r.lease = r.prefix+strconv.FormatUint(uint64(name), 16), tenancy.OwnLease(id)
	return nil
}

// run keeps the record of this replica and follows those of the others until ctx ends.
func (r *replicas) run(ctx context.Context) {
	if r.prefix == "" {
		return
	}
	r.p.keepFollowing(ctx, "replicas", func(ctx context.Context) (worked bool, err error) {
		began := clock()
		err = r.follow(ctx)
		if errors.Is(err, errReplicaGone) { // others may take it for one that serves nothing
			r.p.compaction.doubt()
		}
		r.expire()
		return clock().Sub(began) > r.expiry, err
	})
}

// follow follows the records of all replicas, that of this one included, until that fails.
func (r *replicas) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.p.compaction.wait(ctx); err != nil { // which records this replica
		return err
	}
	of := r.p.past.Load()
	// What follows may always end before its first beat, as when connections to the core are replaced all the time.
	if err := r.renew(ctx); err != nil && !errors.Is(err, errReplicaGone) {
		return err
	}
	revision, err := r.list(ctx)
	if errors.Is(err, errReplicaGone) { // the core refused it, or it has gone since
		if err = r.join(ctx); err == nil {
			r.p.compaction.doubt()
			return nil
		}
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- r.beat(ctx)
		cancel()
	}()
	watch := &etcdserverpb.WatchCreateRequest{Key: []byte(r.reads), RangeEnd: []byte(r.end), StartRevision: revision + 1}
	_, err = r.p.follow(ctx, of, watch, func(answer *etcdserverpb.WatchResponse) error {
		revision = r.p.followed(answer, revision)
		return r.changed(answer)
	})
	cancel()
	return errors.Join(err, <-ended)
}

// recordDemand records what this replica has wanted since the beat before, if that has changed much. If it has not, and
// the tenant has only read, it writes another key, so that other tenants' proxies notice that they are not alone. What
// fails is tried again at the next beat: the core may have no space, and renew leases all the same.
func (r *replicas) recordDemand(ctx context.Context) {
	demand := r.p.budgets.demand(r.p.cfg.UnitsPerSecond)
	reads := r.onlyReads()
	r.mu.Lock()
	recorded := r.demands[r.self]
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.expiry/replicaBeats)
	defer cancel()
	var err error
	switch {
	case quota.Differs(recorded, demand):
		err = r.record(ctx, func(own *ownRecord) { own.demand = int(demand * demandParts) })
	case reads:
		err = r.put(ctx, r.reads+strings.TrimPrefix(r.self, r.prefix), "")
	}
	if err != nil {
		r.p.log.V(1).Info("Failed to record the demand of this replica", "error", err.Error())
	}
}

// onlyReads reports whether the tenant has used the core through this replica since it was called last, and nothing has
// been written for it by any.
func (r *replicas) onlyReads() bool {
	spent, written := r.p.budgets.spent(), r.p.written(0, 0)
	reads := spent-r.spent >= leastReads && written == r.written
	r.spent, r.written = spent, written
	return reads
}

// demandOf reads the demand of a record's value; 0 is unknown.
func demandOf(value []byte) float64 {
	demand, err := strconv.ParseUint(string(beforeSpace(value)), 10, 16)
	if err != nil {
		return 0
	}
	return float64(demand) / demandParts
}

// leave removes the record, so that the others need not wait until it expires.
func (r *replicas) leave(ctx context.Context) {
	r.mu.Lock()
	joined := r.joined
	r.left = true
	r.mu.Unlock()
	if !joined {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.expiry/replicaBeats)
	defer cancel()
	revoke := &etcdserverpb.LeaseRevokeRequest{ID: r.lease}
	if err := r.p.callCore(ctx, etcdserverpb.Lease_LeaseRevoke_FullMethodName, revoke, &etcdserverpb.LeaseRevokeResponse{}); err != nil {
		r.p.log.V(1).Info("The record of this replica was not removed, and will expire", "error", err.Error())
	}
}

// list reads all records, and returns as of which revision.
func (r *replicas) list(ctx context.Context) (revision int64, err error) {
	answer, err := r.records(ctx)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.demands = map[string]float64{}
	for _, kv := range answer.Kvs {
		if string(kv.Key) != r.self || kv.Lease == r.lease {
			r.demands[string(kv.Key)] = demandOf(kv.Value)
		}
	}
	return answer.GetHeader().GetRevision(), r.share()
}

// records reads the records of all replicas.
func (r *replicas) records(ctx context.Context) (*etcdserverpb.RangeResponse, error) {
	request := &etcdserverpb.RangeRequest{Key: []byte(r.prefix), RangeEnd: []byte(r.end)}
	var answer etcdserverpb.RangeResponse
	if err := r.p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// changed takes over what the watch of the records brought.
func (r *replicas) changed(answer *etcdserverpb.WatchResponse) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range answer.Events {
		switch key := string(event.Kv.Key); {
		case !strings.HasPrefix(key, r.prefix):
		case event.Type == mvccpb.Event_DELETE:
			delete(r.demands, key)
		default:
			r.demands[key] = demandOf(event.Kv.Value)
		}
	}
	return r.share()
}

// share takes this replica's share; the caller holds the lock. A replica without a record of its own counts as one with
// an unknown demand.
func (r *replicas) share() error {
	records := slices.Sorted(maps.Keys(r.demands))
	rank, found := slices.BinarySearch(records, r.self)
	if !found {
		records = slices.Insert(records, rank, r.self)
	}
	demands := make([]float64, len(records))
	for i, record := range records {
		demands[i] = r.demands[record]
	}
	r.p.divide(demands, rank)
	if !found {
		return errReplicaGone
	}
	return nil
}

// expire forgets all demands when the record of this replica must have expired: the others divide the whole among them,
// and this one has an equal share until it knows them again.
func (r *replicas) expire() {
	expired := r.expired()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.demands == nil || !expired {
		return
	}
	for record := range r.demands {
		r.demands[record] = 0
	}
	_ = r.share() // without a record it will join again
}

// beat renews the lease, and records the demand, until the lease is gone, or the core cannot be reached for as long as it
// lives.
func (r *replicas) beat(ctx context.Context) error {
	r.p.budgets.demand(r.p.cfg.UnitsPerSecond) // of the time before
	ticker := time.NewTicker(r.expiry / replicaBeats)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := r.renew(ctx)
		switch {
		case errors.Is(err, errReplicaGone):
			return err
		case err == nil:
			r.recordDemand(ctx)
		case r.expired():
			return fmt.Errorf("renewing the record of this replica: %w", err)
		}
	}
}

// divide gives this replica its share of what the tenant may use as a whole: it is the one of that rank, from 0, of those
// with these demands.
func (p *Proxy) divide(demands []float64, rank int) {
	shares := quota.Shares(demands)
	p.metrics.replicas.Set(float64(len(shares)))
	p.metrics.share.Set(shares[rank])
	if p.budgets.units != nil {
		p.budgets.mu.Lock()
		p.budgets.units.SetRate(clock(), p.cfg.UnitsPerSecond*shares[rank])
		p.budgets.mu.Unlock()
	}
	p.seats.resize(quota.ShareOfPlaces(p.cfg.InFlight, shares, rank))
	p.lists.resize(quota.ShareOfPlaces(p.cfg.Lists, shares, rank))
}
