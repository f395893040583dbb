// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Frames makes connections that break the rules of HTTP/2 and of gRPC, those with the numbers From to From + Connections - 1.
type Frames struct {
	// Dial opens a connection to the endpoint; with TLS, after the handshake.
	Dial func(ctx context.Context) (net.Conn, error)
	// Seed and the connection's number say what is sent on it.
	Seed              uint64
	From, Connections uint64
	Workers           int
	// Served is asked now and then whether the endpoint still serves others; "" means yes.
	Served func(ctx context.Context) string
}

// RunFrames makes the connections and returns what was violated: an answer that has something of others, or an endpoint that serves nobody
// any more. Whether the process lives is the caller's to see.
func (w *World) RunFrames(ctx context.Context, f Frames) []Violation {
	var mu sync.Mutex
	var found []Violation
	violated := func(v Violation) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, v)
	}
	var wg sync.WaitGroup
	for n := range f.Workers {
		wg.Go(func() {
			for number := f.From + uint64(n); number < f.From+f.Connections && ctx.Err() == nil; number += uint64(f.Workers) {
				if what := w.connect(ctx, f, number); what != "" {
					violated(Violation{What: what, Number: number})
					return
				}
				if number%64 != 0 {
					continue
				}
				if what := f.Served(ctx); what != "" {
					violated(Violation{What: "others are not served any more: " + what, Number: number})
					return
				}
			}
		})
	}
	wg.Wait()
	return found
}

// connect makes one connection and returns what is wrong with its answers.
func (w *World) connect(ctx context.Context, f Frames, number uint64) string {
	conn, err := f.Dial(ctx)
	if err != nil {
		return "no connection: " + err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patient))
	answers := make(chan []byte, 1)
	go func() {
		out, _ := io.ReadAll(io.LimitReader(conn, enough))
		answers <- out
	}()
	s := newScript(NewGenerator(&w.words, f.Seed, number), conn)
	s.play()
	if c, ok := conn.(interface{ CloseWrite() error }); ok && s.once(2) {
		_ = c.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	} else {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond * time.Duration(s.IntN(20))))
	}
	if what := w.leaked(<-answers); what != "" {
		return "a connection has " + what
	}
	return ""
}

// A script is what is sent on one connection.
type script struct {
	Generator
	conn   net.Conn
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	header *hpack.Encoder
	stream uint32
}

func newScript(g Generator, conn net.Conn) *script {
	s := &script{Generator: g, conn: conn, stream: 1}
	s.framer = http2.NewFramer(&s.out, nil)
	s.framer.AllowIllegalWrites = true
	s.header = hpack.NewEncoder(&s.block)
	return s
}

// Script returns what is sent on one connection that breaks the rules of HTTP/2 and of gRPC.
func (g Generator) Script() []byte {
	s := newScript(g, nil)
	s.play()
	return s.out.Bytes()
}

// flush sends what there is, if there is a connection; an error means that the endpoint has had enough, which is its right.
func (s *script) flush() bool {
	if s.conn == nil {
		return true
	}
	_, err := s.conn.Write(s.out.Bytes())
	s.out.Reset()
	return err == nil
}

