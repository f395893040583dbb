// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/watch"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// client is a tenant's Watch stream.
type client interface {
	Send(r *pb.WatchRequest) error
	Recv() (*pb.WatchResponse, error)
}

type coreStream struct {
	grpc.ClientStream
	retired <-chan struct{}
	tenant  *tenancy.Tenant
}

func (c coreStream) Send(m []byte) error { return c.SendMsg(&m) }

func (c coreStream) LoggedOut(string) {}

// Seen implements watch.CoreStream.
func (c coreStream) Seen(wire.Header) {}

// Tenant implements watch.CoreStream.
func (c coreStream) Tenant() *tenancy.Tenant { return c.tenant }

func (c coreStream) Retired() <-chan struct{} { return c.retired }

func (c coreStream) Recv() ([]byte, error) {
	var m []byte
	err := c.RecvMsg(&m)
	return m, err
}

// hub is a Hub in this process, on a real etcd, whose connections can be cut.
type hub struct {
	*watch.Hub
	compacted atomic.Int64

	mu      sync.Mutex
	conns   []net.Conn
	retired chan struct{} // of the streams that are opened now
}

// newHub makes a hub for the tenant below /a/.
func newHub(tb testing.TB, core string, queueBytes int, change ...func(*watch.Config)) *hub {
	tb.Helper()
	prefix := must.Get(tenancy.ParsePrefix("/a/")).Or(tb)
	h := &hub{retired: make(chan struct{})}
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(core, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(testkit.Bytes{}), grpc.MaxCallRecvMsgSize(1<<30)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				h.mu.Lock()
				h.conns = append(h.conns, c)
				h.mu.Unlock()
			}
			return c, err
		}))
	must.Do(tb, err)
	tenant := &tenancy.Tenant{Prefix: prefix, Leases: tenancy.DeriveLeaseSpace(prefix)}
	cfg := watch.Config{
		Tenant: tenant,
		Open: func(ctx context.Context, _ bool) (watch.CoreStream, error) {
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, pb.Watch_Watch_FullMethodName)
			if err != nil {
				return nil, err
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			return coreStream{s, h.retired, tenant}, nil
		},
		Compacted:  h.compacted.Load,
		Load:       func(context.Context) error { return nil },
		Violation:  func(err error) error { tb.Error("violation:", err); return err },
		Panicked:   func(r any) error { tb.Error("panic:", r); return errors.New("panic") },
		QueueBytes: queueBytes,
	}
	for _, c := range change {
		c(&cfg)
	}
	h.Hub = watch.New(cfg)
	tb.Cleanup(func() {
		h.Close()
		_ = conn.Close()
	})
	return h
}

// cut breaks all connections to the core.
func (h *hub) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.conns = nil
}

// retire makes all streams that there are ones of a connection that was replaced.
func (h *hub) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.retired)
	h.retired = make(chan struct{})
}

// memoryStream is both ends of a tenant's stream in memory: without buffers, so that who does not read holds the sender up.
type memoryStream struct {
	ctx       context.Context //nolint:containedctx // as in a gRPC stream
	requests  chan []byte
	responses chan []byte
	ended     chan struct{}
	err       error
}

// open begins a stream of the tenant.
func (h *hub) open(ctx context.Context) *memoryStream {
	m := &memoryStream{ctx: ctx, requests: make(chan []byte), responses: make(chan []byte), ended: make(chan struct{})}
	go func() {
		inner, cancel := context.WithCancel(ctx) // ends with the handler, as in gRPC
		defer cancel()
		m.err = h.Serve(serverEnd{m, inner}, nil, nil)
		close(m.ended)
	}()
	return m
}

type serverEnd struct {
	m   *memoryStream
	ctx context.Context //nolint:containedctx // as in a gRPC stream
}

func (s serverEnd) Context() context.Context { return s.ctx }
func (s serverEnd) RequireLeader() bool      { return false }

func (s serverEnd) Recv() ([]byte, error) {
	select {
	case r, ok := <-s.m.requests:
		if !ok {
			return nil, io.EOF
		}
		return r, nil
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

func (s serverEnd) Send(parts ...[]byte) error {
	var m []byte
	for _, p := range parts {
		m = append(m, p...)
	}
	select {
	case s.m.responses <- m:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// Send implements client.
func (m *memoryStream) Send(r *pb.WatchRequest) error {
	b, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	select {
	case m.requests <- b:
		return nil
	case <-m.ended:
		return io.EOF
	}
}

// Recv implements client.
func (m *memoryStream) Recv() (*pb.WatchResponse, error) {
	select {
	case b := <-m.responses:
		r := &pb.WatchResponse{}
		return r, proto.Unmarshal(b, r)
	case <-m.ended:
		return nil, m.err
	}
}
