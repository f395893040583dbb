// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// bytesOf is n bytes that differ from place to place.
func bytesOf(n int) []byte {
	out := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

// TestUnarySizes sends messages of all sizes around frames and windows through grpc-go on both ends, with small and large windows.
func TestUnarySizes(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, 4, 5, 1000, 16379, 16380, 16384, 16385, 65530, 65535, 65536, 131072, 1 << 20, 5<<20 + 3}
	for _, window := range []int32{0, 65535, 1 << 20} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			t.Parallel()
			var server []grpc.ServerOption
			var client []grpc.DialOption
			if window > 0 {
				server = append(server, grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
				client = append(client, grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
			}
			g := newGateway(t, 2, newCore(t, server...).Address)
			conn := dial(t, g.Address, client...)
			var all sync.WaitGroup
			for range 3 {
				for _, size := range sizes {
					all.Go(func() {
						want := bytesOf(size)
						var got []byte
						if err := conn.Invoke(t.Context(), "/test/echo", &want, &got); err != nil || !bytes.Equal(got, want) {
							t.Errorf("%d bytes: %d came back, %v", size, len(got), err)
						}
					})
				}
			}
			all.Wait()
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	conn := dial(t, g.Address)
	request := []byte("x")
	for method, want := range map[string]struct {
		code codes.Code
		text string
	}{
		"/test/fail":   {codes.OutOfRange, "ünfit: 100%\nof it"},
		"/test/silent": {codes.Unavailable, "etcd-storage-proxy: the core etcd answered with something else than gRPC"},
		"/test/other":  {codes.Unimplemented, "no such method"},
		"/test/panic":  {codes.Internal, "contained"},
		"/test/panics": {codes.Internal, "contained"},
		"/test/refuse": {codes.PermissionDenied, "no"},
	} {
		var got []byte
		err := conn.Invoke(t.Context(), method, &request, &got)
		if status.Code(err) != want.code || status.Convert(err).Message() != want.text {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
	tooLarge := make([]byte, 8<<20+1)
	var got []byte
	err := conn.Invoke(t.Context(), "/test/echo", &tooLarge, &got)
	if want := "grpc: received message larger than max (8388609 vs. 8388608)"; status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != want {
		t.Errorf("too large: %v", err)
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "hasleader", "true", "token", "theirs"), patience)
	defer cancel()
	if err := conn.Invoke(ctx, "/test/metadata", &request, &got); err != nil || string(got) != "hasleader=[true] token=[secret] deadline=true" {
		t.Errorf("metadata: %q, %v", got, err)
	}
	if err := conn.Invoke(t.Context(), "/test/metadata", &request, &got); err != nil || string(got) != "hasleader=[] token=[secret] deadline=false" {
		t.Errorf("metadata: %q, %v", got, err)
	}
}

// TestCancel shows that a call that is given up, or late, is given up at the core too.
func TestCancel(t *testing.T) {
	t.Parallel()
	c := newCore(t)
	g := newGateway(t, 1, c.Address)
	conn := dial(t, g.Address)
	request := []byte("x")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var got []byte
		ended <- conn.Invoke(ctx, "/test/hang", &request, &got)
	}()
	eventually(t, "the call hangs", func() bool { return c.Hanging.Load() == 1 })
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	eventually(t, "the core's call is canceled", func() bool { return c.Canceled.Load() == 1 })
	late, cancel := context.WithTimeout(t.Context(), time.Second) // on a busy machine less passes before it is there
	defer cancel()
	var got []byte
	if err := conn.Invoke(late, "/test/hang", &request, &got); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	eventually(t, "the late call is over at the core", func() bool { return c.Canceled.Load() == c.Hanging.Load() })
	before := c.Hanging.Load()
	lost := dial(t, g.Address)
	go func() {
		var got []byte
		_ = lost.Invoke(t.Context(), "/test/hang", &request, &got)
	}()
	eventually(t, "the call hangs", func() bool { return c.Hanging.Load() == before+1 })
	_ = lost.Close()
	eventually(t, "the lost client's call is over at the core", func() bool { return c.Canceled.Load() == before+1 })
}

// TestStreams sends many messages both ways, on many streams at once.
func TestStreams(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 2, newCore(t).Address)
	conn := dial(t, g.Address)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test/stream")
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				for i := range 50 {
					m := bytesOf(i * i * n)
					_ = s.SendMsg(&m)
				}
				_ = s.CloseSend()
			}()
			for i := range 50 {
				var got []byte
				if err := s.RecvMsg(&got); err != nil || !bytes.Equal(got, bytesOf(i*i*n)) {
					t.Errorf("stream %d, message %d: %v", n, i, err)
					return
				}
			}
			var got []byte
			if err := s.RecvMsg(&got); status.Code(err) != codes.Aborted {
				t.Errorf("the end: %v", err)
			}
		})
	}
	all.Wait()
}

