// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// patient is how long one answer may take; nothing but a hang takes so long.
const patient = 30 * time.Second

// an answer is everything that came back for a request, as far as it can carry something.
type answer struct {
	code  codes.Code
	state *status.Status
	bytes []byte
	// message is how much of bytes is the message or messages.
	message int
}

func (a answer) body() []byte { return a.bytes[:a.message] }

// call sends one message and reads all that comes back, unless the method has a stream of its own.
func call(ctx context.Context, conn *grpc.ClientConn, r Request, patience time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.kind != unary {
		return callStream(ctx, conn, r)
	}
	var header, trailer metadata.MD
	var out []byte
	err := conn.Invoke(ctx, r.Method, &r.Body, &out, grpc.ForceCodecV2(testkit.Bytes{}), grpc.Header(&header), grpc.Trailer(&trailer), grpc.MaxCallRecvMsgSize(maxInt32))
	return gather(err, out, header, trailer)
}

// enough is how many bytes of an endless answer are read.
const enough = 64 << 20

// Exchange sends a request that has no stream of its own and returns the state and what came back: one message, or several put together, which
// protobuf reads as one.
func Exchange(ctx context.Context, conn *grpc.ClientConn, r Request) (*status.Status, []byte) {
	a := call(ctx, conn, r, patient)
	return a.state, a.body()
}

// callStream sends one message, closes, and reads until the end; what has no end is cut after a while.
func callStream(ctx context.Context, conn *grpc.ClientConn, r Request) answer {
	if r.Method == observeMethod {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, r.Method, grpc.ForceCodecV2(testkit.Bytes{}), grpc.MaxCallRecvMsgSize(maxInt32))
	if err != nil {
		return gather(err, nil, nil, nil)
	}
	_ = s.SendMsg(&r.Body) // the answer says why
	if r.kind == serverStream || r.kind == keepAliveStream {
		_ = s.CloseSend()
	}
	var out []byte
	for len(out) < enough {
		var message []byte
		if err = s.RecvMsg(&message); err != nil {
			break
		}
		if out = append(out, message...); r.kind == firstAnswer {
			return gather(nil, out)
		}
	}
	header, _ := s.Header()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(out) > 0 && status.Code(err) == codes.DeadlineExceeded {
		err = nil
	}
	return gather(err, out, header, s.Trailer())
}

const maxInt32 = 1<<31 - 1

// gather puts everything that an attacker could read into one piece.
func gather(err error, body []byte, headers ...metadata.MD) answer {
	state := status.Convert(err)
	out := body
	if err != nil {
		out = append(out, state.Message()...)
		if details, err := proto.Marshal(state.Proto()); err == nil {
			out = append(out, details...)
		}
	}
	for _, md := range headers {
		for name, values := range md {
			out = append(out, name...)
			for _, value := range values {
				out = append(out, value...)
			}
		}
	}
	return answer{code: state.Code(), state: state, bytes: out, message: len(body)}
}

// A channel is one stream that is kept open and sent one message after the other; answers are looked at as they come.
type channel struct {
	conn   *grpc.ClientConn
	method string
	seen   func(answer)

	mu     sync.Mutex
	stream grpc.ClientStream
	stop   context.CancelFunc
	sent   int
	done   sync.WaitGroup
}

// often is after how many messages a stream is left: its watches would send every write of everybody again and again.
const often = 40

// send sends a message; when the last one made the server end the stream, a new one is opened.
func (c *channel) send(ctx context.Context, message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent++; c.sent%often == 0 && c.stream != nil {
		c.stop()
		c.stream = nil
	}
	for range 3 {
		if c.stream == nil && !c.open(ctx) {
			return
		}
		if c.stream.SendMsg(&message) == nil {
			return
		}
		c.stop()
		c.stream = nil
	}
}

func (c *channel) open(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, c.method, grpc.ForceCodecV2(testkit.Bytes{}), grpc.MaxCallRecvMsgSize(maxInt32))
	if err != nil {
		cancel()
		c.seen(gather(err, nil))
		return false
	}
	c.stream, c.stop = s, cancel
	c.done.Go(func() {
		for {
			var message []byte
			if err := s.RecvMsg(&message); err != nil {
				header, _ := s.Header()
				c.seen(gather(err, nil, header, s.Trailer()))
				return
			}
			c.seen(answer{bytes: message})
		}
	})
	return true
}

func (c *channel) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != nil {
		c.stop()
		c.stream = nil
	}
	c.done.Wait()
}
