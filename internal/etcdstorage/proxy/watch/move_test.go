// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
