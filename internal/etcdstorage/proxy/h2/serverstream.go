// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errEndOfInput = io.EOF // itself, as gRPC's streams have it

// Stream is one call of a tenant.
type Stream struct {
	stream

	// Method is the path: "/etcdserverpb.KV/Range".
	Method string
	// Timeout is the grpc-timeout header as it came, "" without one; it is well-formed.
	Timeout string
	// RequireLeader tells that the metadata hasleader is true.
	RequireLeader bool
	// Value is for the handler.
	Value any
	// Uncounted is set for a streaming call whose messages are not counted in Server.Answers, since the handler bounds how many such calls there are.
	Uncounted bool
	// OnCancel, if set, is called by the connection's reader when the call was given up before it was answered.
	OnCancel func(b *Batch)

	conn     *serverConn
	serve    func(*Stream)
	inbox    *inbox // of a streaming call
	answered atomic.Bool
	// accounted is what Server.held holds for this call.
	accounted atomic.Int64
	headers   bool // the response's headers were written; under t.mu

	request    *Buf // a unary call's message that came before its END_STREAM
	hasRequest bool

	ctxMu  sync.Mutex
	ctx    context.Context //nolint:containedctx // the call's
	stopc  context.CancelFunc
	isGone bool
}

// Peer is what Handler.Accept made of the connection.
func (s *Stream) Peer() any { return s.conn.peer }

// mostTimeoutDigits is gRPC's bound of grpc-timeout.
const mostTimeoutDigits = 8

// timeoutUnits of grpc-timeout.
func timeoutUnit(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}

// parseTimeout reads a grpc-timeout; ok is false when it is not well-formed.
func parseTimeout(text string) (time.Duration, bool) {
	if len(text) < 2 || len(text) > mostTimeoutDigits+1 {
		return 0, false
	}
	unit := timeoutUnit(text[len(text)-1])
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 63)
	if unit == 0 || err != nil {
		return 0, false
	}
	const most = 1<<63 - 1
	if n > uint64(most/unit) {
		return most, true
	}
	return time.Duration(n) * unit, true
}

// AtLeast is a grpc-timeout, or least if that is longer; "" is none and stays so.
func AtLeast(timeout string, least time.Duration) string {
	if given, ok := parseTimeout(timeout); !ok || given >= least {
		return timeout
	}
	return strconv.FormatInt(int64(least/time.Second), 10) + "S"
}

// head is what a request's headers say in addition to what Stream keeps.
type head struct{ method, contentType, encoding, hasLeader string }

// readHeaders reads a request's headers. ok is false when they are not HTTP/2 request at all; refusal is gRPC's answer to one that is not a gRPC.
func (s *Stream) readHeaders(fields []hpack.HeaderField) (ok bool, refusal *Status) {
	var h head
	pseudo := true
	for i := range fields {
		f := &fields[i]
		if strings.HasPrefix(f.Name, ":") != pseudo {
			if !pseudo {
				return false, nil // a pseudo-header after the others
			}
			pseudo = false
		}
		if !s.readHeader(&h, f) {
			return false, nil
		}
	}
	if h.method == "" || s.Method == "" {
		return false, nil
	}
	s.RequireLeader = h.hasLeader == "true"
	return true, judgeHeaders(h.method, h.contentType, h.encoding, s.Timeout)
}

// readHeader takes in one field; false when HTTP/2 does not allow it.
func (s *Stream) readHeader(h *head, f *hpack.HeaderField) bool {
	switch f.Name {
	case ":method":
		h.method = f.Value
	case ":path":
		s.Method = f.Value
	case ":scheme", ":authority", "user-agent", "te":
	case "content-type":
		h.contentType = f.Value
	case "grpc-timeout":
		s.Timeout = f.Value
	case "grpc-encoding":
		h.encoding = f.Value
	case "hasleader":
		if h.hasLeader == "" { // as etcd, which looks at the first
			h.hasLeader = f.Value
		}
	case "connection":
		return false
	default:
		return !strings.HasPrefix(f.Name, ":") && strings.ToLower(f.Name) == f.Name
	}
	return true
}

