// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// Bounds of the client side. The windows are static: nobody has to estimate a bandwidth.
const (
	clientReadBuffer = 256 << 10
	clientWindow     = 64 << 20
	clientStream     = 8 << 20   // of streaming calls; see Budget for the others
	mostAnswer       = 1<<31 - 1 // of one message: etcd's own bound is the window of the revision
)

// Request is what a call to the core begins with.
type Request struct {
	Method        string
	Timeout       string // grpc-timeout, "" for none
	Token         string // of etcd's authentication, "" for none
	RequireLeader bool
	// Window is how many bytes of a streaming call may come that nobody has received; 0 is 8 MiB.
	Window int64
}

// Sink is told what becomes of a unary call, by the connection's reader.
type Sink interface {
	// Message gives the response, which is valid until it returns. If own is not nil it is the sink's from now on, and the message lies in it behind
	// MessageRoom bytes.
	Message(b *Batch, message []byte, own *Buf)
	// Done is called once, last.
	Done(b *Batch, status Status)
}

// errNoConn reports that a connection takes no more calls; another one may.
var errNoConn = errors.New("the connection takes no more calls")

// Conn is one connection to the core.
type Conn struct {
	t         *transport
	scheme    string
	authority string

	next     uint32        // the next stream's number; under t.mu
	away     bool          // no new calls; under t.mu
	full     bool          // a call found no room for its stream; under t.mu
	room     func()        // called when there is room again
	unusable chan struct{} // closed when away is set
	ready    chan struct{} // closed when the core's SETTINGS came
	calls    atomic.Int64  // that are under way, for keep-alive
	seen     uint64        // keep-alive's own
	idle     int
	reads    atomic.Uint64
	answers  *Budget
	auth     Renewable     // nil when the credentials stay what they are
	retired  chan struct{} // closed when another connection has taken its place
	gone     chan struct{} // closed when its reader has ended
}

// clientCall is one call's stream.
type clientCall struct {
	stream

	conn     *Conn
	sink     Sink
	inbox    *inbox // of a streaming call
	gotHead  bool
	answered bool // a message came (unary)
	claimed  bool // it has a claim in the budget, since its answer is large
	claim    claim
	// abandoned is set when nobody wants the answer any more, but for knowing when the core has finished.
	abandoned atomic.Bool
	// hasTimeout tells that the core was told a deadline.
	hasTimeout bool
}

// newConn begins HTTP/2 on a connection whose handshake is done. The reader must be started.
func newConn(conn net.Conn, s *sock, scheme, authority string, room func()) *Conn {
	c := &Conn{
		scheme: scheme, authority: authority, room: room, next: 1, unusable: make(chan struct{}), ready: make(chan struct{}),
		retired: make(chan struct{}), gone: make(chan struct{}),
	}
	c.t = newTransport(countedReads{conn, &c.reads}, s, c, clientReadBuffer, clientWindow, defaultWindow)
	c.t.mu.Lock() // what is left of the handshake may flush
	defer c.t.mu.Unlock()
	c.t.out = append(c.t.out, preface...)
	c.t.out = appendSettings(c.t.out, [2]uint32{settingEnablePush, 0}, [2]uint32{settingMaxHeaderListSize, mostHeaderBlock})
	c.t.out = appendWindowUpdate(c.t.out, 0, clientWindow-defaultWindow)
	return c
}

// countedReads counts what keep-alive must know: that the peer lives.
type countedReads struct {
	net.Conn
	reads *atomic.Uint64
}

func (c countedReads) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

// leave makes the connection take no more calls; t.mu is held.
func (c *Conn) leave() {
	if !c.away {
		c.away = true
		close(c.unusable)
	}
}

// open begins a stream; t.mu is held afterwards when there is no error.
func (c *Conn) open(call *clientCall, r *Request) error {
	t := c.t
	t.mu.Lock()
	if c.away || t.err != nil || uint32(len(t.streams)) >= t.peer.streams || c.next > largestStreamID-2 {
		if c.next > largestStreamID-2 {
			c.leave()
		}
		c.full = true
		t.mu.Unlock()
		return errNoConn
	}
	call.conn, call.owner, call.in.trusted, call.hasTimeout = c, call, true, r.Timeout != ""
	t.begin(&call.stream, c.next)
	c.next += 2
	c.calls.Add(1)
	t.field(":method", "POST", false)
	t.field(":scheme", c.scheme, false)
	t.field(":path", r.Method, false)
	t.field(":authority", c.authority, false)
	t.field("content-type", grpcContentType, false)
	t.field("te", "trailers", false)
	if r.RequireLeader {
		t.field("hasleader", "true", false)
	}
	if r.Token != "" {
		t.field("token", r.Token, false)
	}
	if r.Timeout != "" {
		t.field("grpc-timeout", r.Timeout, true)
	}
	t.writeBlock(call.id, false)
	return nil
}

