// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Whether the reflectors are those of a view is asked by what has changed since: another role, a Node that is gone, and one that came with a role are
// seen; a start of calico-node and a new machine are not in the way.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	ctx := t.Context()
	for i, name := range []string{"a", "b", "c"} {
		machine(t, w.calico, name, byte(i+1), 0)
	}
	v := w.caughtUp(t)
	same := func(v BGPView, what string, want bool) {
		t.Helper()
		err := w.bgp.Unchanged(ctx, v)
		if want && err != nil || !want && !errors.Is(err, ErrConflict) {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
	same(v, "nothing", true)
	machine(t, w.calico, "b", 2, 0)
	machine(t, w.calico, "d", 4, 0)
	same(v, "a start of calico-node and a new machine", true)
	v = w.caughtUp(t)
	must.Do(t, w.bgp.ChangeNode(ctx, promotion(node(v, "a"))))
	same(v, "a promotion", false)
	v = w.caughtUp(t)
	same(v, "the promotion, seen", true)
	must.Get(w.etcd.Client.Delete(ctx, nodeKey("a"))).Or(t)
	same(v, "a reflector that is gone", false)
	// One goes and another comes: the number is the same.
	v = w.caughtUp(t)
	must.Get(w.etcd.Client.Delete(ctx, nodeKey("b"))).Or(t)
	machine(t, w.calico, "e", 5, 0)
	same(v, "a Node that is gone, and a new one", false)
	must.Get(w.etcd.Client.Put(ctx, nodeKey("broken"), "{")).Or(t)
	v = w.caughtUp(t)
	if len(v.Unread) != 1 || !strings.Contains(v.Unread[0], "Node broken cannot be read, and nor can Calico") {
		t.Errorf("it is told as %q", v.Unread)
	}
	same(v, "one that cannot be read, seen", true)
}

// counted counts the requests of a client that are not watches.
type counted struct {
	clientv3.KV

	n atomic.Int64
}

func (c *counted) Txn(ctx context.Context) clientv3.Txn {
	c.n.Add(1)
	return c.KV.Txn(ctx)
}

func (c *counted) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	c.n.Add(1)
	return c.KV.Get(ctx, key, opts...)
}

// What changes is followed by watches: everything is read once, at the start, and again when etcd has compacted what was to come, or was away. Who
// asked to be told is told, but not of what cannot change a plan.
func TestFollowing(t *testing.T) {
	t.Parallel()
	w := unboundWorld(t)
	client := must.Get(w.store.connection()).Or(t)
	requests := &counted{KV: client.KV}
	client.KV = requests
	var told atomic.Int64
	w.bgp.OnChange(func() { told.Add(1) })
	w.follow(t)
	for i := range 20 {
		machine(t, w.calico, fmt.Sprintf("n%02d", i), byte(i+1), 0)
	}
	w.seen(t, "all machines", func(v BGPView) bool { return len(v.Nodes) == 20 && len(v.Informations) == 1 })
	if n := requests.n.Load(); n != 1 {
		t.Errorf("it took %d requests, want the first alone", n)
	}
	at, was := told.Load(), node(w.view(t), "n00").ResourceVersion
	agent, err := w.calico.Start(t.Context(), caliconode.Host{
		Name: "n00", KubernetesNode: "n00", Address: netip.AddrFrom4([4]byte{172, 30, 0, 1}), IPIP: true, VXLAN: true, VXLANv6: true, Wireguard: true, WireguardV6: true,
	})
	if err != nil || agent == nil {
		t.Fatal(err)
	}
	w.seen(t, "the start of calico-node", func(v BGPView) bool { return node(v, "n00").ResourceVersion != was })
	if now := told.Load(); now != at {
		t.Errorf("a start of calico-node that changes nothing was told %d times", now-at)
	}
	w.etcd.Kill()
	testkit.Eventually(t, "the trouble to be known", func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.bgp.DatastoreReady(ctx); err == nil {
			return "it is called ready"
		}
		return ""
	})
	w.etcd.Restart(t)
	// While it was away others wrote, and etcd compacted it.
	machine(t, w.calico, "late", 77, 0)
	must.Get(w.etcd.Client.Compact(t.Context(), w.etcd.Revision(t))).Or(t)
	w.seen(t, "what was written meanwhile", func(v BGPView) bool { return node(v, "late").Name == "late" && len(v.Nodes) == 21 })
	machine(t, w.calico, "later", 78, 0)
	w.seen(t, "what comes after", func(v BGPView) bool { return node(v, "later").Name == "later" })
	testkit.Eventually(t, "no trouble", func() string {
		if ready, err := w.bgp.DatastoreReady(t.Context()); err != nil || !ready {
			return fmt.Sprint(ready, err)
		}
		return ""
	})
}

// A watch from a revision that etcd has compacted is followed by a check of everything.
func TestCompacted(t *testing.T) {
	t.Parallel()
	w := unboundWorld(t)
	machine(t, w.calico, "a", 1, 0)
	revision := must.Get(w.bgp.readAll(t.Context())).Or(t)
	machine(t, w.calico, "b", 2, 0)
	must.Get(w.etcd.Client.Compact(t.Context(), w.etcd.Revision(t))).Or(t)
	if err := w.bgp.watch(t.Context(), revision); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Errorf("a watch from revision %d ended with %v", revision, err)
	}
	w.follow(t)
	w.seen(t, "both", func(v BGPView) bool { return len(v.Nodes) == 2 })
}

// Before anything has been read a view says so, and why.
func TestNotSynced(t *testing.T) {
	t.Parallel()
	w := unboundWorld(t)
	if _, err := w.bgp.View(); !errors.Is(err, ErrNotSynced) {
		t.Errorf("the error is %v", err)
	}
	w.bgp.fell(errors.New("it is away"))
	if _, err := w.bgp.View(); !errors.Is(err, ErrNotSynced) || !strings.Contains(err.Error(), "it is away") {
		t.Errorf("the error is %v", err)
	}
}