func (s *script) play() {
	switch s.IntN(20) {
	case 0:
		s.out.Write(s.bytes(200))
		s.flush()
		return
	case 1:
		s.out.WriteString(Either(s.Generator, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", http2.ClientPreface[:s.IntN(24)], "\x16\x03\x01\x00\x05hello"))
		s.flush()
		return
	}
	s.out.WriteString(http2.ClientPreface)
	if !s.once(20) {
		_ = s.framer.WriteSettings(s.settings()...)
	}
	for range 1 + s.IntN(30) {
		s.step()
		if s.once(3) && !s.flush() {
			return
		}
	}
	if s.once(6) { // in the middle of a frame
		s.out.Truncate(s.IntN(s.out.Len() + 1))
	}
	s.flush()
}

func (s *script) settings() []http2.Setting {
	if s.once(2) {
		return nil
	}
	return []http2.Setting{{
		ID:  http2.SettingID(Either(s.Generator, uint16(1), 2, 3, 4, 5, 6, 8, 99)),
		Val: Either(s.Generator, uint32(0), 1, 100, 16384, 65535, 1<<24-1, 1<<24, math.MaxInt32, math.MaxUint32),
	}}
}

// id is a stream: mostly one that is open or the next, else one that cannot be.
func (s *script) id() uint32 {
	if s.once(10) {
		return Either(s.Generator, uint32(0), 2, 1, s.stream+2, s.stream+1000, math.MaxInt32)
	}
	return s.stream
}

// step adds one frame, or a few that belong together. Errors are those of the buffer, which has none.
func (s *script) step() {
	switch s.IntN(22) {
	case 0, 1, 2, 3, 4, 5:
		s.call(true)
	case 6, 7, 8:
		s.call(false)
	case 9:
		_ = s.framer.WriteData(s.id(), s.once(2), s.bytes(100))
	case 10:
		_ = s.framer.WriteRSTStream(s.id(), http2.ErrCode(s.IntN(20)))
	case 11:
		_ = s.framer.WritePing(s.once(2), [8]byte(append(s.bytes(0), make([]byte, 8)...)))
	case 12:
		_ = s.framer.WriteWindowUpdate(Either(s.Generator, uint32(0), s.id()), Either(s.Generator, uint32(0), 1, 1000, math.MaxInt32))
	case 13:
		_ = s.framer.WriteSettings(s.settings()...)
	case 14:
		_ = s.framer.WritePriority(s.id(), http2.PriorityParam{StreamDep: s.id(), Exclusive: s.once(2), Weight: 7})
	case 15:
		_ = s.framer.WritePushPromise(http2.PushPromiseParam{StreamID: s.id(), PromiseID: 2, BlockFragment: s.bytes(10), EndHeaders: true})
	case 16:
		_ = s.framer.WriteContinuation(s.id(), s.once(2), s.bytes(30))
	case 17:
		_ = s.framer.WriteGoAway(s.id(), http2.ErrCode(s.IntN(20)), s.bytes(10))
	case 18:
		_ = s.framer.WriteRawFrame(http2.FrameType(s.IntN(256)), http2.Flags(s.IntN(256)), s.id(), s.bytes(60))
	case 19:
		_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next(), BlockFragment: s.bytes(60), EndHeaders: s.once(2), EndStream: s.once(2), PadLength: uint8(s.IntN(256))})
	case 20:
		s.flood()
	default: // a frame that says it is longer, or shorter, than what comes
		length := Either(s.Generator, uint32(0), 1, 16384, 16385, 1<<24-1)
		s.out.Write([]byte{byte(length >> 16), byte(length >> 8), byte(length), byte(s.IntN(12)), byte(s.IntN(256))})
		s.out.Write(binary.BigEndian.AppendUint32(nil, s.id()))
		s.out.Write(s.bytes(40))
	}
}

func (s *script) next() uint32 {
	id := s.stream
	s.stream += 2
	return id
}

// flood sends the kinds of frames that cost the endpoint more than the sender, many of them.
func (s *script) flood() {
	for range 20 + s.IntN(300) {
		switch id := s.next(); s.IntN(3) {
		case 0: // opened and reset at once
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.fields(pb.KV_Range_FullMethodName), EndHeaders: true})
			_ = s.framer.WriteRSTStream(id, http2.ErrCodeCancel)
		case 1:
			_ = s.framer.WritePing(false, [8]byte{})
		default:
			_ = s.framer.WriteSettings()
		}
	}
	if s.once(4) { // headers that never end
		_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next(), BlockFragment: s.fields(pb.KV_Range_FullMethodName)})
		for range 50 {
			_ = s.framer.WriteContinuation(s.stream-2, false, bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 1000))
		}
	}
}

// fields is a header block.
func (s *script) fields(method string, more ...hpack.HeaderField) []byte {
	s.block.Reset()
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "x"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		_ = s.header.WriteField(field)
	}
	return bytes.Clone(s.block.Bytes())
}