// start makes a unary call. message begins with MessageRoom bytes of room; it is copied. The connection's reader tells sink.
func (c *Conn) start(b *Batch, r *Request, message []byte, sink Sink) (*clientCall, error) {
	call := &clientCall{sink: sink}
	call.in.room, call.claim.call = MessageRoom, call
	if err := c.open(call, r); err != nil {
		return nil, err
	}
	t := c.t
	appendMessageHeader(message[:0], len(message)-messageHeaderLen)
	p := piece{data: message}
	if int64(len(message)) > min(call.window, t.window) || len(t.out) >= mostOut || t.queued > 0 {
		p.buf = GetBuf(len(message)) // it may have to wait
		p.buf.B = append(p.buf.B, message...)
		p.data = p.buf.B
	}
	t.push(&call.stream, p)
	call.finish = finishEnd
	t.pump(&call.stream)
	if call.size > 0 && p.buf == nil { // out was full; the caller's bytes are the caller's
		rest := GetBuf(call.size)
		rest.B = append(rest.B, call.queue[0].data...)
		call.queue[0] = piece{data: rest.B, buf: rest}
	}
	t.mu.Unlock()
	b.add(t)
	return call, nil
}

// Cancel gives a unary call up; its sink hears no more of it.
func (c *clientCall) Cancel(b *Batch) {
	if c.t.reset(&c.stream, Cancel, b) {
		c.conn.ended()
		c.conn.closeAway()
	}
}

// Abandon gives a unary call up but for its end: what the core has begun goes on there, and the sink is told when it has ended. An answer
// that is large is not waited for; the core has finished when it begins to come.
func (c *clientCall) Abandon() {
	c.abandoned.Store(true)
	if c.conn.answers.withdraw(&c.claim) && c.t.reset(&c.stream, Cancel, nil) {
		c.conn.ended() // what the reader has of the answer is the reader's
		status := abandonedStatus()
		status.Unread = c.claim.size
		c.sink.Done(nil, status)
		c.conn.closeAway()
	}
}

func abandonedStatus() Status { return Status{Code: codes.Canceled, Message: "context canceled"} }

// openWindow lets the core send an answer for which there is room now.
func (c *clientCall) openWindow(b *Batch) {
	t := c.t
	t.mu.Lock()
	if c.closed {
		t.mu.Unlock()
		return
	}
	more := c.claim.size
	t.out = appendWindowUpdate(t.out, c.id, uint32(more))
	c.rwindow += more
	t.mu.Unlock()
	b.add(t)
}

// wants claims room for an answer that has turned out to be large.
func (c *clientCall) wants(size int, b *Batch) *Status {
	c.claimed, c.claim.size = true, int64(size)
	answers := c.conn.answers
	if answers == nil {
		c.openWindow(b)
		return nil
	}
	now, failure := answers.take(&c.claim, roomFor(size+MessageRoom))
	switch {
	case failure != nil:
		return failure
	case now:
		c.openWindow(b)
	case c.abandoned.Load() && answers.withdraw(&c.claim):
		status := abandonedStatus()
		return &status
	}
	return nil
}

// stream begins a streaming call.
func (c *Conn) stream(ctx context.Context, r *Request) (*ClientStream, error) {
	call := &clientCall{}
	call.inbox = newInbox(&call.stream, nil)
	if err := c.open(call, r); err != nil {
		return nil, err
	}
	window := cmp.Or(r.Window, clientStream)
	call.ownWindow = window
	call.rwindow += window - defaultWindow
	c.t.out = appendWindowUpdate(c.t.out, call.id, uint32(window-defaultWindow))
	c.t.mu.Unlock()
	c.t.flush()
	s := &ClientStream{call: call, ctx: ctx}
	s.stop = context.AfterFunc(ctx, func() {
		call.Cancel(nil)
		call.inbox.fail(ctx.Err())
	})
	return s, nil
}

