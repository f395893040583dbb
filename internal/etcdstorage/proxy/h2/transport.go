// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"
)

// Bounds of one connection.
const (
	mostOut          = 128 << 10 // frames that wait for being written; beyond it data stays in the streams' queues
	mostControl      = 4 << 20   // …and beyond it the peer asks for more than it reads
	mostHeaderBlock  = 64 << 10  // one header block, compressed and not
	mostContinuation = 32        // frames of one header block
	mostSettings     = 32        // in one frame
	mostPings        = 100       // that wait for their answer
	pingDelay        = 10 * time.Millisecond
	firstReadBuffer  = 4 << 10
)

var errClosed = errors.New("the connection is closed")

// role is what a transport's two sides do differently. All are called by the reader.
type role interface {
	onHeaders(id uint32, fields []hpack.HeaderField, end bool, b *Batch) error
	onData(s *stream, payload []byte, end bool, b *Batch) error
	onReset(s *stream, code ErrorCode, b *Batch)
	onGoAway(last uint32, code ErrorCode, b *Batch)
	onSettings()
	onPong(data [pingLen]byte)
	lastSeen() uint32 // the last of the peer's streams that was looked at
}

// transport is one HTTP/2 connection, of either side.
type transport struct {
	conn       net.Conn // TLS over sock, or sock
	sock       *sock
	role       role
	readBuffer int // the largest
	ownWindow  int64
	ownStream  int64 // initial window of the streams that we receive on

	mu       sync.Mutex
	out      []byte // frames to be written
	spare    []byte // the other buffer
	flushing bool
	ending   bool  // it is closed as soon as there is nothing left to do
	err      error // why the connection ended; nil while it lives
	enc      *hpack.Encoder
	block    blockBuffer
	window   int64 // what we may send on the connection
	peer     peerSettings
	streams  map[uint32]*stream
	waiting  []*stream // with data that a window or mostOut holds back, first come first served
	queued   int       // bytes in all queues
	sent     uint64    // bytes that have left the queues
	begun    uint64    // streams, ever
	pings    [][pingLen]byte
	pingWait *time.Timer

	// The reader's own.
	dec           *hpack.Decoder
	fields        []hpack.HeaderField
	fieldBytes    int
	tooLarge      bool
	continued     uint32 // stream whose header block is not complete; 0: none
	continuedEnd  bool
	continuedPart []byte
	continuedNum  int
	received      int64 // of ownWindow, not given back yet
	settled       bool  // the peer's SETTINGS came
}

type peerSettings struct {
	window  int64
	frame   int
	streams uint32
}

// blockBuffer is where the HPACK encoder writes.
type blockBuffer struct{ b []byte }

func (w *blockBuffer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// newTransport wraps a connection whose handshake is done; s lies below it.
func newTransport(conn net.Conn, s *sock, r role, readBuffer int, ownWindow, ownStream int64) *transport {
	t := &transport{
		conn: conn, sock: s, role: r, readBuffer: readBuffer, ownWindow: ownWindow, ownStream: ownStream, window: defaultWindow,
		peer: peerSettings{window: defaultWindow, frame: defaultMaxFrame, streams: 1<<32 - 1}, streams: map[uint32]*stream{},
	}
	t.enc = hpack.NewEncoder(&t.block)
	t.dec = hpack.NewDecoder(4096, t.onField)
	t.dec.SetMaxStringLength(mostHeaderBlock)
	s.tell(t.flush)
	return t
}

// Batch is what one goroutine has put into connections' buffers and not flushed yet.
type Batch struct{ dirty []*transport }

// add notes that a connection must be flushed; without a batch that happens at once.
func (b *Batch) add(t *transport) {
	if b == nil {
		t.flush()
		return
	}
	if !slices.Contains(b.dirty, t) {
		b.dirty = append(b.dirty, t)
	}
}

// Flush writes what was put off.
func (b *Batch) Flush() {
	for i, t := range b.dirty {
		t.flush()
		b.dirty[i] = nil
	}
	b.dirty = b.dirty[:0]
}

// flush writes out. When another goroutine does already, that one takes ours along.
func (t *transport) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flushing {
		return
	}
	t.flushing = true
	for len(t.out) > 0 && !t.sock.blocked() {
		buf := t.out
		t.out = t.spare[:0]
		t.mu.Unlock()
		_, err := t.conn.Write(buf) // it does not block: see sock
		t.mu.Lock()
		t.spare = buf[:0]
		if err != nil {
			t.failLocked(err)
			t.out = nil
			break
		}
		t.pumpAll()
	}
	t.flushing = false
	if len(t.out) == 0 {
		t.out, t.spare = shrink(t.out), shrink(t.spare)
	}
	if len(t.out) > mostControl {
		t.failLocked(errSlowPeer)
	}
	t.endIfIdle()
}

