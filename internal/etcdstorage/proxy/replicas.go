// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// replicaRecord is where the replicas of a tenant's proxy are recorded, between the tenant's records and the name of one. It MUST NOT change:
// replicas of another version read it.
const replicaRecord = "/replicas/"

const (
	// replicaExpiry is how long a replica counts as alive that has died, unless it is configured. It renews its record three
	// times in that time.
	replicaExpiry = 15 * time.Second
	replicaBeats  = 3
	// leastShare is the least part of the tenant's budgets that a replica has, however many there are.
	leastShare = 16
)

// errReplicaGone tells that the replica's own record has gone, as when the core was away for longer than replicaExpiry.
var errReplicaGone = errors.New("the record of this replica is gone")

// replicas knows how many replicas of the tenant's proxy there are, and gives this one its share of the budgets that are the
// tenant's as a whole. Each replica has a record in the core, which its lease ends when it dies, and watches those of the
// others. While they are not known, and without records, there are as many as are configured.
type replicas struct {
	p      *Proxy
	prefix string // of the records; "" without any
	end    string // of their range
	self   string // the record of this replica
	lease  int64  // 0 before it has a name
	expiry time.Duration

	mu     sync.Mutex
	alive  map[string]struct{} // records
	joined bool                // this one has its own
	left   bool                // and will not have it again
}

func newReplicas(p *Proxy) *replicas {
	r := &replicas{p: p, expiry: cmp.Or(p.cfg.ReplicaExpiry, replicaExpiry)}
	if p.cfg.SystemPrefix != "" {
		r.prefix = p.cfg.SystemPrefix + compactRecordBefore + p.cfg.TenantName + replicaRecord
		r.end = strings.TrimSuffix(r.prefix, "/") + "0" // which follows a slash
	}
	p.divide(p.cfg.Replicas, p.cfg.Replicas-1)
	return r
}

// name draws the names of this replica's record and lease, once.
func (r *replicas) name() error {
	if r.lease != 0 {
		return nil
	}
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
	keepFollowing(ctx, func(ctx context.Context) (worked bool) {
		began := clock()
		if err := r.follow(ctx); err != nil && ctx.Err() == nil {
			r.p.log.V(1).Info("The replicas of this proxy are not being followed", "error", err.Error())
		}
		return clock().Sub(began) > r.expiry
	})
}

// follow records this replica, and follows all until that fails.
func (r *replicas) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	of := r.p.past.Load()
	if err := r.name(); err != nil {
		return err
	}
	revision, err := r.list(ctx)
	if errors.Is(err, errReplicaGone) {
		if err = r.join(ctx); err == nil {
			revision, err = r.list(ctx)
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
	err = r.watch(ctx, of, revision+1)
	cancel()
	return errors.Join(err, <-ended)
}

// join records this replica, with a lease that ends with it. It may have both already.
func (r *replicas) join(ctx context.Context) error {
	r.mu.Lock()
	r.joined = !r.left
	left := r.left
	r.mu.Unlock()
	if left {
		return errReplicaGone
	}
	ctx, cancel := context.WithTimeout(ctx, unaryTime)
	defer cancel()
	grant := &etcdserverpb.LeaseGrantRequest{ID: r.lease, TTL: int64(r.expiry / time.Second)}
	// If the lease is there already, it goes on to be this replica's.
	granted := r.p.callCore(ctx, etcdserverpb.Lease_LeaseGrant_FullMethodName, grant, &etcdserverpb.LeaseGrantResponse{})
	put := &etcdserverpb.PutRequest{Key: []byte(r.self), Lease: r.lease}
	if err := r.p.callCore(ctx, etcdserverpb.KV_Put_FullMethodName, put, &etcdserverpb.PutResponse{}); err != nil {
		return errors.Join(granted, fmt.Errorf("recording this replica: %w", err))
	}
	return nil
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
	request := &etcdserverpb.RangeRequest{Key: []byte(r.prefix), RangeEnd: []byte(r.end)}
	var answer etcdserverpb.RangeResponse
	if err := r.p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &answer); err != nil {
		return 0, fmt.Errorf("reading the records of replicas: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive = map[string]struct{}{}
	for _, kv := range answer.Kvs {
		if string(kv.Key) != r.self || kv.Lease == r.lease {
			r.alive[string(kv.Key)] = struct{}{}
		}
	}
	return answer.GetHeader().GetRevision(), r.share()
}

// watch follows the records from a revision on.
func (r *replicas) watch(ctx context.Context, of *past, from int64) error {
	stream, err := r.p.follow(ctx, of)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{
			Key: []byte(r.prefix), RangeEnd: []byte(r.end), StartRevision: from,
		},
	}})
	if err != nil {
		return fmt.Errorf("encoding the watch of replicas: %w", err)
	}
	if err := stream.Send(request); err != nil {
		return err
	}
	for {
		data, err := stream.Recv()
		if err != nil {
			return err
		}
		var answer etcdserverpb.WatchResponse
		if err := proto.Unmarshal(data, &answer); err != nil {
			return fmt.Errorf("decoding the watch of replicas: %w", err)
		}
		if answer.Canceled {
			return fmt.Errorf("the core ended the watch of replicas: %s", answer.CancelReason)
		}
		if err := r.changed(answer.Events); err != nil {
			return err
		}
	}
}