// ClientStream is a streaming call. It ends with the context it was made with.
type ClientStream struct {
	call *clientCall
	ctx  context.Context //nolint:containedctx // the call's
	stop func() bool
}

// Send sends one message, which must not change afterwards. When the stream has ended it returns io.EOF, and Recv knows why.
func (s *ClientStream) Send(message []byte) error {
	err := s.call.send(s.ctx, nil, nil, message)
	if errors.Is(err, errEnded) {
		return io.EOF
	}
	return err
}

// CloseSend reports that there are no more messages.
func (s *ClientStream) CloseSend() error {
	t := s.call.t
	t.mu.Lock()
	if !s.call.closed && s.call.finish == finishNothing {
		s.call.finish = finishEnd
		t.pump(&s.call.stream)
	}
	t.mu.Unlock()
	t.flush()
	return nil
}

// Recv returns the next message; io.EOF when the core ended the call well, else a Status.
func (s *ClientStream) Recv() ([]byte, error) {
	m, err := s.call.inbox.recv(s.ctx)
	if err != nil && s.stop() && s.ctx.Err() != nil {
		s.call.Cancel(nil) // we have heard of the end of the context before the function that stop has stopped did
	}
	return m, err
}

func (c *Conn) onSettings() { close(c.ready) }

func (c *Conn) onPong([pingLen]byte) {}

func (c *Conn) lastSeen() uint32 { return 0 } // the core begins no streams

// onGoAway stops new calls. Those that the core has not seen are over and may be made again.
func (c *Conn) onGoAway(last uint32, _ ErrorCode, b *Batch) {
	t := c.t
	t.mu.Lock()
	c.leave()
	var unseen []*stream
	for _, s := range t.streams {
		if s.id > last {
			unseen = append(unseen, s)
		}
	}
	t.mu.Unlock()
	for _, s := range unseen {
		if t.end(s) {
			c.over(s, b, Status{Code: codes.Unavailable, Message: unreachable, Unprocessed: true})
		}
	}
	c.closeIfIdle()
}

func (c *Conn) closeIfIdle() {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	if c.away && len(c.t.streams) == 0 {
		c.t.failLocked(errClosed)
	}
}

// ended is called when a stream has ended, whatever the way.
func (c *Conn) ended() {
	c.calls.Add(-1)
	c.t.mu.Lock()
	full := c.full
	c.full = false
	c.t.mu.Unlock()
	if full {
		c.room()
	}
}

// over tells a call's owner that it ended.
func (c *Conn) over(st *stream, b *Batch, status Status) {
	c.ended()
	call := st.owner.(*clientCall) //nolint:forcetypeassert // the client's streams have no other owner
	st.in.drop()
	c.answers.leave(&call.claim)
	switch {
	case call.inbox == nil:
		if call.claimed && !call.answered {
			status.Unread = call.claim.size
		}
		call.sink.Done(b, status)
	case status.OK():
		call.inbox.fail(io.EOF)
	default:
		call.inbox.fail(status)
	}
}

// onReset ends a call that the core gave up, or whose connection was lost.
func (c *Conn) onReset(s *stream, code ErrorCode, b *Batch) {
	status := Status{Code: codes.Unavailable, Message: lost}
	switch code { //nolint:exhaustive // all others mean that the call is lost
	case RefusedStream:
		status.Unprocessed = true
	case Cancel:
		// gRPC servers reset a call whose deadline has passed.
		status = Status{Code: codes.Canceled, Message: "etcdserver: request canceled"}
		if s.owner.(*clientCall).hasTimeout { //nolint:forcetypeassert // as above
			status = Status{Code: codes.DeadlineExceeded, Message: "etcdserver: context deadline exceeded"}
		}
	case EnhanceYourCalm:
		status = Status{Code: codes.ResourceExhausted, Message: "etcd-storage-proxy: the core etcd asks for fewer requests"}
	}
	c.over(s, b, status)
	c.closeAway()
}

// closeAway closes a connection that has finished its last call.
func (c *Conn) closeAway() {
	select {
	case <-c.unusable:
		c.closeIfIdle()
	default:
	}
}