// endWhenIdle closes the connection once it has no streams and everything was written.
func (t *transport) endWhenIdle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending = true
	t.endIfIdle()
}

// endIfIdle is called with the lock wherever the last thing may have been done. What a flush is writing is not in out any more.
func (t *transport) endIfIdle() {
	if t.ending && len(t.streams) == 0 && len(t.out) == 0 && !t.flushing && !t.sock.blocked() {
		t.failLocked(errClosed)
	}
}

// Of frame buffers: what a connection keeps, and what one that has much to send gets while it has.
const (
	keptOut  = 16 << 10
	largeOut = 256 << 10
)

// shrink gives a large frame buffer back that is empty.
func shrink(b []byte) []byte {
	if cap(b) <= keptOut {
		return b
	}
	(&Buf{B: b}).Release()
	return nil
}

// failLocked ends the connection: the reader notices and tells the streams.
func (t *transport) failLocked(err error) {
	if t.err == nil {
		t.err = err
		_ = t.sock.Conn.Close()
	}
}

// close ends the connection from outside.
func (t *transport) close(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failLocked(err)
}

// read handles frames until the connection ends, and then ends all streams.
func (t *transport) read() error {
	var b Batch
	err := t.readSafely(&b)
	var bad *connError
	t.mu.Lock()
	if errors.As(err, &bad) && t.err == nil {
		// Of a stream that is not below lastSeen the peer thinks that it was never looked at, and begins it again.
		t.out = appendGoAway(t.out, t.role.lastSeen(), bad.code, bad.reason)
		if len(t.out) < mostOut && !t.flushing {
			_, _ = t.conn.Write(t.out) // the last word; nobody waits for it
			t.out = nil
		}
	}
	t.failLocked(err)
	if t.pingWait != nil {
		t.pingWait.Stop()
	}
	left := make([]*stream, 0, len(t.streams))
	for _, s := range t.streams {
		left = append(left, s)
	}
	t.mu.Unlock()
	for _, s := range left {
		if t.end(s) {
			t.role.onReset(s, connectionLost, &b)
		}
	}
	b.Flush()
	return err
}

// readSafely makes a panic of the reader, which would be a mistake of this package, the end of its connection and of nothing else.
func (t *transport) readSafely(b *Batch) (err error) {
	defer func() {
		reason := recover()
		if reason == nil {
			return
		}
		_ = t.sock.Conn.Close()
		err = &PanicError{Reason: fmt.Sprint(reason), Stack: string(debug.Stack())}
		// The reader may have held the lock. Anybody else holds it for an instant only.
		deadline := time.NewTimer(time.Second)
		defer deadline.Stop()
		for !t.mu.TryLock() {
			select {
			case <-deadline.C:
				t.mu.Unlock()
			default:
				runtime.Gosched()
			}
		}
		t.mu.Unlock()
	}()
	return t.readFrames(b)
}

// PanicError is a mistake of this package that ended one connection.
type PanicError struct{ Reason, Stack string }

// Error implements error.
func (e *PanicError) Error() string { return "panic: " + e.Reason + "\n" + e.Stack }

// connectionLost is onReset's code when there was no RST_STREAM.
const connectionLost ErrorCode = 1<<32 - 1

