// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// mostInbox is how many bytes of complete messages a streaming call holds before it stops giving the sender its window back.
const mostInbox = 1 << 20

// messageCost is what a message costs alongside its bytes; an empty one is not free.
const messageCost = 64

// inbox hands the messages of a streaming call from the reader to the goroutine that receives them.
type inbox struct {
	s     *stream
	total *atomic.Int64 // of all inboxes of a connection

	mu       sync.Mutex
	messages [][]byte
	bytes    int
	withheld int64 // of the window
	closed   bool  // nobody receives any more
	err      error // after the messages
	wake     chan struct{}
}

func newInbox(s *stream, total *atomic.Int64) *inbox {
	if total == nil {
		total = &atomic.Int64{}
	}
	return &inbox{s: s, total: total, wake: make(chan struct{}, 1)}
}

func (i *inbox) signal() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// data takes in a DATA frame; the failure is that of a message that cannot be taken.
func (i *inbox) data(payload []byte, limit int, b *Batch) *Status {
	size := int64(len(payload))
	var got [][]byte
	bytes := 0
	for len(payload) > 0 {
		message, own, rest, ok, failure := i.s.in.next(payload, limit)
		if failure != nil {
			return failure
		}
		if !ok {
			break
		}
		bytes += len(message) + messageCost
		if i.s.in.trusted && len(message) > smallAnswer { // the buffer is the receiver's: a second one would be as large
			got = append(got, message)
		} else {
			got = append(got, append(make([]byte, 0, len(message)), message...))
			own.Release()
		}
		payload = rest
	}
	i.mu.Lock()
	if i.closed {
		got, bytes = nil, 0
	}
	i.messages = append(i.messages, got...)
	i.bytes += bytes
	i.total.Add(int64(bytes))
	back := size
	if i.bytes > mostInbox {
		i.withheld += size
		back = 0
	}
	i.mu.Unlock()
	if len(got) > 0 {
		i.signal()
	}
	if back > 0 {
		i.s.t.inflow(i.s, back, b)
	}
	return nil
}

// fail ends the inbox; the first reason stays.
func (i *inbox) fail(err error) {
	i.mu.Lock()
	if i.err == nil {
		i.err = err
	}
	i.mu.Unlock()
	i.signal()
}

// drop forgets the messages that nobody will receive.
func (i *inbox) drop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.total.Add(-int64(i.bytes))
	i.messages, i.bytes, i.closed = nil, 0, true
}

// recv returns the next message, io.EOF or the reason why there is none.
func (i *inbox) recv(ctx context.Context) ([]byte, error) {
	for {
		i.mu.Lock()
		if len(i.messages) > 0 {
			m := i.messages[0]
			i.messages[0] = nil
			i.messages = i.messages[1:]
			i.bytes -= len(m) + messageCost
			i.total.Add(-int64(len(m) + messageCost))
			var back int64
			if i.bytes <= mostInbox {
				back, i.withheld = i.withheld, 0
			}
			i.mu.Unlock()
			if back > 0 {
				i.s.t.inflow(i.s, back, nil)
			}
			return m, nil
		}
		err := i.err
		i.mu.Unlock()
		if err != nil {
			i.signal() // for the next call
			return nil, err
		}
		select {
		case <-i.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// mostUnsent is how many bytes of earlier messages may wait when a sender adds another.
const mostUnsent = 64 << 10

// errEnded is Send's answer on a stream that has ended; Recv knows why.
var errEnded = errors.New("the stream has ended")

// send queues one message and waits until the earlier ones are nearly gone. With a budget what waits for the peer counts there.
func (s *stream) send(ctx context.Context, before func(), answers *Budget, parts ...[]byte) error {
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	for {
		s.t.mu.Lock()
		if s.closed || s.finish != finishNothing {
			s.t.mu.Unlock()
			return errEnded
		}
		if s.size <= mostUnsent {
			break
		}
		if s.writable == nil {
			s.writable = make(chan struct{}, 1)
		}
		writable := s.writable
		s.t.mu.Unlock()
		select {
		case <-writable:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if before != nil {
		before()
	}
	head := GetBuf(messageHeaderLen)
	head.B = appendMessageHeader(head.B, length)
	s.t.push(s, piece{data: head.B, buf: head})
	for i, p := range parts {
		if len(p) == 0 {
			continue
		}
		part := piece{data: p}
		if i == len(parts)-1 && length > uncounted {
			part.buf = answers.holder(length)
		}
		s.t.push(s, part)
	}
	s.t.pump(s)
	s.t.mu.Unlock()
	s.t.flush()
	return nil
}

// drained returns when all that was sent has left the queue, or the stream has ended.
func (s *stream) drained(ctx context.Context) error {
	for {
		s.t.mu.Lock()
		if s.closed || s.size == 0 {
			s.t.mu.Unlock()
			return nil
		}
		if s.writable == nil {
			s.writable = make(chan struct{}, 1)
		}
		writable := s.writable
		s.t.mu.Unlock()
		select {
		case <-writable:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