// odd returns header fields that are not what they should be.
func (s *script) odd() []hpack.HeaderField {
	return []hpack.HeaderField{Either(s.Generator,
		hpack.HeaderField{Name: ":path", Value: pb.KV_Put_FullMethodName},
		hpack.HeaderField{Name: ":status", Value: "200"},
		hpack.HeaderField{Name: "grpc-timeout", Value: Either(s.Generator, "0n", "1n", "99999999H", "-1S", "1", "", "123456789S", "1x")},
		hpack.HeaderField{Name: "grpc-encoding", Value: Either(s.Generator, "gzip", "snappy", "identity", "")},
		hpack.HeaderField{Name: "content-length", Value: Either(s.Generator, "0", "5", "-1", "99999999999999999999")},
		hpack.HeaderField{Name: "Upper", Value: "x"},
		hpack.HeaderField{Name: "connection", Value: "close"},
		hpack.HeaderField{Name: "transfer-encoding", Value: "chunked"},
		hpack.HeaderField{Name: "hasleader", Value: Either(s.Generator, "true", "maybe")},
		hpack.HeaderField{Name: "token", Value: "root.1"},
		hpack.HeaderField{Name: "authorization", Value: "x"},
		hpack.HeaderField{Name: "x-bin", Value: "\x00\xff\n"},
		hpack.HeaderField{Name: "long", Value: string(bytes.Repeat([]byte{'x'}, 1+s.IntN(100_000)))},
		hpack.HeaderField{Name: "content-type", Value: Either(s.Generator, "application/grpc+json", "text/html", "application/grpc-web")},
	)}
}

// call is a gRPC call: a right one, or one with wrong headers, framing or order.
func (s *script) call(right bool) {
	request := s.Request()
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request.Body))), request.Body...)
	id := s.next()
	var more []hpack.HeaderField
	if !right {
		more = s.odd()
		switch s.IntN(8) {
		case 0:
			body[0] = byte(s.IntN(256))
		case 1:
			binary.BigEndian.PutUint32(body[1:], Either(s.Generator, uint32(0), 1, uint32(len(request.Body)+1), 1<<20, 1<<31-1, 1<<32-1))
		case 2:
			body = append(body, body...)
		case 3:
			body = nil
		case 4:
			body = body[:s.IntN(len(body)+1)]
		case 5:
			body = s.bytes(20)
		}
	}
	block := s.fields(request.Method, more...)
	end := len(body) == 0
	first := block[:min(len(block), 16_000)]
	_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(first) == len(block), EndStream: end})
	for rest := block[len(first):]; len(rest) > 0; {
		n := min(len(rest), 16_000)
		_ = s.framer.WriteContinuation(id, n == len(rest), rest[:n])
		rest = rest[n:]
	}
	for !end {
		n := min(len(body), 1+s.IntN(16_384))
		if s.once(3) {
			n = min(len(body), 1)
		}
		end = n == len(body)
		_ = s.framer.WriteData(id, end && !s.once(8), body[:n])
		body = body[n:]
	}
	if !right && s.once(4) { // trailers, or data after the end
		if s.once(2) {
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.fields(request.Method), EndHeaders: true, EndStream: s.once(2)})
		} else {
			_ = s.framer.WriteData(id, true, []byte("late"))
		}
	}
}

// Served returns a check for Frames: a read on a connection of its own must be answered.
func Served(address func(ctx context.Context) (net.Conn, error)) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		conn, err := address(ctx)
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patient))
		if err := ask(conn); err != nil {
			return err.Error()
		}
		return ""
	}
}

// ask makes one honest read.
func ask(conn net.Conn) error {
	s := newScript(NewGenerator(&Words{Own: OwnKeys(), Hostile: oddKeys(), Leases: []int64{1}}, 0, 0), conn)
	s.out.WriteString(http2.ClientPreface)
	_ = s.framer.WriteSettings()
	body := request(pb.KV_Range_FullMethodName, unary, &pb.RangeRequest{Key: []byte("a")}).Body
	_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.fields(pb.KV_Range_FullMethodName), EndHeaders: true})
	_ = s.framer.WriteData(1, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...))
	if !s.flush() {
		return errors.New("the connection was closed")
	}
	reader := http2.NewFramer(io.Discard, conn)
	for {
		frame, err := reader.ReadFrame()
		if err != nil {
			return fmt.Errorf("reading the response: %w", err)
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			return nil
		case *http2.GoAwayFrame:
			return fmt.Errorf("refused with %v", f.ErrCode)
		case *http2.RSTStreamFrame:
			return fmt.Errorf("reset with %v", f.ErrCode)
		}
	}
}