func (t *transport) readFrames(b *Batch) error {
	buf := make([]byte, firstReadBuffer)
	have := 0
	for {
		n, err := t.conn.Read(buf[have:])
		have += n
		if n > 0 {
			rest := buf[:have]
			for {
				f, more, ok, ferr := parseFrame(rest, defaultMaxFrame)
				if ferr != nil {
					return ferr
				}
				if !ok {
					break
				}
				rest = more
				if err := t.handle(&f, b); err != nil {
					return err
				}
			}
			full := have == len(buf)
			if have = len(rest); full && len(buf) < t.readBuffer {
				larger := make([]byte, min(2*len(buf), t.readBuffer))
				copy(larger, rest)
				buf = larger
			} else {
				copy(buf, rest)
			}
			t.giveBack(b)
			b.Flush()
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrNoProgress
		}
	}
}

// giveBack returns the connection's window once a quarter of it is used. The streams' own windows bound what a peer can make us hold.
func (t *transport) giveBack(b *Batch) {
	if t.received < t.ownWindow/4 {
		return
	}
	t.mu.Lock()
	t.out = appendWindowUpdate(t.out, 0, uint32(t.received))
	t.mu.Unlock()
	t.received = 0
	b.add(t)
}

func (t *transport) handle(f *frame, b *Batch) error {
	if t.continued != 0 && (f.kind != frameContinuation || f.stream != t.continued) {
		return protocolError("another frame inside a header block")
	}
	if !t.settled && f.kind != frameSettings {
		return protocolError("the first frame is not SETTINGS")
	}
	switch f.kind {
	case frameData:
		return t.handleData(f, b)
	case frameHeaders, frameContinuation:
		return t.handleHeaders(f, b)
	case frameReset:
		return t.handleReset(f, b)
	case frameSettings:
		return t.handleSettings(f, b)
	case framePing:
		return t.handlePing(f)
	case frameWindowUpdate:
		return t.handleWindow(f, b)
	case frameGoAway:
		return t.handleGoAway(f, b)
	case framePushPromise:
		return protocolError("a PUSH_PROMISE")
	}
	return nil // PRIORITY and what we do not know
}

func (t *transport) handleGoAway(f *frame, b *Batch) error {
	if f.stream != 0 || len(f.payload) < 8 {
		return protocolError("a GOAWAY that is none")
	}
	t.role.onGoAway(binary.BigEndian.Uint32(f.payload)&largestStreamID, ErrorCode(binary.BigEndian.Uint32(f.payload[4:])), b)
	return nil
}

func (t *transport) handleData(f *frame, b *Batch) error {
	if f.stream == 0 {
		return protocolError("DATA on stream 0")
	}
	payload, err := f.unpad()
	if err != nil {
		return err
	}
	t.received += int64(len(f.payload))
	if t.received > t.ownWindow {
		return &connError{FlowControlError, "more DATA than the connection's window"}
	}
	t.mu.Lock()
	s := t.streams[f.stream]
	overrun := false
	if s != nil {
		s.rwindow -= int64(len(f.payload))
		overrun = s.rwindow < 0
	}
	t.mu.Unlock()
	switch {
	case s == nil:
		return nil // it has ended on our side, and the peer did not know yet
	case overrun:
		t.abort(s, FlowControlError, b)
		return nil
	case s.remoteEnded.Load():
		t.abort(s, StreamClosed, b)
		return nil
	}
	end := f.has(flagEndStream)
	if end {
		s.remoteEnded.Store(true)
	}
	if padding := len(f.payload) - len(payload); padding > 0 {
		t.inflow(s, int64(padding), b)
	}
	return t.role.onData(s, payload, end, b)
}

// abort ends a stream with RST_STREAM and tells its owner.
func (t *transport) abort(s *stream, code ErrorCode, b *Batch) {
	if t.reset(s, code, b) {
		t.role.onReset(s, code, b)
	}
}

func (t *transport) handleReset(f *frame, b *Batch) error {
	if f.stream == 0 || len(f.payload) != 4 {
		return protocolError("a RST_STREAM that is none")
	}
	if s := t.lookup(f.stream); s != nil && t.end(s) {
		t.role.onReset(s, ErrorCode(binary.BigEndian.Uint32(f.payload)), b)
	}
	return nil
}

