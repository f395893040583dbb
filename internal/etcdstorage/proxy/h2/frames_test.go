// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// peer speaks HTTP/2 frame by frame, well or badly.
type peer struct {
	testing.TB
	net.Conn
	*http2.Framer
	in    *bufio.Reader // what the Framer reads
	block bytes.Buffer
	enc   *hpack.Encoder
}

func newPeer(tb testing.TB, conn net.Conn) *peer {
	tb.Helper()
	in := bufio.NewReader(conn)
	p := &peer{TB: tb, Conn: conn, Framer: http2.NewFramer(conn, in), in: in}
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.enc = hpack.NewEncoder(&p.block)
	must.Do(tb, conn.SetDeadline(time.Now().Add(patience)))
	tb.Cleanup(func() { _ = conn.Close() })
	return p
}

// client begins a connection to a server.
func clientPeer(tb testing.TB, address string) *peer {
	tb.Helper()
	conn := must.Get(net.Dial("tcp", address)).Or(tb)
	p := newPeer(tb, conn)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = p.WriteSettings()
	return p
}

func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return bytes.Clone(p.block.Bytes())
}

// request is the header block of a call.
func (p *peer) request(method string, more ...string) []byte {
	return p.encode(append([]string{":method", "POST", ":scheme", "http", ":path", method, "content-type", "application/grpc", "te", "trailers"}, more...)...)
}

func (p *peer) headers(id uint32, block []byte, end bool) {
	_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end})
}

// message is a gRPC message with its head.
func message(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// answer is what came for a stream.
type answer struct {
	data    string
	trailer map[string]string
	reset   http2.ErrCode
	wasSet  bool
	lost    bool // the connection ended first
	away    http2.ErrCode
}

// answerTo reads until a stream or the connection has ended.
func (p *peer) answerTo(id uint32) answer {
	out := answer{trailer: map[string]string{}}
	for {
		f, err := p.ReadFrame()
		if err != nil {
			out.lost = true
			return out
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			out.away = g.ErrCode
		}
		if f.Header().StreamID != id || id == 0 {
			continue
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			out.data += string(f.Data())
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				out.trailer[h.Name] = h.Value
			}
			if f.StreamEnded() {
				return out
			}
		case *http2.RSTStreamFrame:
			out.reset, out.wasSet = f.ErrCode, true
			return out
		}
	}
}

// TestBadConnections are peers that break HTTP/2: each is told so or simply cut off, and nobody else notices.
func TestBadConnections(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	for name, c := range map[string]struct {
		want http2.ErrCode
		do   func(p *peer)
	}{
		"DATA on stream 0":          {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteData(0, false, []byte("x")) }},
		"HEADERS on stream 0":       {http2.ErrCodeProtocol, func(p *peer) { p.headers(0, p.request("/x"), true) }},
		"an even stream":            {http2.ErrCodeProtocol, func(p *peer) { p.headers(2, p.request("/x"), true) }},
		"a header block of nothing": {http2.ErrCodeCompression, func(p *peer) { p.headers(1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true) }},
		"a CONTINUATION of nothing": {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteContinuation(1, true, p.request("/x")) }},
		"a frame inside a block": {http2.ErrCodeProtocol, func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.request("/x")})
			_ = p.WriteData(1, true, nil)
		}},
		"a block that does not end": {http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.request("/x")})
			for range 100 {
				_ = p.WriteContinuation(1, false, nil)
			}
		}},
		"a header list beyond the bound": {http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			var fields []string
			for range 40 { // the table makes them short
				fields = append(fields, "x", strings.Repeat("y", 3000))
			}
			p.headers(1, p.request("/x", fields...), true)
		}},
		"a large frame":        {http2.ErrCodeFrameSize, func(p *peer) { _ = p.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 20000)) }},
		"a PUSH_PROMISE":       {http2.ErrCodeProtocol, func(p *peer) { _ = p.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2}) }},
		"half SETTINGS":        {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FrameSettings, 0, 0, []byte{1}) }},
		"a window of 2^31":     {http2.ErrCodeFlowControl, func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }},
		"a frame size of 1":    {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) }},
		"half a PING":          {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FramePing, 0, 0, []byte{1}) }},
		"half a RST_STREAM":    {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FrameRSTStream, 0, 1, []byte{1}) }},
		"half a GOAWAY":        {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FrameGoAway, 0, 0, []byte{1}) }},
		"half a WINDOW_UPDATE": {http2.ErrCodeFrameSize, func(p *peer) { _ = p.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte{1}) }},
		"a WINDOW_UPDATE of 0": {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 0}) }},
		"a window beyond 2^31": {http2.ErrCodeFlowControl, func(p *peer) { _ = p.WriteWindowUpdate(0, 1<<31-1) }},
		"padding without end":  {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 1}) }},
		"half a priority":      {http2.ErrCodeProtocol, func(p *peer) { _ = p.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPriority, 1, []byte{1}) }},
		"more pings than answers": {http2.ErrCodeEnhanceYourCalm, func(p *peer) {
			var many bytes.Buffer
			f := http2.NewFramer(&many, nil)
			for range 200 {
				_ = f.WritePing(false, [8]byte{})
			}
			_, _ = p.Conn.Write(many.Bytes())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := clientPeer(t, g.Address)
			c.do(p)
			if got := p.answerTo(0); !got.lost || got.away != c.want {
				t.Errorf("the connection ended: %v, with %v; want %v", got.lost, got.away, c.want)
			}
		})
	}
	t.Run("neighbors", func(t *testing.T) {
		t.Parallel()
		conn := dial(t, g.Address)
		for range 50 {
			request, got := []byte("x"), []byte(nil)
			if err := conn.Invoke(t.Context(), "/test/echo", &request, &got); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNoHTTP2 are connections that do not even begin well.
func TestNoHTTP2(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	for _, begin := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "PRI * HTTP/2.0\r\n\r\nXX", "\x00",
		http2.ClientPreface + "\x00\x00\x00\x00\x00\x00\x00\x00\x01", // DATA before SETTINGS
	} {
		conn := must.Get(net.Dial("tcp", g.Address)).Or(t)
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, begin)
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%q is not cut off: %v", begin, err)
		}
		_ = conn.Close()
	}
}

