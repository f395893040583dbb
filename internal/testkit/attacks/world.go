// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/protowire"
)

// victimTTL is the TTL of other tenants' leases in seconds: long enough that none ends during a campaign, and anyone who renews one shows.
const victimTTL = 36_000

// markers are what no response may have. Each is as good as impossible to guess.
type markers struct {
	key, value []byte
	// lease is the low 49 bits of all secret lease IDs: the first seven bytes of the varint are those of the number without its top.
	lease int64
}

func newMarkers() markers {
	var random [24]byte
	_, _ = rand.Read(random[:]) // it never fails
	lease := int64(1)
	for _, b := range random[16:22] {
		lease = lease<<8 | int64(b)
	}
	return markers{key: []byte("~" + hex.EncodeToString(random[:8])), value: []byte("#" + hex.EncodeToString(random[8:16])), lease: lease}
}

// secretLease is the n-th ID that the attacker does not know.
func (m markers) secretLease(n int) int64 { return m.lease | int64(n+1)<<49 }

// leaked says what an answer has that it must not have.
func (m markers) leaked(answer []byte) string {
	varint := protowire.AppendVarint(nil, uint64(m.secretLease(0)))[:7]
	switch {
	case bytes.Contains(answer, m.key):
		return "the name of another tenant's key"
	case bytes.Contains(answer, m.value):
		return "the value of another tenant's key"
	case bytes.Contains(answer, varint):
		return "the ID of another tenant's lease"
	case bytes.Contains(answer, fmt.Appendf(nil, "%012x", m.lease&(1<<48-1))):
		return "the ID of another tenant's lease, in hexadecimal"
	default:
		return ""
	}
}

// A victim is a lease of another tenant.
type victim struct {
	id   int64
	keys []string
}

// World is a core etcd on which others live in addition to the tenant.
type World struct {
	core   *clientv3.Client
	prefix string
	// own are prefixes outside the tenant's that it may cause writes to: the proxy's own records about it.
	own []string
	markers
	planted map[string]*mvccpb.KeyValue
	leases  []victim
	granted time.Time
	cluster string
	// revision is the oldest that must stay readable.
	revision int64
	words    Words
}

// NewWorld fills the core around a tenant's prefix. Keys under the prefixes own belong to nobody but the tenant's proxy.
func NewWorld(ctx context.Context, core *clientv3.Client, prefix string, own ...string) (*World, error) {
	w := &World{core: core, prefix: prefix, own: own, markers: newMarkers()}
	if err := w.plant(ctx); err != nil {
		return nil, fmt.Errorf("filling the core with other tenants: %w", err)
	}
	return w, nil
}

// neighbors are keys that the attacker knows of: right before and after the tenant's range, and where others live.
func (w *World) neighbors() []string {
	trimmed := strings.TrimSuffix(w.prefix, "/")
	parent := path.Dir(trimmed)
	other := path.Join(parent, "other-tenant") + "/"
	return []string{
		trimmed, trimmed + ".", trimmed + "-", trimmed + "0", trimmed + "0/a", trimmed + "\xff", strings.ToUpper(trimmed) + "/a", trimmed[:len(trimmed)-1],
		trimmed + "\x00", other, other + "a", other + "a/1", other + "b", other + "c/0", "a", "a/1", "/a", "\x01", "\xff", "\xff\xff\xff", "/", "//a",
		"compact_rev_key", "/registry/secrets/default/token", "/.etcd.mooring.dev/tenants/other-tenant/compact-revision", "/.etcd.mooring.dev/", "election/leader",
	}
}

