// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2_test

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// changing are credentials of which there is a newer generation when the test says so.
type changing struct {
	credentials.TransportCredentials
	now     *atomic.Int64
	refused *atomic.Bool // the core takes none of the new ones
}

type generation struct {
	credentials.CommonAuthInfo
	of   changing
	mine int64
}

// AuthType implements credentials.AuthInfo.
func (generation) AuthType() string { return "generation" }

// Outdated implements h2.Renewable.
func (g generation) Outdated() bool { return g.of.now.Load() != g.mine }

// Left implements h2.Renewable.
func (generation) Left() time.Duration { return time.Hour }

// ClientHandshake implements credentials.TransportCredentials.
func (c changing) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.refused.Load() {
		return nil, nil, errors.New("refused")
	}
	return conn, generation{of: c, mine: c.now.Load()}, nil
}

// renewing is a pool of one connection, whose credentials change, to a core.
type renewing struct {
	*h2.Pool
	changing
	core    *core
	renewed atomic.Int64
	failed  atomic.Int64

	mu    sync.Mutex
	conns []*watched
}

// watched is a connection of which the test sees the end.
type watched struct {
	net.Conn
	closed atomic.Bool
}

// Close implements net.Conn.
func (w *watched) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}

func newRenewing(tb testing.TB, linger time.Duration) *renewing {
	tb.Helper()
	r := &renewing{changing: changing{insecure.NewCredentials(), &atomic.Int64{}, &atomic.Bool{}}, core: newCore(tb)}
	r.Pool = h2.NewPool(context.Background(), h2.PoolConfig{
		Endpoints: []h2.Endpoint{{Address: r.core.Address, Authority: "core"}}, Connections: 1, DialTimeout: patience, Credentials: r.changing,
		Look: 5 * time.Millisecond, Linger: linger,
		Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			w := &watched{Conn: conn}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.conns = append(r.conns, w)
			return w, nil
		},
		Renewed: func(string) { r.renewed.Add(1) },
		Failed:  func(string, error) { r.failed.Add(1) },
	})
	tb.Cleanup(r.Close)
	return r
}

// conn is the connection that was made as the nth.
func (r *renewing) conn(n int) *watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[n]
}

// turn makes the connection outdated and returns when there is a new one.
func (r *renewing) turn(tb testing.TB) {
	tb.Helper()
	before := r.renewed.Load()
	r.now.Add(1)
	eventually(tb, "another connection", func() bool { return r.renewed.Load() == before+1 })
}

// open begins a stream and makes sure that it works.
func (r *renewing) open(tb testing.TB) *h2.ClientStream {
	tb.Helper()
	s := must.Get(r.Stream(tb.Context(), &h2.Request{Method: "/test/stream"})).Or(tb)
	echo(tb, s, "first")
	return s
}

func echo(tb testing.TB, s *h2.ClientStream, text string) {
	tb.Helper()
	must.Do(tb, s.Send([]byte(text)))
	if got, err := s.Recv(); err != nil || string(got) != text {
		tb.Fatalf("came %q, %v", got, err)
	}
}

// TestRenewal shows that a connection whose credentials were replaced makes room for a new one as soon as that is there: what is under way
// on the old one comes to its end there, open-ended streams are told, and with the last of them the old connection goes.
func TestRenewal(t *testing.T) {
	t.Parallel()
	r := newRenewing(t, 0)
	old := r.open(t)
	select {
	case <-old.Retired():
		t.Fatal("it is retired before anything was replaced")
	default:
	}
	hanging := &result{done: make(chan h2.Status, 1)}
	call := must.Get(r.Start(t.Context(), &h2.Request{Method: "/test/hang"}, make([]byte, h2.MessageRoom), hanging)).Or(t)
	eventually(t, "the call that hangs", func() bool { return r.core.Hanging.Load() == 1 })

	r.turn(t)
	<-old.Retired()
	echo(t, old, "second") // it goes on until it is given up
	fresh := r.open(t)
	select {
	case <-fresh.Retired():
		t.Error("a new stream is on the old connection")
	default:
	}
	if s, data := callEcho(t, r.Pool); !s.OK() || data != "hello" {
		t.Errorf("a call: %+v, %q", s, data)
	}
	if err := old.CloseSend(); err != nil {
		t.Error(err)
	}
	var end h2.Status
	if _, err := old.Recv(); !errors.As(err, &end) || end.Code != codes.Aborted {
		t.Errorf("the stream on the old connection ended with %v", err)
	}
	if r.conn(0).closed.Load() {
		t.Error("the old connection was closed under a call")
	}
	call.Cancel(nil)
	eventually(t, "the end of the old connection", r.conn(0).closed.Load)
	echo(t, fresh, "third")
	if n := r.renewed.Load(); n != 1 {
		t.Errorf("made again %d times for one change", n)
	}
}

