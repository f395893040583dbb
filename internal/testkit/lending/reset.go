// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// patience is how long a reset may take: an API server that a test killed starts again meanwhile.
	patience = 2 * time.Minute
	// settling is how long nothing may change before a state counts. kube-apiserver reads admission policies again a second after they changed.
	settling = 1500 * time.Millisecond
	// batch is the most operations of a transaction by etcd's default (--max-txn-ops).
	batch = 128
)

// state is what a control plane holds: etcd's keys with their values, and the resources that can be discovered.
type state struct {
	keys      map[string]string
	resources map[string]bool
}

// alive reports whether kube-apiserver writes a key by itself all the time: when etcd's history was compacted, and that
// it lives, to endpoints, to its Lease, and from 1.37 on to others that proxy to it (pkg/controlplane/reconcilers).
func alive(key string) bool {
	return key == "compact_rev_key" || slices.ContainsFunc([]string{
		"/registry/masterleases/", "/registry/leases/kube-system/apiserver-", "/registry/peerserverleases/",
	}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// equal reports whether both hold the same, but for what lives.
func (s state) equal(other state) bool {
	return maps.Equal(s.keys, other.keys) && maps.Equal(s.resources, other.resources)
}

func read(ctx context.Context, client *clientv3.Client) (map[string]string, error) {
	all, err := client.Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	out := make(map[string]string, len(all.Kvs))
	for _, kv := range all.Kvs {
		if key := string(kv.Key); !alive(key) {
			out[key] = string(kv.Value)
		}
	}
	return out, nil
}

// changes are the operations that make a store with the keys is one with the keys want.
func changes(is, want map[string]string) []clientv3.Op {
	var out []clientv3.Op
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, ok := want[key]; !ok {
			out = append(out, clientv3.OpDelete(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := is[key]; !ok || value != want[key] {
			out = append(out, clientv3.OpPut(key, want[key]))
		}
	}
	return out
}

// settled returns the state of a control plane when it no longer changes by itself.
func (p *labPlane) settled(ctx context.Context) (state, error) {
	return p.until(ctx, "to settle", func(context.Context, *clientv3.Client, state) (bool, error) { return true, nil })
}

// reset makes etcd what it was at first, until nothing changes it again.
func (p *labPlane) reset(ctx context.Context) error {
	_, err := p.until(ctx, "to be as at first", func(ctx context.Context, client *clientv3.Client, is state) (bool, error) {
		for operations := range slices.Chunk(changes(is.keys, p.first.keys), batch) {
			if _, err := client.Txn(ctx).Then(operations...).Commit(); err != nil {
				return false, fmt.Errorf("writing to etcd: %w", err)
			}
		}
		return is.equal(p.first), nil
	})
	return err
}

// until reads the state of a control plane until it is good and has not changed for the time of settling. An error is tried again.
func (p *labPlane) until(ctx context.Context, what string, good func(context.Context, *clientv3.Client, state) (bool, error)) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := p.etcd()
	if err != nil {
		return state{}, err
	}
	defer func() { _ = client.Close() }()
	look := func() (is state, ok bool, err error) {
		if is.keys, err = read(ctx, client); err != nil {
			return is, false, err
		}
		if is.resources, err = p.discovered(); err != nil { //nolint:contextcheck // discovery takes none
			return is, false, err
		}
		ok, err = good(ctx, client, is)
		return is, ok, err
	}
	var last state
	var lastErr error
	for since := time.Now(); ; {
		is, ok, err := look()
		lastErr = err
		switch {
		case err != nil, !ok, !is.equal(last):
			since = time.Now()
		case time.Since(since) >= settling:
			return is, nil
		}
		last = is
		select {
		case <-p.done:
			return state{}, errors.New("the lab has ended")
		case <-ctx.Done():
			return state{}, fmt.Errorf("waiting for a control plane %s: %w", what, errors.Join(ctx.Err(), lastErr))
		case <-time.After(settling / 3):
		}
	}
}
