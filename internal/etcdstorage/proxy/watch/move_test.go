// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// replaced has a stream's connection replaced, and returns the creation that follows on another stream.
func (c *scriptedCore) replaced(s *scriptedStream) creation {
	c.tb.Helper()
	close(s.retired)
	w := c.next()
	if w.on == s {
		c.tb.Fatal("the watch is asked for on the old stream")
	}
	return w
}

// gone waits for the end of a stream.
func (s *scriptedStream) gone() {
	s.tb.Helper()
	select {
	case <-s.ctx.Done():
	case <-time.After(patience):
		s.tb.Fatalf("the stream goes on; the hub: %s", s.core.hub.Dump())
	}
}

// TestMoveNothingTwice moves a group to a stream that is ahead: what it brings waits for the old one, and what both bring is sent once.
func TestMoveNothingTwice(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	shared, id := c.joined(first, on("k"), 5, 10)
	next, other := c.replaced(shared).made(13)
	next.events(other, false, 13, 14, 15)
	next.events(other, false, 16)
	shared.events(id, false, 11)
	sees(t, first, "11 ")
	shared.events(id, false, 12, 13, 14)
	sees(t, first, "12 13 14 ", "15 ", "16 ")
	shared.gone()
	next.events(other, false, 17)
	sees(t, first, "17 ")
}

// TestMoveNothingLost moves a group to a stream that is behind, as one to another member of the core may be.
func TestMoveNothingLost(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first, second := read(c.hub.open(t.Context())), read(c.hub.open(t.Context()))
	shared, id := c.joined(first, on("k"), 5, 10)
	shared.events(id, false, 14)
	sees(t, first, "14 ")
	next, other := c.replaced(shared).made(11)
	shared.gone()
	// Who comes now must have what the new feed brings to nobody: the group is where the old feed was.
	w := on("k")
	w.StartRevision = 12
	create(t, second.c, w)
	private, own := c.next().made(15)
	sees(t, second, "created")
	next.events(other, false, 12)
	next.events(other, false, 14, 15)
	sees(t, first, "15 ")
	private.events(own, false, 12)
	private.events(own, false, 14, 15)
	private.canceled()
	next.events(other, false, 16)
	sees(t, first, "16 ")
	sees(t, second, "12 ", "14 15 ", "16 ")
}

// TestMoveAsksTheOldStream has nothing happen that would tell that the old stream has come as far as the new one began: it is asked, until it has.
func TestMoveAsksTheOldStream(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	shared, _ := c.joined(first, on("k"), 5, 10)
	next, other := c.replaced(shared).made(13)
	shared.progressed(11)
	shared.progressed(12)
	shared.progressed(13)
	shared.gone()
	next.events(other, false, 14)
	sees(t, first, "14 ")
}

// TestMoveWholeRevisions does not move in the middle of a transaction.
func TestMoveWholeRevisions(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	wants := on("k")
	wants.Fragment = true
	shared, id := c.joined(first, wants, 5, 10)
	shared.events(id, true, 11, 12)
	sees(t, first, "11 12 … ") // or the new stream, which comes without 11, is taken as soon as it is there
	next, other := c.replaced(shared).made(10)
	next.events(other, true, 12, 13)
	next.events(other, false, 13)
	shared.events(id, false, 12)
	sees(t, first, "12 ", "13 … ", "13 ")
	shared.gone()
}

// TestMoveProgress moves those, too, who wait for a progress answer.
func TestMoveProgress(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	shared, _ := c.joined(first, on("k"), 5, 10)
	progress(t, first.c)
	await[*pb.WatchRequest_ProgressRequest](shared)
	next, _ := c.replaced(shared).made(10)
	next.progressed(11)
	sees(t, first, "progress 11")
	shared.gone()
}

// TestMoveThatFails stays on the old stream while there is no new one, and tries again.
func TestMoveThatFails(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	shared, id := c.joined(first, on("k"), 5, 10)
	refused := c.replaced(shared)
	refused.on.answer(&pb.WatchResponse{Header: at(10), WatchId: -1, Created: true, Canceled: true, CancelReason: "etcdserver: permission denied"})
	refused.on.gone()
	shared.events(id, false, 11)
	sees(t, first, "11 ")
	next, other := c.next().made(12)
	shared.events(id, false, 12)
	shared.gone()
	next.events(other, false, 13)
	sees(t, first, "12 ", "13 ")
}

// TestMoveAndTheEndOfTheOldStream ends those that live from a stream that ends before another could take over, as without one.
func TestMoveAndTheEndOfTheOldStream(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	shared, _ := c.joined(first, on("k"), 5, 10)
	next := c.replaced(shared)
	shared.answer(&pb.WatchResponse{Header: at(11), Created: true}) // nobody asked: such a stream is given up
	shared.gone()
	next.on.gone()
	if err := first.end(t); err == nil {
		t.Error("the session goes on")
	}
	second := read(c.hub.open(t.Context()))
	c.joined(second, on("k"), 5, 12)
}

// TestMoveOfCatchUps lets a watcher that catches up come to its end where it is, and keeps no stream of an old connection for another.
func TestMoveOfCatchUps(t *testing.T) {
	t.Parallel()
	c := newScriptedCore(t)
	first := read(c.hub.open(t.Context()))
	w := on("k")
	w.StartRevision = 5
	create(t, first.c, w)
	private, id := c.next().made(10)
	close(private.retired)
	private.events(id, false, 6)
	sees(t, first, "created", "6 ")
	private.progressed(10)
	c.next().made(10)
	private.canceled()
	private.gone()

	second := read(c.hub.open(t.Context()))
	create(t, second.c, w)
	idle, _ := c.next().made(10)
	idle.progressed(10)
	idle.canceled()
	close(idle.retired)
	idle.gone()
}

// TestMoves moves the watches of clients from one connection to the next again and again while the core is written to. No stream of the tenant ends, no event
// is lost or comes twice, and progress is told.
func TestMoves(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	h := newHub(t, etcd.Endpoint, 0)
	const moves = 20
	var readers []*reader
	for i := range 6 {
		w := on("k")
		w.PrevKv, w.Fragment = i%2 == 0, i%3 == 0
		r := read(h.open(t.Context()))
		create(t, r.c, w)
		if a := r.next(t); !a.Created {
			t.Fatal(a)
		}
		readers = append(readers, r)
	}
	var written atomic.Int64
	writing, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for writing.Err() == nil {
			if _, err := etcd.Client.Put(t.Context(), "/a/k", strconv.FormatInt(written.Load()+1, 10)); err != nil {
				done <- err
				return
			}
			written.Add(1)
		}
		done <- nil
	}()
	settled := func(opened int64) {
		testkit.Eventually(t, "all to share", func() string {
			if s := h.Stats(); s.Private != 0 || h.Leaving() || h.opened.Load() < opened {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
	}
	settled(1)
	for range moves {
		before := h.opened.Load()
		h.retire()
		settled(before + 1)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i, r := range readers {
		progress(t, r.c)
		for next := int64(1); next <= written.Load(); {
			for _, e := range r.next(t).Events {
				if got := string(e.Kv.Value); got != strconv.FormatInt(next, 10) {
					t.Fatalf("watcher %d got %s instead of %d", i, got, next)
				}
				next++
			}
		}
	}
}