// handlePing answers pings, but not at once: grpc-go pings whenever it receives data and no ping is under way, to estimate the bandwidth, and an
// answer per request costs both sides a system call each. What it then measures is a longer round trip, which makes its windows larger.
func (t *transport) handlePing(f *frame) error {
	if f.stream != 0 || len(f.payload) != pingLen {
		return protocolError("a PING that is none")
	}
	if f.has(flagAck) {
		t.role.onPong([pingLen]byte(f.payload))
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pings) >= mostPings {
		return &connError{EnhanceYourCalm, "too many pings"}
	}
	t.pings = append(t.pings, [pingLen]byte(f.payload))
	if len(t.pings) > 1 {
		return nil
	}
	if t.pingWait == nil {
		t.pingWait = time.AfterFunc(pingDelay, t.answerPings)
	} else {
		t.pingWait.Reset(pingDelay)
	}
	return nil
}

func (t *transport) answerPings() {
	t.mu.Lock()
	for _, p := range t.pings {
		t.out = appendPing(t.out, flagAck, p)
	}
	t.pings = t.pings[:0]
	t.mu.Unlock()
	t.flush()
}

func (t *transport) handleSettings(f *frame, b *Batch) error {
	switch {
	case f.stream != 0 || len(f.payload)%settingLen != 0:
		return protocolError("SETTINGS that are none")
	case f.has(flagAck):
		return nil
	case len(f.payload) > mostSettings*settingLen:
		return &connError{EnhanceYourCalm, "too many SETTINGS"}
	}
	t.mu.Lock()
	for p := f.payload; len(p) > 0; p = p[settingLen:] {
		if err := t.set(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			t.mu.Unlock()
			return err
		}
	}
	t.out = appendFrameHeader(t.out, 0, frameSettings, flagAck, 0)
	t.pumpAll()
	tooMuch := len(t.out) > mostControl
	t.mu.Unlock()
	if tooMuch {
		return &connError{EnhanceYourCalm, "too many SETTINGS"}
	}
	b.add(t)
	if !t.settled {
		t.settled = true
		t.role.onSettings()
	}
	return nil
}

// set takes over one of the peer's settings.
func (t *transport) set(id uint16, value uint32) error {
	switch id {
	case settingHeaderTableSize:
		t.enc.SetMaxDynamicTableSize(min(value, 4096))
	case settingMaxStreams:
		t.peer.streams = value
	case settingInitialWindow:
		if value > largestWindow {
			return &connError{FlowControlError, "an initial window beyond 2^31-1"}
		}
		for _, s := range t.streams {
			s.window += int64(value) - t.peer.window
			t.wait(s)
		}
		t.peer.window = int64(value)
	case settingMaxFrameSize:
		if value < defaultMaxFrame || value > largestMaxFrame {
			return protocolError("a frame size that is not allowed")
		}
		t.peer.frame = int(value)
	}
	return nil
}

func (t *transport) handleWindow(f *frame, b *Batch) error {
	if len(f.payload) != 4 {
		return &connError{FrameSizeError, "a WINDOW_UPDATE that is none"}
	}
	more := int64(binary.BigEndian.Uint32(f.payload) & largestWindow)
	if more == 0 && f.stream == 0 {
		return protocolError("a WINDOW_UPDATE of 0")
	}
	t.mu.Lock()
	if f.stream == 0 {
		t.window += more
		tooMuch := t.window > largestWindow
		t.pumpAll()
		t.mu.Unlock()
		if tooMuch {
			return &connError{FlowControlError, "a window beyond 2^31-1"}
		}
		b.add(t)
		return nil
	}
	s := t.streams[f.stream]
	if s == nil {
		t.mu.Unlock()
		return nil
	}
	s.window += more
	bad := more == 0 || s.window > largestWindow
	t.pump(s)
	t.mu.Unlock()
	if bad {
		t.abort(s, FlowControlError, b)
	}
	b.add(t)
	return nil
}
