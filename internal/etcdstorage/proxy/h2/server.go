// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// Bounds of the server side.
const (
	serverReadBuffer = 32 << 10
	serverWindow     = 16 << 20
	mostStreams      = 4096     // of one connection, unless Server.MaxStreams is given
	mostConnections  = 2048     // that got through the handshake
	mostFresh        = 256      // that have not yet
	mostUnread       = 32 << 20 // bytes of answers of a connection that takes none of them for a while
	stallTick        = 5 * time.Second
	mostHeld         = 64 << 20 // bytes of requests of all connections that are not complete, or not taken by their handlers
	handshakeTime    = 10 * time.Second
	refusedTime      = time.Second // what a refused connection has after the first refusal
	mostResets       = 5000        // of one connection, within resetTime and beyond the calls that ended well
	resetTime        = 10 * time.Second
)

// Handler answers calls. Its methods are called by connections' readers and must not block.
type Handler interface {
	// Begin is told of a call when its headers came. It returns the function that serves a streaming call, in a goroutine of its own; nil for a
	// unary call. It may answer the call at once with Fail.
	Begin(s *Stream, b *Batch) func(s *Stream)
	// Unary is given the request of a unary call. The request is valid until it returns.
	Unary(s *Stream, b *Batch, request []byte)
	// Accept judges a connection by what the handshake found.
	Accept(info credentials.AuthInfo, remote net.Addr) Admission
	// Excess is told of a connection that was closed since its share has as many as it may.
	Excess(share string, remote net.Addr)
	// Refused is told of a call that was begun and got this answer without the handler, as for a request that is not gRPC.
	Refused(s *Stream, status Status)
	// Panicked is told what a function of Begin or Unary's panicked with, and answers with the status to send.
	Panicked(s *Stream, reason any) Status
}

// Server serves connections.
type Server struct {
	Handler     Handler
	Credentials credentials.TransportCredentials // nil: plaintext
	MaxMessage  int
	// MaxStreams is how many calls of one connection may be open; 0 is 4096.
	MaxStreams int
	// Answers is where the answers are counted that wait for the tenant; nil is nowhere.
	Answers *Budget
	// MaxPerShare is how many connections each share may have (see Admission); 0 means no limit.
	MaxPerShare int
	// IdleTime is how long a connection may be without a call; 0 means no limit. It is told to go elsewhere then, and closed.
	IdleTime time.Duration
	// Broken, if set, is told of panics that were not a handler's.
	Broken func(err error)
	// StallTick is how often connections are looked at that do not read; 0 is 5 s. One that reads nothing between two looks is closed.
	StallTick time.Duration
	// Over, if set, is asked at each of these looks, with what Accept returned for a connection, whether the connection's time is over, and with which
	// status its open-ended calls end then. first is true until it was over once.
	Over func(peer any, first bool) (Status, bool)
	// OverTime is how long such a connection may stay; 0 is 30 s.
	OverTime time.Duration

	mu        sync.Mutex
	fresh     []*serverConn // in the handshake, the oldest first
	stop      chan struct{} // ends watchStalls
	listeners map[net.Listener]struct{}
	conns     map[*serverConn]struct{}
	shares    map[string]int // connections that were admitted
	draining  bool
	work      sync.WaitGroup
	held      atomic.Int64
}

// ErrStopped is returned by Serve after Drain or Close.
var ErrStopped = errors.New("the server was stopped")

// Serve accepts connections until the server is stopped or the listener fails.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		_ = l.Close()
		return ErrStopped
	}
	if s.listeners == nil {
		s.listeners, s.conns = map[net.Listener]struct{}{}, map[*serverConn]struct{}{}
		stop := make(chan struct{})
		s.stop = stop
		s.work.Go(func() { s.watchStalls(stop) })
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	pause := 5 * time.Millisecond
	for {
		c, err := l.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			s.start(c)
			continue
		}
		s.mu.Lock()
		draining := s.draining
		s.mu.Unlock()
		if draining {
			return ErrStopped
		}
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		time.Sleep(pause) //nolint:forbidigo // out of file descriptors: what is awaited is that others end, of which nobody tells
		pause = min(2*pause, time.Second)
	}
}

