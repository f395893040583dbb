// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// change is one write of a key of Calico's; its value is nil if it deleted the key.
type change struct {
	revision int64
	key      string
	value    []byte
}

func (c *change) deleted() bool { return c.value == nil }

// history is what is written to Calico's datastore. It is kept as it goes, since an API server compacts its etcd.
type history struct {
	client *clientv3.Client
	// began is the revision before it, and initial what stood there.
	began   int64
	initial map[string][]byte

	mu      sync.Mutex // guards what follows
	changes []change
	// live is what stands there now.
	live map[string][]byte
	// ends are how many changes came before a key that the test writes to end it.
	ends map[string]int
	err  error
}

// ofCalico reports whether a key is of Calico's data.
func ofCalico(key string) bool {
	return strings.HasPrefix(key, "/calico/") || strings.HasPrefix(key, customPrefix)
}

func newHistory(t *testing.T, client *clientv3.Client) *history {
	t.Helper()
	stored, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err != nil {
		t.Fatal(err)
	}
	h := &history{client: client, began: stored.Header.Revision, initial: map[string][]byte{}, live: map[string][]byte{}, ends: map[string]int{}}
	for _, kv := range stored.Kvs {
		if ofCalico(string(kv.Key)) {
			h.initial[string(kv.Key)], h.live[string(kv.Key)] = kv.Value, kv.Value
		}
	}
	return h
}

// record keeps the changes until the context ends.
func (h *history) record(ctx context.Context) {
	for answer := range h.client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(h.began+1)) {
		h.mu.Lock()
		h.err = answer.Err()
		for _, event := range answer.Events {
			switch key := string(event.Kv.Key); {
			case strings.HasPrefix(key, stormEnd):
				h.ends[key] = len(h.changes)
			case !ofCalico(key):
			case event.Type == clientv3.EventTypeDelete:
				h.changes = append(h.changes, change{revision: event.Kv.ModRevision, key: key})
				delete(h.live, key)
			default:
				h.changes = append(h.changes, change{revision: event.Kv.ModRevision, key: key, value: event.Kv.Value})
				h.live[key] = event.Kv.Value
			}
		}
		h.mu.Unlock()
	}
}

// now returns what stands in the datastore.
func (h *history) now() map[string][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.live)
}

// has reports whether a key stands there now.
func (h *history) has(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[key] != nil
}

// until returns what stood in the datastore in the beginning, and the changes up to a key that was written to end them.
func (h *history) until(t *testing.T, end string) (before map[string][]byte, changes []change) {
	t.Helper()
	testkit.Eventually(t, "the history up to now", func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.err != nil {
			t.Fatalf("the history is cut off: %v", h.err)
		}
		n, ended := h.ends[end]
		if !ended {
			return "it has not ended"
		}
		changes = h.changes[:n]
		return ""
	})
	return maps.Clone(h.initial), changes
}