// TestBadCalls are calls that HTTP/2 allows and gRPC does not; the connection goes on.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	const echo = "/test/echo"
	for name, c := range map[string]struct {
		code codes.Code
		text string // or the name of the reset
		do   func(p *peer)
	}{
		"well": {codes.OK, "", func(p *peer) {
			p.headers(1, p.request(echo), false)
			_ = p.WriteData(1, true, message("hello"))
		}},
		"byte by byte": {codes.OK, "", func(p *peer) {
			block := p.request(echo)
			_ = p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1], Priority: http2.PriorityParam{Weight: 7}, PadLength: 9})
			for i := 1; i < len(block); i += 5 {
				_ = p.WriteContinuation(1, i+5 >= len(block), block[i:min(i+5, len(block))])
			}
			for _, b := range message("hello") {
				_ = p.WriteDataPadded(1, false, []byte{b}, make([]byte, 3))
			}
			_ = p.WriteData(1, true, nil)
		}},
		"ended by trailers": {codes.OK, "", func(p *peer) {
			p.headers(1, p.request(echo), false)
			_ = p.WriteData(1, false, message("hello"))
			p.headers(1, p.encode("x", "y"), true)
		}},
		"no message":     {codes.Internal, "etcd-storage-proxy: the call ended before its request came", func(p *peer) { p.headers(1, p.request(echo), true) }},
		"half a message": {codes.Internal, "unexpected EOF", func(p *peer) { p.headers(1, p.request(echo), false); _ = p.WriteData(1, true, message("hello")[:7]) }},
		"two messages": {codes.Internal, "etcd-storage-proxy: a unary call with more than one message", func(p *peer) {
			p.headers(1, p.request(echo), false)
			_ = p.WriteData(1, true, append(message("hello"), message("again")...))
		}},
		"compressed": {codes.Internal, "grpc: compressed flag set with identity or empty encoding", func(p *peer) {
			p.headers(1, p.request(echo), false)
			_ = p.WriteData(1, true, []byte{1, 0, 0, 0, 1, 7})
		}},
		"a strange flag": {codes.Internal, "grpc: received unexpected payload format 7", func(p *peer) {
			p.headers(1, p.request(echo), false)
			_ = p.WriteData(1, true, []byte{7, 0, 0, 0, 1, 7})
		}},
		"an encoding": {codes.Unimplemented, `grpc: Decompressor is not installed for grpc-encoding "gzip"`, func(p *peer) {
			p.headers(1, p.request(echo, "grpc-encoding", "gzip"), false)
		}},
		"a bad timeout": {codes.Internal, `malformed grpc-timeout: "soon"`, func(p *peer) { p.headers(1, p.request(echo, "grpc-timeout", "soon"), false) }},
		"GET": {codes.Internal, `http2Server.operateHeaders parsed a :method field: "GET" which should be POST`, func(p *peer) {
			p.headers(1, p.encode(":method", "GET", ":scheme", "http", ":path", echo), true)
		}},
		"JSON": {codes.InvalidArgument, `invalid gRPC request content-type "application/json"`, func(p *peer) {
			p.headers(1, p.encode(":method", "POST", ":scheme", "http", ":path", echo, "content-type", "application/json"), true)
		}},
		"no path":       {0, "PROTOCOL_ERROR", func(p *peer) { p.headers(1, p.encode(":method", "POST"), true) }},
		"a late pseudo": {0, "PROTOCOL_ERROR", func(p *peer) { p.headers(1, p.encode(":method", "POST", "x", "y", ":path", echo), true) }},
		"an odd pseudo": {0, "PROTOCOL_ERROR", func(p *peer) { p.headers(1, p.encode(":method", "POST", ":path", echo, ":odd", "y"), true) }},
		"an upper case": {0, "PROTOCOL_ERROR", func(p *peer) { p.headers(1, p.request(echo, "Upper", "y"), true) }},
		"a connection":  {0, "PROTOCOL_ERROR", func(p *peer) { p.headers(1, p.request(echo, "connection", "close"), true) }},
		"headers again": {0, "PROTOCOL_ERROR", func(p *peer) { p.headers(1, p.request(echo), false); p.headers(1, p.request(echo), false) }},
		"data after all": {0, "STREAM_CLOSED", func(p *peer) {
			p.headers(1, p.request("/test/hang"), false)
			_ = p.WriteData(1, true, message(""))
			_ = p.WriteData(1, true, nil)
		}},
		"a window of 0": {0, "FLOW_CONTROL_ERROR", func(p *peer) {
			p.headers(1, p.request(echo), false)
			_ = p.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4))
		}},
		"a larger window": {0, "FLOW_CONTROL_ERROR", func(p *peer) { p.headers(1, p.request(echo), false); _ = p.WriteWindowUpdate(1, 1<<31-1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := clientPeer(t, g.Address)
			c.do(p)
			got := p.answerTo(1)
			switch {
			case got.lost:
				t.Fatalf("the connection was lost, with %v", got.away)
			case got.wasSet:
				if got.reset.String() != c.text {
					t.Errorf("reset with %v, want %s", got.reset, c.text)
				}
			case got.trailer["grpc-status"] != fmtCode(c.code) || decode(got.trailer["grpc-message"]) != c.text:
				t.Errorf("%v, want %v %q", got.trailer, c.code, c.text)
			case c.code == codes.OK && got.data != string(message("hello")):
				t.Errorf("%q came back", got.data)
			}
			p.headers(3, p.request(echo), false)
			_ = p.WriteData(3, true, message("next"))
			if got := p.answerTo(3); got.data != string(message("next")) {
				t.Errorf("the next call on the connection: %+v", got)
			}
		})
	}
}