// TestUnreadStream shows that a client that does not read a stream stops neither that stream for good nor its neighbors.
func TestUnreadStream(t *testing.T) {
	t.Parallel()
	g := newGateway(t, 1, newCore(t).Address)
	conn := dial(t, g.Address, grpc.WithInitialWindowSize(65535), grpc.WithInitialConnWindowSize(1<<30))
	request := []byte("x")
	s := must.Get(conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test/flood")).Or(t)
	_ = s.CloseSend()
	for range 100 {
		var got []byte
		must.Do(t, conn.Invoke(t.Context(), "/test/echo", &request, &got))
	}
	n := 0
	for {
		var got []byte
		err := s.RecvMsg(&got)
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		n++
	}
	if n != 200 {
		t.Errorf("%d messages came, want 200", n)
	}
}

// TestCoreLostAndBack shows that calls fail at once while there is no core, and work when it is back.
func TestCoreLostAndBack(t *testing.T) {
	t.Parallel()
	c := newCore(t)
	g := newGateway(t, 2, c.Address)
	conn := dial(t, g.Address)
	request := []byte("x")
	var got []byte
	must.Do(t, conn.Invoke(t.Context(), "/test/echo", &request, &got))
	ended := make(chan error, 1)
	go func() {
		var got []byte
		ended <- conn.Invoke(t.Context(), "/test/hang", &request, &got)
	}()
	eventually(t, "the call hangs", func() bool { return c.Hanging.Load() == 1 })
	c.Server.Stop()
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the hanging call: %v", err)
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := conn.Invoke(ctx, "/test/echo", &request, &got)
		cancel()
		if status.Code(err) != codes.Unavailable {
			t.Errorf("without a core: %v", err)
		}
	}
	back := grpc.NewServer(grpc.ForceServerCodecV2(testkit.Bytes{}), grpc.UnknownServiceHandler(c.handle))
	t.Cleanup(back.Stop)
	go func() { _ = back.Serve(listenOn(t, c.Address)) }()
	eventually(t, "the core is back", func() bool { return conn.Invoke(t.Context(), "/test/echo", &request, &got) == nil })
}

// TestCoreGoesAway shows that a core that stops gracefully loses no call: those under way end, new ones go elsewhere.
func TestCoreGoesAway(t *testing.T) {
	t.Parallel()
	one, two := newCore(t), newCore(t)
	g := newGateway(t, 2, one.Address, two.Address)
	conn := dial(t, g.Address)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			request := []byte("x")
			for {
				select {
				case <-stop:
					return
				default:
				}
				var got []byte
				if err := conn.Invoke(t.Context(), "/test/echo", &request, &got); err != nil && status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
			}
		})
	}
	began := g.began.Load()
	eventually(t, "calls go on", func() bool { return g.began.Load() > began+200 })
	one.Server.GracefulStop()
	began = g.began.Load()
	eventually(t, "calls go on", func() bool { return g.began.Load() > began+200 })
	close(stop)
	all.Wait()
	request := []byte("x")
	var got []byte
	if err := conn.Invoke(t.Context(), "/test/echo", &request, &got); err != nil {
		t.Error(err)
	}
}