// onData gives a unary call its answer, and queues a streaming call's messages.
func (c *Conn) onData(s *stream, payload []byte, end bool, b *Batch) error {
	call := s.owner.(*clientCall) //nolint:forcetypeassert // as above
	var failure *Status
	if call.inbox != nil {
		failure = call.inbox.data(payload, mostAnswer, b)
	} else {
		failure = call.unaryData(payload, b)
	}
	if failure == nil && end {
		failure = &Status{Code: codes.Unavailable, Message: notGRPC} // a call ends with trailers
	}
	if failure != nil && c.t.reset(s, Cancel, b) {
		c.over(s, b, *failure)
	}
	return nil
}

// unaryData takes in a part of a unary call's answer. One that is small fits into the window that the call began with; no window is given
// back for it.
func (c *clientCall) unaryData(payload []byte, b *Batch) *Status {
	if c.claimed && c.abandoned.Load() {
		status := abandonedStatus()
		return &status
	}
	for len(payload) > 0 {
		message, own, rest, ok, failure := c.in.next(payload, mostAnswer)
		if failure != nil {
			return failure
		}
		if !ok {
			break
		}
		if c.answered {
			own.Release()
			return &Status{Code: codes.Unavailable, Message: notGRPC}
		}
		payload, c.answered = rest, true
		if own != nil && c.claimed {
			c.conn.answers.move(&c.claim, own)
		}
		c.sink.Message(b, message, own)
	}
	if size := c.in.size(); size > smallAnswer && !c.claimed {
		return c.wants(size, b)
	}
	return nil
}

// Texts for the tenant, all of Unavailable: a core that starts or ends may respond with anything, and a client of etcd tries again. They name no addresses.
const (
	unreachable = "etcd-storage-proxy: the core etcd is unreachable"
	lost        = "etcd-storage-proxy: the connection to the core etcd was lost"
	notGRPC     = "etcd-storage-proxy: the core etcd answered with something else than gRPC"
)

// onHeaders takes a response's headers or trailers.
func (c *Conn) onHeaders(id uint32, fields []hpack.HeaderField, end bool, b *Batch) error {
	s := c.t.lookup(id)
	if s == nil {
		return nil // it was given up
	}
	call := s.owner.(*clientCall) //nolint:forcetypeassert // as above
	status, isGRPC := readStatus(fields, call.gotHead)
	switch {
	case end:
		s.remoteEnded.Store(true)
		status.Answered = true
		if !isGRPC {
			status = Status{Code: codes.Unavailable, Message: notGRPC}
		}
		c.finish(s, b, status)
	case call.gotHead || !isGRPC:
		if c.t.reset(s, Cancel, b) {
			c.over(s, b, Status{Code: codes.Unavailable, Message: notGRPC})
		}
	default:
		call.gotHead = true
	}
	return nil
}

// finish ends a call with its status.
func (c *Conn) finish(s *stream, b *Batch, status Status) {
	call := s.owner.(*clientCall) //nolint:forcetypeassert // as above
	if status.OK() && call.inbox == nil && !call.answered {
		status = Status{Code: codes.Unavailable, Message: notGRPC}
	}
	t := c.t
	t.mu.Lock()
	unsent := s.size > 0 || s.finish != finishNothing || call.inbox != nil
	ended := t.endLocked(s)
	if ended && unsent {
		t.out = appendReset(t.out, s.id, NoError) // the core wants no more of the request
	}
	t.mu.Unlock()
	if !ended {
		return
	}
	if unsent {
		b.add(t)
	}
	c.over(s, b, status)
	c.closeAway()
}

// readStatus reads a response's headers (of which the first have a :status) or trailers.
func readStatus(fields []hpack.HeaderField, trailers bool) (status Status, isGRPC bool) {
	http, contentType := trailers, trailers
	seen := false
	for i := range fields {
		f := &fields[i]
		switch f.Name {
		case ":status":
			http = f.Value == "200"
		case "content-type":
			contentType = len(f.Value) >= len(grpcContentType) && f.Value[:len(grpcContentType)] == grpcContentType
		case "grpc-status":
			n, err := strconv.ParseUint(f.Value, 10, 32)
			if err != nil {
				return Status{}, false
			}
			status.Code, seen = codes.Code(n), true
		case "grpc-message":
			status.Message = decodeMessage(f.Value)
		}
	}
	return status, http && contentType && (seen || !trailers)
}