func fmtCode(c codes.Code) string { return strconv.Itoa(int(c)) }

func decode(text string) string {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' {
			var b byte
			for _, c := range []byte(text[i+1 : i+3]) {
				b = b<<4 | byte(strings.IndexByte("0123456789ABCDEF", c))
			}
			text = text[:i] + string(b) + text[i+3:]
		}
	}
	return text
}

// TestRapidReset shows that a peer that begins calls only to give them up is cut off (CVE-2023-44487), and what it costs the core is bounded.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	go func() {
		for id := uint32(1); id < 40000; id += 2 {
			p.headers(id, p.request("/test/hang"), false)
			if p.WriteData(id, true, message("")) != nil || p.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	if got := p.answerTo(0); !got.lost {
		t.Error("the connection goes on")
	}
	if n := g.began.Load(); n > 6000 {
		t.Errorf("%d calls were begun", n)
	}
}

// TestUnreadAnswers shows that a peer that asks for much and reads nothing is cut off, and that others do not notice.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		body := message(string(make([]byte, 1<<20)))
		for id := uint32(1); ; id += 2 {
			p.headers(id, p.request("/test/echo"), false)
			for rest := body; len(rest) > 0; {
				n := min(len(rest), 16384)
				if p.WriteData(id, n == len(rest), rest[:n]) != nil {
					return
				}
				rest = rest[n:]
			}
		}
	}()
	conn := dial(t, g.Address)
	request := []byte("x")
	for {
		var got []byte
		must.Do(t, conn.Invoke(t.Context(), "/test/echo", &request, &got))
		select {
		case <-cut:
			return
		default:
		}
	}
}

