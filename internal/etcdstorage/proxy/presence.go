// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The offset of a tenant's revisions may only be raised when no replica serves with a lower one, or a client that goes
// from one replica to another would see revisions go back. A replica therefore
//
//  1. writes its record before it reads the offset that it serves with, and serves nothing once the record's lease may
//     have expired: anyone who raises the offset sees the records of all that serve with a lower one;
//  2. writes the offset into its own record when it has ended all that it served with a lower one, and serves with it
//     when all other records have it, too, or have gone.

// agreePause is how often the records of others are read while they are waited for.
const agreePause = 50 * time.Millisecond

// errDisagree is the response while another replica may serve with a lower offset.
var errDisagree = status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd went back to an earlier "+
	"revision, and another replica of this tenant's proxy has not noticed yet, try again")

// ownRecord is what this replica's record has, or will have once it can be written.
type ownRecord struct {
	mu      sync.Mutex // held while it is written, so that the last is what stays
	demand  int        // in thousandths of the tenant's budgets
	expired *time.Timer
}

// value is what demandOf and offsetOf read. Nothing is served with an offset below this one. A replica of a version
// without offsets takes one with an offset for one that has no demand.
func (o *ownRecord) value(offset int64) string {
	switch {
	case offset > 0:
		return fmt.Sprint(o.demand, " ", offset)
	case o.demand > 0:
		return strconv.Itoa(o.demand)
	}
	return ""
}

func beforeSpace(value []byte) []byte {
	before, _, _ := bytes.Cut(value, []byte(" "))
	return before
}

// offsetOf reads the offset of a record's value; 0 without one, or if it cannot be read.
func offsetOf(value []byte) int64 {
	_, text, _ := bytes.Cut(value, []byte(" "))
	offset, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return offset
}

// announce records this replica before it reads the offset that it is going to serve with. A core that is full or
// permits no record is served without: no offset can be raised in it either.
func (r *replicas) announce(ctx context.Context) error {
	if r.prefix == "" {
		return nil
	}
	return r.unlessRefused(r.join(ctx))
}

// unlessRefused returns the error of a write unless the core will refuse it again.
func (r *replicas) unlessRefused(err error) error {
	if errors.Is(err, rpctypes.ErrGRPCNoSpace) || status.Code(err) == codes.PermissionDenied {
		r.p.log.V(1).Info("The core refused the record of this replica", "error", err.Error())
		return nil
	}
	return err
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
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	err := r.renew(ctx)
	if errors.Is(err, errReplicaGone) {
		err = r.grant(ctx)
	}
	if err != nil {
		return err
	}
	return r.putOwn(ctx)
}

// grant makes the lease of this replica's record.
func (r *replicas) grant(ctx context.Context) error {
	sent := clock()
	grant := &etcdserverpb.LeaseGrantRequest{ID: r.lease, TTL: int64(r.expiry / time.Second)}
	method := etcdserverpb.Lease_LeaseGrant_FullMethodName
	if err := r.p.callCore(ctx, method, grant, &etcdserverpb.LeaseGrantResponse{}); err != nil {
		return err
	}
	r.lives(sent)
	return nil
}

// renew renews the lease once. The error is errReplicaGone if there is none.
func (r *replicas) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.expiry/replicaBeats)
	defer cancel()
	sent := clock()
	stream, err := r.p.up.Stream(ctx, etcdserverpb.Lease_LeaseKeepAlive_FullMethodName, true)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&etcdserverpb.LeaseKeepAliveRequest{ID: r.lease})
	if err != nil {
		return fmt.Errorf("encoding the renewal: %w", err)
	}
	if err := stream.Send(request); err != nil {
		return err
	}
	data, err := stream.Recv()
	if err != nil {
		return err
	}
	var answer etcdserverpb.LeaseKeepAliveResponse
	if err := proto.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("decoding the renewal: %w", err)
	}
	if answer.TTL <= 0 {
		return errReplicaGone
	}
	r.lives(sent)
	return nil
}

// lives notes when a request was sent that let the record live on from then. Nothing is served when that time has
// passed, which is before the core ends the lease: it counts from when it got the request.
func (r *replicas) lives(sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left || sent.Before(r.renewed) {
		return
	}
	r.renewed = sent
	r.own.expired.Reset(r.expiry - clock().Sub(sent))
}

// expired reports whether the record of this replica must have expired.
func (r *replicas) expired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return clock().Sub(r.renewed) > r.expiry
}

// record changes the record of this replica.
func (r *replicas) record(ctx context.Context, change func(*ownRecord)) error {
	r.own.mu.Lock()
	defer r.own.mu.Unlock()
	change(&r.own)
	return r.putOwn(ctx)
}

// putOwn writes the record of this replica; the caller holds its lock. The offset is that of this moment: of none that
// was before anything is served any more.
func (r *replicas) putOwn(ctx context.Context) error {
	return r.put(ctx, r.self, r.own.value(r.p.past.Load().offset()))
}

// put writes a key that ends with this replica's lease.
func (r *replicas) put(ctx context.Context, key, value string) error {
	put := &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: r.lease}
	return r.p.callCore(ctx, etcdserverpb.KV_Put_FullMethodName, put, &etcdserverpb.PutResponse{})
}

// agree records that this replica serves with no offset below that of the past, and waits until no other does. One that
// does not record it for twice as long as a record lives without a renewal is of a version that does not, or does not
// run.
func (r *replicas) agree(ctx context.Context, of *past) error {
	offset := of.offset()
	if r.prefix == "" || offset == 0 { // there is no lower one
		return nil
	}
	err := r.unlessRefused(r.record(ctx, func(*ownRecord) {}))
	if err != nil {
		return err
	}
	since := r.await(offset)
	for {
		answer, err := r.records(ctx)
		if err != nil {
			return err
		}
		behind := r.behind(answer, offset)
		if behind == "" {
			return nil
		}
		if clock().Sub(since) > 2*r.expiry {
			r.p.log.Info("Serving with a raised offset of the tenant's revisions though another replica has not recorded it; "+
				"its clients may have seen lower revisions", "record", behind, "offset", offset)
			return nil
		}
		select {
		case <-ctx.Done():
			return errDisagree
		case <-time.After(agreePause):
		}
	}
}

// await returns since when others are waited for to have an offset.
func (r *replicas) await(offset int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.awaited != offset {
		r.awaited, r.awaitedSince = offset, clock()
	}
	return r.awaitedSince
}

// behind returns the record of another replica that may serve with an offset below this one; "" if there is none.
func (r *replicas) behind(records *etcdserverpb.RangeResponse, offset int64) string {
	for _, kv := range records.Kvs {
		if string(kv.Key) != r.self && offsetOf(kv.Value) < offset {
			return string(kv.Key)
		}
	}
	return ""
}