func (r *replicas) changed(events []*mvccpb.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range events {
		if event.Type == mvccpb.Event_DELETE {
			delete(r.alive, string(event.Kv.Key))
		} else {
			r.alive[string(event.Kv.Key)] = struct{}{}
		}
	}
	return r.share()
}

// share takes this replica's share; the caller holds the lock. A replica without a record of its own keeps the share that it has.
func (r *replicas) share() error {
	records := make([]string, 0, len(r.alive))
	for record := range r.alive {
		records = append(records, record)
	}
	slices.Sort(records)
	rank, found := slices.BinarySearch(records, r.self)
	if !found {
		return errReplicaGone
	}
	r.p.divide(len(records), rank)
	return nil
}

// beat renews the lease until it is gone, or the core cannot be reached for as long as it lives.
func (r *replicas) beat(ctx context.Context) error {
	renewed := clock()
	ticker := time.NewTicker(r.expiry / replicaBeats)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		ttl, err := r.renew(ctx)
		switch {
		case err == nil && ttl <= 0:
			return errReplicaGone
		case err == nil:
			renewed = clock()
		case clock().Sub(renewed) > r.expiry:
			return fmt.Errorf("renewing the record of this replica: %w", err)
		}
	}
}

// renew renews the lease once.
func (r *replicas) renew(ctx context.Context) (ttl int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.expiry/replicaBeats)
	defer cancel()
	stream, err := r.p.up.Stream(ctx, etcdserverpb.Lease_LeaseKeepAlive_FullMethodName, true)
	if err != nil {
		return 0, err
	}
	request, err := proto.Marshal(&etcdserverpb.LeaseKeepAliveRequest{ID: r.lease})
	if err != nil {
		return 0, fmt.Errorf("encoding the renewal: %w", err)
	}
	if err := stream.Send(request); err != nil {
		return 0, err
	}
	data, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	var answer etcdserverpb.LeaseKeepAliveResponse
	if err := proto.Unmarshal(data, &answer); err != nil {
		return 0, fmt.Errorf("decoding the renewal: %w", err)
	}
	return answer.TTL, nil
}

// divide gives this replica its share of what the tenant may use as a whole: it is the one of that rank, from 0, of so many.
func (p *Proxy) divide(replicas, rank int) {
	p.metrics.replicas.Set(float64(replicas))
	if p.budgets.units != nil {
		p.budgets.mu.Lock()
		p.budgets.units.SetRate(clock(), quota.Share(p.cfg.UnitsPerSecond, replicas, leastShare))
		p.budgets.mu.Unlock()
	}
	p.seats.resize(quota.ShareOfPlaces(p.cfg.InFlight, replicas, rank))
	p.lists.resize(quota.ShareOfPlaces(p.cfg.Lists, replicas, rank))
}