// TestBigAnswerAndNeighbors shows that one large answer harms no call alongside it on the same connection.
func TestBigAnswerAndNeighbors(t *testing.T) {
	t.Parallel()
	// A client that reads slowly because the machine is busy must not count as one that reads nothing.
	g := newGatewayWith(t, 1, func(s *h2.Server) { s.StallTick = time.Minute }, newCore(t).Address)
	conn := dial(t, g.Address)
	big := make(chan error, 1)
	go func() {
		var request, got []byte
		err := conn.Invoke(t.Context(), "/test/big", &request, &got)
		if err == nil && len(got) != bigAnswer {
			err = io.ErrUnexpectedEOF
		}
		big <- err
	}()
	for {
		request, got := []byte("x"), []byte(nil)
		must.Do(t, conn.Invoke(t.Context(), "/test/echo", &request, &got))
		select {
		case err := <-big:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// TestHandshakesGiveWay shows that connections that never begin keep nobody out.
func TestHandshakesGiveWay(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	for range 400 {
		c := must.Get(net.Dial("tcp", g.Address)).Or(t)
		t.Cleanup(func() { _ = c.Close() })
	}
	request, got := []byte("x"), []byte(nil)
	if err := dial(t, g.Address).Invoke(t.Context(), "/test/echo", &request, &got); err != nil {
		t.Error(err)
	}
}

// TestWindows shows that no more is sent than the stream's and the connection's windows allow, and the rest when they open.
func TestWindows(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	for name, c := range map[string]struct{ stream, first int }{
		"the connection's": {1 << 20, 65535},
		"the stream's":     {1000, 65535},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := clientPeer(t, g.Address)
			_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(c.stream)})
			for id := uint32(1); id <= 3; id += 2 {
				p.headers(id, p.request("/test/echo"), false)
				body := message(strings.Repeat("x", 100000))
				for ; len(body) > 16384; body = body[16384:] {
					_ = p.WriteData(id, false, body[:16384])
				}
				_ = p.WriteData(id, true, body)
			}
			got := map[uint32]int{}
			expect := func(what string, enough func() bool) {
				for !enough() {
					f, err := p.ReadFrame()
					if err != nil {
						t.Fatalf("%s: %v, with %v", what, err, got)
					}
					if d, ok := f.(*http2.DataFrame); ok {
						got[d.StreamID] += len(d.Data())
					}
				}
			}
			want := min(2*c.stream, c.first)
			expect("the first window", func() bool { return got[1]+got[3] >= want })
			p.noData(100 * time.Millisecond)
			if got[1]+got[3] != want {
				t.Errorf("%v bytes came, want %d", got, want)
			}
			_ = p.WriteWindowUpdate(1, 1<<20)
			_ = p.WriteWindowUpdate(3, 1<<20)
			_ = p.WriteWindowUpdate(0, 1<<20)
			expect("the rest", func() bool { return got[1] == 100005 && got[3] == 100005 })
		})
	}
}

// noData expects that no DATA comes for a while. Only the wait for a frame ends then: one of which a part was read would be lost.
func (p *peer) noData(d time.Duration) {
	p.Helper()
	for end := time.Now().Add(d); ; {
		_ = p.Conn.SetReadDeadline(end)
		_, err := p.in.Peek(1)
		_ = p.Conn.SetReadDeadline(time.Now().Add(patience))
		if err != nil {
			return
		}
		f := must.Get(p.ReadFrame()).Or(p)
		if _, ok := f.(*http2.DataFrame); ok {
			p.Error("DATA beyond the window")
			return
		}
	}
}

// TestTooManyStreams shows that a connection has a bounded number of calls.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	for id := uint32(1); id < 2*5000; id += 2 {
		p.headers(id, p.request("/test/echo"), false)
	}
	if got := p.answerTo(2*5000 - 1); !got.wasSet || got.reset != http2.ErrCodeRefusedStream {
		t.Errorf("the last call: %+v", got)
	}
}

// TestDrainHandshake shows that what a client began before it heard of the end is still answered, and what it begins afterwards is refused.
func TestDrainHandshake(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	p := clientPeer(t, g.Address)
	p.headers(1, p.request("/test/stream"), false)
	_ = p.WriteData(1, false, message("hello"))
	for data := ""; data == ""; {
		f := must.Get(p.ReadFrame()).Or(t)
		if d, ok := f.(*http2.DataFrame); ok {
			data = string(d.Data())
		}
	}
	drained := make(chan struct{})
	go func() {
		g.Server.Drain(t.Context())
		close(drained)
	}()
	var ping *http2.PingFrame
	for away := false; !away || ping == nil; {
		f := must.Get(p.ReadFrame()).Or(t)
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			away = f.LastStreamID == 1<<31-1
		case *http2.PingFrame:
			if !f.IsAck() {
				ping = f
			}
		}
	}
	p.headers(3, p.request("/test/echo"), false)
	_ = p.WriteData(3, true, message("late"))
	if got := p.answerTo(3); got.data != string(message("late")) {
		t.Errorf("before the client heard: %+v", got)
	}
	_ = p.WritePing(true, ping.Data)
	p.headers(5, p.request("/test/echo"), false)
	if got := p.answerTo(5); got.reset != http2.ErrCodeRefusedStream {
		t.Errorf("after the client heard: %+v", got)
	}
	_ = p.WriteData(1, true, nil)
	if got := p.answerTo(1); got.trailer["grpc-status"] != fmtCode(codes.Aborted) {
		t.Errorf("the stream under way: %+v", got)
	}
	if got := p.answerTo(0); !got.lost {
		t.Error("the connection stays")
	}
	<-drained
}