// plant writes others' keys and leases, forgets nothing of before, and remembers what it all looks like.
func (w *World) plant(ctx context.Context) error {
	parent := path.Dir(strings.TrimSuffix(w.prefix, "/"))
	for n := range 8 {
		id := w.secretLease(n)
		known := n%2 == 0
		if known {
			id = int64(0x1234_5678_0000_0000) + int64(n)
		}
		keys := []string{fmt.Sprintf("%s/other-tenant/leased/%d", strings.TrimSuffix(parent, "/"), n)}
		if n < 2 {
			keys = nil
		}
		if err := w.grant(ctx, victim{id, keys}); err != nil {
			return err
		}
		if known {
			w.words.Leases = append(w.words.Leases, id)
		}
	}
	w.granted = time.Now()
	for n, key := range w.neighbors() {
		if _, err := w.core.Put(ctx, key, w.secret(n)); err != nil {
			return fmt.Errorf("putting %q: %w", key, err)
		}
		w.words.Hostile = append(w.words.Hostile, []byte(key))
	}
	for n := range 20 {
		key := fmt.Sprintf("%s/other-tenant/%s%d", strings.TrimSuffix(parent, "/"), w.key, n)
		if _, err := w.core.Put(ctx, key, w.secret(n)); err != nil {
			return fmt.Errorf("putting %q: %w", key, err)
		}
	}
	w.words.Hostile = append(w.words.Hostile, oddKeys()...)
	w.words.Own = OwnKeys()
	return w.remember(ctx)
}

func (w *World) secret(n int) string { return fmt.Sprintf("%s of key %d", w.value, n) }

// grant makes the lease of a victim with its keys, or finds it from before.
func (w *World) grant(ctx context.Context, v victim) error {
	resp, err := clientv3.RetryLeaseClient(w.core).LeaseGrant(ctx, grantRequest(v.id))
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
		return fmt.Errorf("granting the lease %x: %w", v.id, err)
	}
	if err == nil && resp.ID != v.id {
		return fmt.Errorf("asked for the lease %x and got %x", v.id, resp.ID)
	}
	for n, key := range v.keys {
		if _, err := w.core.Put(ctx, key, w.secret(n), clientv3.WithLease(clientv3.LeaseID(v.id))); err != nil {
			return fmt.Errorf("putting %q: %w", key, err)
		}
	}
	w.leases = append(w.leases, v)
	return nil
}

// remember takes the state that must not change any more.
func (w *World) remember(ctx context.Context) error {
	planted, revision, err := w.outside(ctx)
	if err != nil {
		return err
	}
	w.planted, w.revision, w.words.Revision = planted, revision, revision
	w.cluster, err = w.describeCluster(ctx)
	return err
}

// outside returns every key that is not the tenant's.
func (w *World) outside(ctx context.Context) (map[string]*mvccpb.KeyValue, int64, error) {
	out := map[string]*mvccpb.KeyValue{}
	before, err := w.core.Get(ctx, "\x00", clientv3.WithRange(w.prefix))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the keys before the tenant's: %w", err)
	}
	after, err := w.core.Get(ctx, clientv3.GetPrefixRangeEnd(w.prefix), clientv3.WithFromKey())
	if err != nil {
		return nil, 0, fmt.Errorf("reading the keys after the tenant's: %w", err)
	}
	for _, kv := range append(before.Kvs, after.Kvs...) {
		if !w.isLive(kv) && !w.isProxys(kv) {
			out[string(kv.Key)] = kv
		}
	}
	return out, after.Header.Revision, nil
}

// isLive reports that the other tenant writes this key meanwhile.
func (w *World) isLive(kv *mvccpb.KeyValue) bool {
	return bytes.Contains(kv.Key, []byte("/live/"+string(w.key)))
}

func (w *World) isProxys(kv *mvccpb.KeyValue) bool {
	for _, prefix := range w.own {
		if strings.HasPrefix(string(kv.Key), prefix) {
			return true
		}
	}
	return false
}

// live is a key that the other tenant writes again and again, so that watches have something to leak.
func (w *World) live(n int) string {
	parent := path.Dir(strings.TrimSuffix(w.prefix, "/"))
	return fmt.Sprintf("%s/other-tenant/live/%s%d", strings.TrimSuffix(parent, "/"), w.key, n%10)
}

// disturb writes live keys until the context ends.
func (w *World) disturb(ctx context.Context) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if n%7 == 0 {
			_, _ = w.core.Delete(ctx, w.live(n+3))
		}
		_, _ = w.core.Put(ctx, w.live(n), w.secret(n))
	}
}