func judgeHeaders(method, contentType, encoding, timeout string) *Status {
	if method != "POST" {
		return &Status{Code: codes.Internal, Message: fmt.Sprintf("http2Server.operateHeaders parsed a :method field: %q which should be POST", method)}
	}
	if contentType != grpcContentType && !strings.HasPrefix(contentType, grpcContentType+"+") && !strings.HasPrefix(contentType, grpcContentType+";") {
		return &Status{Code: codes.InvalidArgument, Message: fmt.Sprintf("invalid gRPC request content-type %q", contentType)}
	}
	if encoding != "" && encoding != "identity" {
		return &Status{Code: codes.Unimplemented, Message: fmt.Sprintf("grpc: Decompressor is not installed for grpc-encoding %q", encoding)}
	}
	if timeout != "" {
		if _, ok := parseTimeout(timeout); !ok {
			return &Status{Code: codes.Internal, Message: fmt.Sprintf("malformed grpc-timeout: %q", timeout)}
		}
	}
	return nil
}

// collect puts a unary call's request together; it is not nil once the request is complete and the client has ended its side.
func (s *Stream) collect(payload []byte, end bool, limit int) (request []byte, own *Buf, failure *Status) {
	for len(payload) > 0 {
		message, buf, rest, ok, failure := s.in.next(payload, limit)
		switch {
		case failure != nil:
			return nil, nil, failure
		case !ok:
			payload = nil
			continue
		case s.hasRequest:
			buf.Release()
			return nil, nil, &Status{Code: codes.Internal, Message: "etcd-storage-proxy: a unary call with more than one message"}
		}
		if payload = rest; end && len(rest) == 0 {
			return message, buf, nil
		}
		s.hasRequest = true
		if s.request = buf; buf == nil {
			s.request = GetBuf(len(message))
			s.request.B = append(s.request.B, message...)
		}
	}
	switch {
	case !end:
		return nil, nil, nil
	case !s.in.empty():
		return nil, nil, &Status{Code: codes.Internal, Message: "unexpected EOF"}
	case !s.hasRequest:
		return nil, nil, &Status{Code: codes.Internal, Message: "etcd-storage-proxy: the call ended before its request came"}
	}
	own, s.request = s.request, nil
	return own.B, own, nil
}

const grpcContentType = "application/grpc"

// writeHeaders begins the response; t.mu is held.
func (s *Stream) writeHeaders() {
	if s.headers {
		return
	}
	s.headers = true
	s.t.field(":status", "200", false)
	s.t.field("content-type", grpcContentType, false)
	s.t.writeBlock(s.id, false)
}

// writeTrailers ends the response of a server's stream; t.mu is held.
func (t *transport) writeTrailers(st *stream) {
	s := st.owner.(*Stream) //nolint:forcetypeassert // only servers send trailers
	if !s.headers {
		t.field(":status", "200", false)
		t.field("content-type", grpcContentType, false)
	}
	t.field("grpc-status", strconv.Itoa(int(st.trailer.Code)), false)
	if st.trailer.Message != "" {
		t.field("grpc-message", encodeMessage(st.trailer.Message), true)
	}
	t.writeBlock(st.id, true)
	if !st.remoteEnded.Load() {
		t.out = appendReset(t.out, st.id, NoError) // the rest of the request is not wanted
	}
	t.endLocked(st)
}

// MessageRoom is how many bytes a Buf given to Reply begins with, for the message's head.
const MessageRoom = messageHeaderLen

