// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"slices"
	"sync/atomic"
)

// stream is what both sides' streams have in common.
type stream struct {
	t     *transport
	id    uint32
	owner any // *Stream or *clientCall

	// Guarded by t.mu.
	window    int64
	queue     []piece
	pieces    [3]piece // queue's first array
	size      int      // bytes in queue
	finish    finish
	trailer   Status // with finishTrailers
	isWaiting bool   // in t.waiting
	closed    bool   // not in t.streams any more
	writable  chan struct{}

	rwindow   int64 // what the peer may still send
	ownWindow int64 // what it may send at most
	credit    int64 // what it sent and got not back yet

	remoteEnded atomic.Bool // END_STREAM came

	in assembler // the reader's own
}

// piece is data that waits for a window. The bytes are not changed; buf, if there is one, is released when they are sent.
type piece struct {
	data []byte
	buf  *Buf
}

// finish is what follows the queue.
type finish int

const (
	finishNothing  finish = iota
	finishEnd             // END_STREAM on the last DATA
	finishTrailers        // a HEADERS frame with the status
)

// lookup finds a stream that has not ended.
func (t *transport) lookup(id uint32) *stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams[id]
}

// begin registers a stream; t.mu is held.
func (t *transport) begin(s *stream, id uint32) {
	s.t, s.id, s.window, s.rwindow, s.ownWindow = t, id, t.peer.window, t.ownStream, t.ownStream
	s.queue = s.pieces[:0]
	t.streams[id] = s
	t.begun++
}

// end forgets a stream; false when it had ended before.
func (t *transport) end(s *stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endLocked(s)
}

func (t *transport) endLocked(s *stream) bool {
	if s.closed {
		return false
	}
	s.closed = true
	delete(t.streams, s.id)
	for _, p := range s.queue {
		p.buf.Release()
	}
	t.queued -= s.size
	s.queue, s.size = nil, 0
	if s.isWaiting {
		s.isWaiting = false
		if i := slices.Index(t.waiting, s); i >= 0 {
			t.waiting = slices.Delete(t.waiting, i, i+1)
		}
	}
	s.signal()
	return true
}

// signal wakes a sender that waits for the queue.
func (s *stream) signal() {
	if s.writable != nil {
		select {
		case s.writable <- struct{}{}:
		default:
		}
	}
}

// reset ends a stream with RST_STREAM; false when it had ended before.
func (t *transport) reset(s *stream, code ErrorCode, b *Batch) bool {
	t.mu.Lock()
	ended := t.endLocked(s)
	if ended {
		t.out = appendReset(t.out, s.id, code)
	}
	t.mu.Unlock()
	if ended {
		b.add(t)
	}
	return ended
}

// push appends to a stream's queue; t.mu is held.
func (t *transport) push(s *stream, p piece) {
	s.queue = append(s.queue, p)
	s.size += len(p.data)
	t.queued += len(p.data)
}

// wait notes that a stream has something that could not be sent yet.
func (t *transport) wait(s *stream) {
	if !s.isWaiting && !s.closed && (s.size > 0 || s.finish != finishNothing) {
		s.isWaiting = true
		t.waiting = append(t.waiting, s)
	}
}

// pumpAll sends what windows and out have room for, in the order of waiting.
func (t *transport) pumpAll() {
	if len(t.waiting) == 0 || len(t.out) >= mostOut {
		return
	}
	list := t.waiting
	t.waiting = nil
	for _, s := range list {
		s.isWaiting = false
	}
	for _, s := range list {
		t.pump(s)
	}
}

// pump moves a stream's data into out as far as the windows allow; t.mu is held.
func (t *transport) pump(s *stream) {
	if s.size > keptOut && cap(t.out) < largeOut {
		large := GetBuf(largeOut)
		t.out = append(large.B, t.out...)
	}
	for s.size > 0 && !s.closed {
		n := int(min(int64(s.size), s.window, t.window, int64(t.peer.frame)))
		if n <= 0 || len(t.out) >= mostOut {
			t.wait(s)
			return
		}
		var flags byte
		if n == s.size && s.finish == finishEnd {
			flags = flagEndStream
			s.finish = finishNothing
		}
		t.out = appendFrameHeader(t.out, n, frameData, flags, s.id)
		t.take(s, n)
	}
	if s.closed {
		return
	}
	switch s.finish {
	case finishEnd:
		t.out = appendFrameHeader(t.out, 0, frameData, flagEndStream, s.id)
	case finishTrailers:
		t.writeTrailers(s)
	case finishNothing:
		s.signal()
		return
	}
	s.finish = finishNothing
}

// take copies n bytes of the queue into out.
func (t *transport) take(s *stream, n int) {
	s.window -= int64(n)
	t.window -= int64(n)
	s.size -= n
	t.queued -= n
	t.sent += uint64(n)
	for n > 0 {
		p := &s.queue[0]
		part := p.data[:min(n, len(p.data))]
		t.out = append(t.out, part...)
		n -= len(part)
		if p.data = p.data[len(part):]; len(p.data) > 0 {
			return
		}
		p.buf.Release()
		*p = piece{}
		s.queue = s.queue[1:]
	}
	if len(s.queue) == 0 {
		s.queue = s.pieces[:0]
	}
}

// inflow gives a stream's window back to the peer once a quarter is used; n is what was taken in.
func (t *transport) inflow(s *stream, n int64, b *Batch) {
	t.mu.Lock()
	s.credit += n
	if s.credit < s.ownWindow/4 || s.closed || s.remoteEnded.Load() {
		t.mu.Unlock()
		return
	}
	t.out = appendWindowUpdate(t.out, s.id, uint32(s.credit))
	s.rwindow += s.credit
	s.credit = 0
	t.mu.Unlock()
	b.add(t)
}
