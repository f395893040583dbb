// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// patience bounds one call; attempts is how often a call is made while the other side is away or busy.
const (
	patience = 30 * time.Second
	attempts = 8
	pause    = 100 * time.Millisecond
)

// A Tenant is one tenant's keys and leases, seen through its proxies or in the core itself.
type Tenant struct {
	KV    clientv3.KV
	Lease clientv3.Lease
	// Prefix is where the keys are in the core, and Leases the space of their leases. Through a proxy both are zero: it adds them itself.
	Prefix tenancy.Prefix
	Leases tenancy.LeaseSpace
	// Core grants leases in the core, where their ID is chosen here. It is nil through a proxy.
	Core etcdserverpb.LeaseClient
}

// all is the tenant's whole range behind and with a key, "" for all.
func (t Tenant) all(from string) (key string, end clientv3.OpOption) {
	if from == "" {
		from = "\x00" // no key is smaller
	}
	if t.Prefix.IsZero() {
		return from, clientv3.WithFromKey()
	}
	return t.Prefix.Key(from), clientv3.WithRange(t.Prefix.End())
}

// key is the name of a key for the other side.
func (t Tenant) key(key []byte) string { return t.Prefix.Key(string(key)) }

// strip is the tenant's own name of a key.
func (t Tenant) strip(key []byte) ([]byte, error) {
	if t.Prefix.IsZero() {
		return key, nil
	}
	return t.Prefix.Strip(key)
}

// Count is the number of the tenant's keys.
func (t Tenant) Count(ctx context.Context) (int64, error) {
	key, end := t.all("")
	var n int64
	err := try(ctx, func(ctx context.Context) error {
		answer, err := t.KV.Get(ctx, key, end, clientv3.WithCountOnly())
		if err == nil {
			n = answer.Count
		}
		return err
	})
	return n, Explain(err)
}

// try makes a call again while the other side is away or busy.
func try(ctx context.Context, call func(context.Context) error) error {
	wait := pause
	for n := 1; ; n++ {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return call(ctx)
		}()
		if err == nil || n == attempts || !passing(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// passing reports whether an error may be gone a moment later. A transaction that creates may be made again as well.
func passing(err error) bool {
	return is(err, rpctypes.ErrGRPCRequestTooManyRequests) || code(err) == codes.Unavailable
}

// is reports whether err is this error of etcd, on whichever side and however wrapped. A proxy adds to etcd's text which budget refused.
func is(err, target error) bool {
	e, ok := errors.AsType[rpctypes.EtcdError](err)
	text := rpctypes.ErrorDesc(target)
	return ok && (e.Error() == text || strings.HasPrefix(e.Error(), text+": "))
}

// tooLarge reports whether a request was refused for its size: by etcd, or by gRPC on either side, whose code is that of budgets as well.
func tooLarge(err error) bool {
	return is(err, rpctypes.ErrGRPCRequestTooLarge) ||
		code(err) == codes.ResourceExhausted && !is(err, rpctypes.ErrGRPCNoSpace) && !is(err, rpctypes.ErrGRPCRequestTooManyRequests)
}

// code is the code of an error of etcd, of a proxy, or of the connection.
func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}

// Explain adds to an error of etcd or of a proxy what a person can do about it. nil stays nil.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	var why string
	switch {
	case is(err, rpctypes.ErrGRPCNoSpace):
		why = "the tenant has reached spec.quota, has written too much since the core's last compaction, or the core is full"
	case is(err, rpctypes.ErrGRPCRequestTooManyRequests):
		why = "the tenant has reached a rate or a bound of spec.quota"
	case is(err, rpctypes.ErrGRPCRequestTooLarge):
		why = "a value is larger than the core takes (--max-request-bytes)"
	case is(err, rpctypes.ErrGRPCPermissionDenied), is(err, rpctypes.ErrGRPCUserEmpty):
		why = "the core's user may not use the tenant's keys"
	case code(err) == codes.Unavailable:
		why = "the other side cannot be reached, or refuses the certificate"
	default:
		return err
	}
	return fmt.Errorf("%s: %w", why, err)
}