// start serves one connection in a goroutine. Connections in the handshake have a bound of their own, where the oldest gives way: who has no
// certificate cannot keep those out that have one.
func (s *Server) start(raw net.Conn) {
	c := &serverConn{server: s, raw: raw}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		_ = raw.Close()
		return
	}
	if len(s.fresh) >= mostFresh {
		s.fresh[0].close()
		s.fresh = slices.Delete(s.fresh, 0, 1)
	}
	s.fresh = append(s.fresh, c)
	s.conns[c] = struct{}{}
	s.work.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notFresh(c)
		delete(s.conns, c)
		if c.admitted {
			if s.shares[c.share]--; s.shares[c.share] <= 0 {
				delete(s.shares, c.share)
			}
		}
	})
}

// notFresh takes a connection out of those in the handshake.
func (s *Server) notFresh(c *serverConn) {
	if i := slices.Index(s.fresh, c); i >= 0 {
		s.fresh = slices.Delete(s.fresh, i, i+1)
	}
}

// watchStalls closes connections that have much to read and read nothing: that is what tells them from those that list much.
func (s *Server) watchStalls(stop <-chan struct{}) {
	tick := s.StallTick
	if tick <= 0 {
		tick = stallTick
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-stop:
			return
		}
		s.mu.Lock()
		conns := make([]*serverConn, 0, len(s.conns))
		for c := range s.conns {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		for _, c := range conns {
			c.closeIfStalled()
			c.endIfOver()
			c.endIfIdle()
		}
	}
}

// closeIfStalled closes a connection that has taken nothing since the last look though much waits for it.
func (c *serverConn) closeIfStalled() {
	c.mu.Lock()
	t := c.t
	c.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waiting := c.server.Answers.Held()
	stalled := (t.queued > mostUnread || t.queued > 0 && waiting > 0) && t.sent == c.sentBefore
	if c.sentBefore = t.sent; stalled {
		t.failLocked(errSlowPeer)
	}
}

// stopWatching ends watchStalls; s.mu is held.
func (s *Server) stopWatching() {
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
}