// callEcho makes one call to the method that echoes.
func callEcho(tb testing.TB, pool *h2.Pool) (h2.Status, string) {
	tb.Helper()
	got := &result{done: make(chan h2.Status, 1)}
	message := append(make([]byte, h2.MessageRoom), "hello"...)
	must.Get(pool.Start(tb.Context(), &h2.Request{Method: "/test/echo"}, message, got)).Or(tb)
	return <-got.done, string(got.data)
}

// TestRenewalCutsOff shows that an old connection does not live longer than it may, no matter who still uses it, and that one that nobody
// uses goes at once.
func TestRenewalCutsOff(t *testing.T) {
	t.Parallel()
	r := newRenewing(t, 20*time.Millisecond)
	stays := r.open(t)
	r.turn(t)
	var end h2.Status
	if _, err := stays.Recv(); !errors.As(err, &end) || end.Code != codes.Unavailable {
		t.Errorf("the stream that stayed ended with %v", err)
	}
	if !r.conn(0).closed.Load() {
		t.Error("the old connection is open")
	}

	idle := newRenewing(t, 0)
	if s, _ := callEcho(t, idle.Pool); !s.OK() {
		t.Fatalf("%+v", s)
	}
	idle.turn(t)
	eventually(t, "the end of the old connection", idle.conn(0).closed.Load)
}

// TestRenewalThatFails shows that a connection goes on while none can be made with the newer credentials, and that this is tried until it works.
func TestRenewalThatFails(t *testing.T) {
	t.Parallel()
	r := newRenewing(t, 0)
	s := r.open(t)
	r.refused.Store(true)
	r.now.Add(1)
	eventually(t, "several attempts", func() bool { return r.failed.Load() > 2 })
	echo(t, s, "second")
	if got, data := callEcho(t, r.Pool); !got.OK() || data != "hello" {
		t.Errorf("a call: %+v, %q", got, data)
	}
	select {
	case <-s.Retired():
		t.Error("it is retired for nothing")
	default:
	}
	r.refused.Store(false)
	eventually(t, "another connection", func() bool { return r.renewed.Load() == 1 })
	<-s.Retired()
}

// TestRenewalUnderLoad shows that no call is lost over many changes.
func TestRenewalUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRenewing(t, 0)
	r.open(t)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s, data := callEcho(t, r.Pool); !s.OK() || data != "hello" {
					t.Errorf("%+v, %q", s, data)
					return
				}
			}
		})
	}
	for range 30 {
		r.turn(t)
	}
	close(stop)
	callers.Wait()
	for n := 1; n < 30; n++ { // on the first a stream is open
		eventually(t, "the end of an old connection", r.conn(n).closed.Load)
	}
}

// TestLingers pins how long an old connection may go on.
func TestLingers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ left, most, want time.Duration }{
		"credentials that hardly end": {math.MaxInt64, 0, 5 * time.Minute},
		"a day":                       {24 * time.Hour, 0, 5 * time.Minute},
		"it is gone a minute before":  {3 * time.Minute, 0, 2 * time.Minute},
		"the end is near":             {time.Minute, 0, 10 * time.Second},
		"they have ended":             {-time.Hour, 0, 10 * time.Second},
		"less is wanted":              {time.Hour, time.Second, time.Second},
	} {
		if got := h2.Lingers(tt.left, tt.most); got != tt.want {
			t.Errorf("%s: %v, not %v", name, got, tt.want)
		}
	}
}

// slowContext ends without calling those who wait for that by context.AfterFunc, as happens for a moment at the end of any context.
type slowContext struct {
	context.Context
	done chan struct{}
}

func (c slowContext) Done() <-chan struct{} { return c.done }

func (c slowContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc is what context.AfterFunc asks.
func (slowContext) AfterFunc(func()) func() bool { return func() bool { return true } }

// TestNoStreamIsLeftBehind shows that a stream whose context has ended is given up on the core's side, too, when the reader is the first to
// notice: else it would hold an old connection up.
func TestNoStreamIsLeftBehind(t *testing.T) {
	t.Parallel()
	r := newRenewing(t, 0)
	ctx := slowContext{t.Context(), make(chan struct{})}
	s := must.Get(r.Stream(ctx, &h2.Request{Method: "/test/hang"})).Or(t)
	must.Do(t, s.CloseSend())
	eventually(t, "the stream", func() bool { return r.core.Hanging.Load() == 1 })
	close(ctx.done)
	if _, err := s.Recv(); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	eventually(t, "the core to hear of it", func() bool { return r.core.Canceled.Load() == 1 })
}