// Reply answers a unary call with OK and one message: what buf holds behind MessageRoom bytes. It takes the buffer over.
func (s *Stream) Reply(b *Batch, buf *Buf) {
	if !s.answered.CompareAndSwap(false, true) {
		buf.Release()
		return
	}
	appendMessageHeader(buf.B[:0], len(buf.B)-messageHeaderLen)
	t := s.t
	t.mu.Lock()
	if s.closed {
		buf.Release()
	} else {
		s.writeHeaders()
		t.push(&s.stream, piece{data: buf.B, buf: buf})
		s.finish = finishTrailers
	}
	t.pump(&s.stream)
	if s.size > 0 {
		s.conn.server.Answers.holdSmall(buf) // it waits, and is ours no more than the queue's, which the lock guards
	}
	t.mu.Unlock()
	b.add(t)
	s.over()
}

// Fail answers with a status, OK included, after what was sent.
func (s *Stream) Fail(b *Batch, status Status) {
	if !s.answered.CompareAndSwap(false, true) {
		return
	}
	t := s.t
	t.mu.Lock()
	if !s.closed {
		s.trailer = status
		s.finish = finishTrailers
		t.pump(&s.stream)
	}
	t.mu.Unlock()
	b.add(t)
	s.over()
}

// Drained returns when the client's windows have let all through that was sent.
func (s *Stream) Drained() error { return s.drained(s.Context()) }

// Abort ends a call, and drops what of its answer the client has not taken (RST_STREAM, which gRPC makes ResourceExhausted).
func (s *Stream) Abort() {
	if !s.answered.CompareAndSwap(false, true) {
		return
	}
	s.t.reset(&s.stream, EnhanceYourCalm, nil)
	s.over()
}

// over is called at the end of a call, whatever the way. A draining connection may be done.
func (s *Stream) over() {
	s.cancel()
	s.unaccount()
	if s.inbox != nil {
		s.inbox.fail(context.Canceled)
	}
	if s.conn.isDraining() {
		s.t.flush()
		s.conn.closeIfIdle()
	}
}

// Recv returns the next message of a streaming call; io.EOF after the client's last.
func (s *Stream) Recv() ([]byte, error) { return s.inbox.recv(s.Context()) }

// errUnread ends a streaming call.
const errUnread = "etcd-storage-proxy: too many answers to this tenant are not being read"

// crowded reports whether so much waits for the tenant that a message must not be added.
func (s *Stream) crowded(parts [][]byte) bool {
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	if length <= uncounted {
		return false
	}
	s.t.mu.Lock()
	behind := s.t.queued > 0
	s.t.mu.Unlock()
	return s.conn.server.Answers.overcrowded(behind)
}

// Send sends one message, the concatenation of parts, which must not change afterwards. It blocks while the client does not read.
func (s *Stream) Send(parts ...[]byte) error {
	answers := s.conn.server.Answers
	if s.Uncounted {
		answers = nil
	}
	if answers != nil && s.crowded(parts) {
		return status.Error(codes.ResourceExhausted, errUnread)
	}
	err := s.send(s.Context(), s.writeHeaders, answers, parts...)
	if err != nil && s.Context().Err() != nil {
		return s.Context().Err()
	}
	return err
}

// Context ends when the client gives the call up, its deadline passes, or the handler has returned.
func (s *Stream) Context() context.Context {
	s.ctxMu.Lock()
	defer s.ctxMu.Unlock()
	if s.ctx == nil {
		if timeout, ok := parseTimeout(s.Timeout); ok {
			s.ctx, s.stopc = context.WithTimeout(context.Background(), timeout)
		} else {
			s.ctx, s.stopc = context.WithCancel(context.Background())
		}
		if s.isGone {
			s.stopc()
		}
	}
	return s.ctx
}

// cancel ends the context.
func (s *Stream) cancel() {
	s.ctxMu.Lock()
	defer s.ctxMu.Unlock()
	s.isGone = true
	if s.stopc != nil {
		s.stopc()
	}
}

// canceled is the end of a call that the client gave up.
func (s *Stream) canceled(b *Batch) {
	if s.answered.CompareAndSwap(false, true) && s.OnCancel != nil {
		s.OnCancel(b)
	}
	s.over()
}