// Drain refuses new connections and calls and returns when the last call has ended, or when ctx ends.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	s.stopWatching()
	conns := make([]*serverConn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.drain()
	}
	ended := make(chan struct{})
	go func() {
		s.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	s.stopWatching()
	for c := range s.conns {
		c.close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// serverConn is one connection of a tenant.
type serverConn struct {
	server *Server
	raw    net.Conn

	mu       sync.Mutex
	t        *transport // nil during the handshake
	told     bool       // the peer was told to go elsewhere
	draining bool       // …and has heard it: what it begins now is refused
	open     map[*Stream]struct{}

	peer       any
	share      string
	admitted   bool // server.mu guards it
	refused    bool
	sentBefore uint64    // closeIfStalled's
	begunThen  uint64    // endIfIdle's
	idleSince  time.Time // likewise
	overAt     time.Time // endIfOver's

	// The reader's own.
	last     uint32 // the largest stream that was begun
	resets   int
	resetsAt time.Time
}

func (c *serverConn) close() {
	_ = c.raw.Close()
}

// serve does the handshake and reads frames until the connection ends.
func (c *serverConn) serve() {
	defer func() { _ = c.raw.Close() }()
	// A deadline that cannot be set is one that is not needed: the connection is closed.
	_ = c.raw.SetDeadline(time.Now().Add(handshakeTime)) //nolint:forbidigo // a deadline of the network's
	sock := newSock(c.raw)
	conn := net.Conn(sock)
	if c.server.Credentials != nil {
		secured, info, err := c.server.Credentials.ServerHandshake(sock)
		if err != nil {
			return // the credentials report it
		}
		conn = secured
		c.judge(info)
	} else {
		c.judge(nil)
	}
	if !readPreface(conn) || !c.begins() {
		return
	}
	stream := int64(c.server.MaxMessage) + messageHeaderLen + 64<<10
	t := newTransport(conn, sock, c, serverReadBuffer, serverWindow, stream)
	t.mu.Lock()
	t.out = appendSettings(t.out, [2]uint32{settingMaxStreams, uint32(c.server.maxStreams())}, [2]uint32{settingInitialWindow, uint32(stream)},
		[2]uint32{settingMaxHeaderListSize, mostHeaderBlock})
	t.out = appendWindowUpdate(t.out, 0, serverWindow-defaultWindow)
	t.mu.Unlock()
	c.mu.Lock()
	c.t = t
	told := c.told
	c.mu.Unlock()
	if told {
		c.drain()
	}
	t.flush()
	var broken *PanicError // else the peer went, or was told why it had to go
	if err := t.read(); errors.As(err, &broken) && c.server.Broken != nil {
		c.server.Broken(broken)
	}
}

func (s *Server) maxStreams() int { return cmp.Or(s.MaxStreams, mostStreams) }

// readPreface reads what HTTP/2 clients begin with; everything else is not worth an answer.
func readPreface(c net.Conn) bool {
	var got [len(preface)]byte
	for have := 0; have < len(got); {
		n, err := c.Read(got[have:])
		if string(got[:have+n]) != preface[:have+n] {
			return false
		}
		if have += n; err != nil {
			return have == len(got)
		}
	}
	return true
}

// drain tells the peer to go elsewhere. The ping that follows comes back after all that the peer began before it heard: then new calls are
// refused, and the connection is closed when the last one has ended.
func (c *serverConn) drain() {
	c.mu.Lock()
	c.told = true
	t := c.t
	c.mu.Unlock()
	if t == nil {
		return // serve calls again, or the handshake's deadline passes
	}
	t.mu.Lock()
	t.out = appendGoAway(t.out, largestStreamID, NoError, "")
	t.out = appendPing(t.out, 0, drainPing)
	t.mu.Unlock()
	t.flush()
}

// drainPing is what drain's ping carries.
var drainPing = [pingLen]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'} //nolint:gochecknoglobals // a constant that Go cannot spell

func (c *serverConn) onPong(data [pingLen]byte) {
	c.mu.Lock()
	heard := c.told && data == drainPing
	c.draining = c.draining || heard
	c.mu.Unlock()
	if !heard {
		return
	}
	c.t.mu.Lock()
	c.t.out = appendGoAway(c.t.out, c.last, NoError, "")
	c.t.mu.Unlock()
	c.t.flush()
	c.closeIfIdle()
}

// closeIfIdle closes a draining connection once it has no streams.
func (c *serverConn) closeIfIdle() {
	c.mu.Lock()
	t, draining := c.t, c.draining
	c.mu.Unlock()
	if t != nil && draining {
		t.endWhenIdle()
	}
}

func (c *serverConn) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

func (c *serverConn) onSettings() {}

func (c *serverConn) lastSeen() uint32 { return c.last }

// onGoAway: a client that goes away finishes its streams and closes.
func (c *serverConn) onGoAway(uint32, ErrorCode, *Batch) {}

// onHeaders begins a call, or takes the end of one that came as trailers.
func (c *serverConn) onHeaders(id uint32, fields []hpack.HeaderField, end bool, b *Batch) error {
	t := c.t
	if id <= c.last {
		s := t.lookup(id)
		switch {
		case s == nil:
			return nil
		case !end || s.remoteEnded.Load():
			t.abort(s, ProtocolError, b)
			return nil
		}
		s.remoteEnded.Store(true)
		return c.onData(s, nil, true, b)
	}
	if id%2 == 0 {
		return protocolError("a stream of the client's with an even number")
	}
	c.last = id
	s := &Stream{conn: c}
	s.owner = s
	ok, refusal := s.readHeaders(fields)
	t.mu.Lock()
	if !ok || len(t.streams) >= c.server.maxStreams() || c.isDraining() {
		code := RefusedStream
		if !ok {
			code = ProtocolError
		}
		t.out = appendReset(t.out, id, code)
		tooMuch := len(t.out) > mostControl
		t.mu.Unlock()
		b.add(t)
		if tooMuch {
			return &connError{EnhanceYourCalm, "too many streams that are refused"}
		}
		return nil
	}
	t.begin(&s.stream, id)
	t.mu.Unlock()
	s.remoteEnded.Store(end)
	if refusal != nil {
		s.Fail(b, *refusal)
		return nil //nolint:nilerr // the refusal is the call's and not the connection's
	}
	c.begin(s, b)
	if c.refused {
		c.refuse(b)
	}
	if end && s.serve == nil {
		return c.onData(&s.stream, nil, true, b)
	}
	return nil
}

// begin hands a call to the handler.
func (c *serverConn) begin(s *Stream, b *Batch) {
	defer c.contain(s, b)
	serve := c.server.Handler.Begin(s, b)
	if serve == nil || s.answered.Load() {
		return
	}
	s.serve = serve
	s.inbox = newInbox(&s.stream, &c.server.held)
	if s.remoteEnded.Load() {
		s.inbox.fail(errEndOfInput)
	}
	s.Context()
	c.opened(s)
	c.server.work.Go(func() {
		defer c.ended(s)
		defer s.cancel()
		defer s.inbox.drop()
		defer c.contain(s, nil)
		serve(s)
	})
}

// contain makes a panic the end of one call.
func (c *serverConn) contain(s *Stream, b *Batch) {
	if reason := recover(); reason != nil {
		s.Fail(b, c.server.Handler.Panicked(s, reason))
	}
}

// errHeld refuses a single call, where a connection's end would take all watches with it.
var errHeld = Status{Code: codes.ResourceExhausted, Message: "etcd-storage-proxy: too many requests are coming in at once"}

// onData collects the request of a unary call, or the messages of a streaming one.
func (c *serverConn) onData(st *stream, payload []byte, end bool, b *Batch) error {
	s := st.owner.(*Stream) //nolint:forcetypeassert // the server's streams have no other owner
	if s.answered.Load() {
		return nil
	}
	var request []byte
	var own *Buf
	var failure *Status
	if s.inbox != nil {
		failure = s.inbox.data(payload, c.server.MaxMessage, b)
		if end {
			s.inbox.fail(errEndOfInput)
		}
	} else {
		request, own, failure = s.collect(payload, end, c.server.MaxMessage)
	}
	// What is complete holds nothing any more.
	if held := s.account(); failure == nil && request == nil && held > max(mostHeld, 4*int64(c.server.MaxMessage)) {
		failure = &errHeld
	}
	switch {
	case failure != nil:
		own.Release()
		s.drop()
		if !s.answered.Load() {
			c.server.Handler.Refused(s, *failure)
		}
		s.Fail(b, *failure)
	case request != nil:
		c.unary(s, b, request)
		own.Release()
	}
	return nil
}

// account notes how much of an incomplete request is held, and returns what all connections hold. Only the reader calls it. A call that was
// answered meanwhile, by its handler, holds nothing.
func (s *Stream) account() int64 {
	now := int64(s.in.held())
	if s.request != nil {
		now += int64(cap(s.request.B))
	}
	all := s.conn.server.held.Add(now - s.accounted.Swap(now))
	if s.answered.Load() {
		s.unaccount()
	}
	return all
}

// unaccount is called at the end of a call.
func (s *Stream) unaccount() { s.conn.server.held.Add(-s.accounted.Swap(0)) }

// drop gives up what is held of a request; only the reader calls it.
func (s *Stream) drop() {
	s.in.drop()
	s.request.Release()
	s.request = nil
}

// unary hands a complete request to the handler.
func (c *serverConn) unary(s *Stream, b *Batch, request []byte) {
	defer c.contain(s, b)
	c.server.Handler.Unary(s, b, request)
}

// onReset ends a call that the client gave up, or whose connection was lost.
func (c *serverConn) onReset(st *stream, code ErrorCode, b *Batch) {
	s := st.owner.(*Stream) //nolint:forcetypeassert // as above
	s.drop()
	s.canceled(b)
	if code == connectionLost {
		return
	}
	now := time.Now() //nolint:forbidigo // a rate limit of the network's
	if now.Sub(c.resetsAt) > resetTime {
		c.resets, c.resetsAt = 0, now
	}
	// A client that begins calls only to give them up keeps the core busy at no cost to itself (CVE-2023-44487).
	if c.resets++; c.resets > mostResets {
		c.t.close(&connError{EnhanceYourCalm, "too many calls that are given up"})
	}
}
