// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// ServerStream is one Watch RPC of the tenant. One goroutine may receive while another sends.
type ServerStream interface {
	Context() context.Context
	// RequireLeader tells whether the tenant sent the metadata hasleader: true.
	RequireLeader() bool
	Recv() ([]byte, error)
	// Send sends one message, the concatenation of parts, which must never change afterwards. It blocks while the tenant does not read.
	Send(parts ...[]byte) error
}

// CoreStream is one Watch RPC to the core. One goroutine may receive while another sends. It ends with the context it was opened with.
type CoreStream interface {
	Send(message []byte) error
	Recv() ([]byte, error)
	// Tenant is the boundary with the offset of revisions that holds for this stream, which must be ended when another one holds: see [Hub.EndAll].
	Tenant() *tenancy.Tenant
	// Seen is called with the header of each response, as the core has sent it: the member has come to its revision.
	Seen(header wire.Header)
	// LoggedOut is called when the core refused a watch because the login that the stream was opened with is no longer good; message is etcd's.
	LoggedOut(message string)
	// Retired is closed when the stream's connection was replaced by a newer one, on which streams are opened from then on.
	Retired() <-chan struct{}
}

// Defaults of Config.
const (
	// DefaultQueueBytes is a few of the largest transactions.
	DefaultQueueBytes = 16 << 20
	// DefaultTotalBytes is twice what DefaultTurns watchers may have waiting, each a fragment of etcd's of up to 2 MiB.
	DefaultTotalBytes = 64 << 20
	// DefaultTurns is enough to keep the core busy.
	DefaultTurns = 16
	// DefaultPatience is more than any pause of a healthy client.
	DefaultPatience = 10 * time.Second
)

const (
	// firstRetry and lastRetry bound the time after which a progress request that the core has not answered is sent again. etcd brings watches
	// up to date every 100 ms.
	firstRetry, lastRetry = 10 * time.Millisecond, 160 * time.Millisecond
	// maxIdle is how many catch-up streams are kept for the next watchers.
	maxIdle = 8
)

// Errors that end a stream of the tenant. Clients of etcd take up their watches again after Unavailable.
var (
	errSlow   = status.Error(codes.Unavailable, "etcd-storage-proxy: the watch stream was ended because its client reads too slowly")
	errEnded  = status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd ended the watch stream")
	errBehind = status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd compacted what a shared watch was to bring next, try again")
	errClosed = status.Error(codes.Unavailable, "etcd-storage-proxy: shutting down")
	errMoved  = status.Error(codes.Unavailable, "etcd-storage-proxy: the connection to the core etcd was replaced, try again")
	errLogin  = status.Error(codes.Unavailable, "etcd-storage-proxy: the login to the core etcd ended, try again")
)

// Config is what a Hub needs.
type Config struct {
	// Tenant is the boundary; each stream to the core has its own offset of revisions.
	Tenant *tenancy.Tenant
	// Open opens a stream to the core; its errors are status errors fit for the tenant.
	Open func(ctx context.Context, requireLeader bool) (CoreStream, error)
	// Compacted is the tenant's own compact revision; 0 for none. It is right once Load has returned nil, which may ask the core.
	Compacted func() int64
	Load      func(ctx context.Context) error
	// Violation reports an answer of the core that is outside the boundary, and returns the status for the tenant.
	Violation func(error) error
	// Panicked reports a panic of one of the hub's goroutines, and returns the status for the tenant.
	Panicked func(recovered any) error
	// Watches bounds how many watches there are; 0 means no limit. Refused is told of each that is one too many; it may be nil without a bound.
	Watches int
	// TooMany is the reason that a watch gets that is one too many. Pace, if it is not nil, is called before each message of the tenant, with
	// the revision that a watch starts at or 0, and returns when it may be dealt with.
	TooMany string
	Pace    func(ctx context.Context, start int64) error
	Refused func()
	// QueueBytes bounds what waits for one stream of the tenant; 0 is DefaultQueueBytes. The last message may go beyond it, so that no message is
	// too large.
	QueueBytes int
	// TotalBytes bounds what waits for all streams of the tenant, where an event counts once however many wait for it; 0 is DefaultTotalBytes. Half
	// of it is for watchers that catch up; each of those may go beyond it by a message.
	TotalBytes int
	// Turns is how many watchers may catch up at the same time; 0 is DefaultTurns.
	Turns int
	// Patience is how long a session that reads slowly may hold up others that wait for a turn; 0 is DefaultPatience.
	Patience time.Duration
}

// Hub serves the Watch streams of one tenant. Make one with New, end it with Close.
type Hub struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // the life of the streams to the core, which outlive each RPC
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	classes  [2]*class // without and with hasleader: the core ends the latter when it has no leader
	sessions map[*session]struct{}
	slow     int64
	ends     int64              // how often all ended
	cores    map[*core]struct{} // streams open to the core

	turns  chan struct{} // one for each private feed
	memory memory
}

// class is what shares streams to the core.
type class struct {
	requireLeader bool
	shared        *core // nil until a group needs it
	next          *core // is to take its place, since its connection was replaced; see move.go
	ahead         int   // bytes that next has brought
	opening       bool
	idle          []*core
	groups        map[groupKey]*group
}

// New returns a hub that opens its streams when they are needed.
func New(cfg Config) *Hub {
	defaultTo(&cfg.QueueBytes, DefaultQueueBytes)
	defaultTo(&cfg.TotalBytes, DefaultTotalBytes)
	defaultTo(&cfg.Turns, DefaultTurns)
	defaultTo(&cfg.Patience, DefaultPatience)
	h := &Hub{cfg: cfg, sessions: map[*session]struct{}{}, cores: map[*core]struct{}{}, turns: make(chan struct{}, cfg.Turns)}
	h.memory.room.L = &h.memory.mu
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for i := range h.classes {
		h.classes[i] = &class{requireLeader: i == 1, groups: map[groupKey]*group{}}
	}
	return h
}

func defaultTo[T int | time.Duration](value *T, otherwise T) {
	if *value <= 0 {
		*value = otherwise
	}
}

// Close ends all sessions with Unavailable and all streams to the core, and waits for the hub's goroutines.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for s := range h.sessions {
		s.fail(errClosed)
	}
	h.mu.Unlock()
	h.cancel()
	h.work.Wait()
}

// EndAll ends all sessions with an error, and all streams to the core, also those that are being opened: what they know of its revisions is of no use
// any more. Later sessions are served.
func (h *Hub) EndAll(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends++
	for s := range h.sessions {
		s.fail(err)
	}
	for c := range h.cores {
		c.fail(err)
	}
}

// Stats is what the hub holds at the moment.
type Stats struct {
	// Sessions are the tenant's streams, Watchers their watches, Private those of them that have a feed of their own.
	Sessions, Watchers, Private int
	// Groups are the shared watches, CoreStreams the streams to the core.
	Groups, CoreStreams int
	// Bytes is what waits for the sessions.
	Bytes int
	// Slow counts the sessions ended since the start because they read too slowly.
	Slow int64
}

// Stats counts.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := Stats{Sessions: len(h.sessions), CoreStreams: len(h.cores), Bytes: h.memory.held(), Slow: h.slow}
	for s := range h.sessions {
		st.Watchers += len(s.watchers)
		for _, w := range s.watchers {
			if w.feed != nil {
				st.Private++
			}
		}
	}
	for _, c := range h.classes {
		st.Groups += len(c.groups)
	}
	return st
}

// Serve answers one stream of the tenant until it ends, or until stop is closed, with stopped.
func (h *Hub) Serve(stream ServerStream, stop <-chan struct{}, stopped error) error {
	s := newSession(h, stream)
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return errClosed
	}
	h.sessions[s] = struct{}{}
	h.mu.Unlock()
	go s.receive()
	go s.send() // it may be held up by the client; that holds up no end
	select {
	case <-s.done:
	case <-stop:
		s.fail(stopped)
	case <-stream.Context().Done():
		s.fail(contextError(stream.Context()))
	}
	h.mu.Lock()
	delete(h.sessions, s)
	s.closed, s.progress = true, false
	for _, w := range s.watchers {
		h.detach(w)
	}
	h.mu.Unlock()
	return s.err
}

// open opens a stream to the core. The context given only bounds the opening.
func (h *Hub) open(ctx context.Context, cl *class, shared bool) (*core, error) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, errClosed
	}
	h.work.Add(1) // for the opening; Close waits for it
	ends := h.ends
	h.mu.Unlock()
	defer h.work.Done()
	life, cancel := context.WithCancel(h.ctx)
	release := context.AfterFunc(ctx, cancel)
	stream, err := h.cfg.Open(life, cl.requireLeader) //nolint:contextcheck // the stream outlives the RPC that opens it
	if !release() && err == nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	c := &core{
		hub: h, class: cl, shared: shared, stream: stream, ctx: life, cancel: cancel,
		wake: make(chan struct{}, 1), feeds: map[int64]*feed{}, asking: map[*session]struct{}{}, next: map[*session]struct{}{},
	}
	h.mu.Lock()
	if h.ends != ends {
		h.mu.Unlock()
		cancel()
		return nil, errEnded
	}
	h.cores[c] = struct{}{}
	h.mu.Unlock()
	h.work.Add(3)
	go c.sendLoop()
	go c.receiveLoop()
	go c.stay()
	return c, nil
}

// stay waits until the stream ends, or its connection is replaced.
func (c *core) stay() {
	defer c.hub.work.Done()
	select {
	case <-c.stream.Retired():
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		c.retire()
	case <-c.ctx.Done():
	}
}

// private returns a catch-up stream, used tells whether it served another watcher before: it may then have died unnoticed.
func (h *Hub) private(ctx context.Context, cl *class) (c *core, used bool, err error) {
	h.mu.Lock()
	if n := len(cl.idle); n > 0 {
		c := cl.idle[n-1]
		cl.idle = cl.idle[:n-1]
		h.mu.Unlock()
		return c, true, nil
	}
	h.mu.Unlock()
	c, err = h.open(ctx, cl, false)
	return c, false, err
}

// needShared has the shared stream opened unless there is one; the groups that need it get their feeds then.
func (h *Hub) needShared(cl *class) {
	if cl.shared != nil || cl.opening || h.closed {
		return
	}
	cl.opening = true
	h.work.Go(func() {
		c, err := h.open(h.ctx, cl, true)
		h.mu.Lock()
		defer h.mu.Unlock()
		cl.opening = false
		h.opened(cl, c, err)
	})
}

// opened gives the groups of a class their feeds on a new shared stream.
func (h *Hub) opened(cl *class, c *core, err error) {
	if err != nil || c.err != nil {
		for _, g := range cl.groups {
			h.dropGroup(g) // those who wait stay private and ask again
		}
		return
	}
	cl.shared = c
	for _, g := range cl.groups {
		h.startGroup(g)
	}
	h.moveOn(cl) // its connection may have been replaced meanwhile
}

// ended makes the end of a stream to the core an error for the tenant.
func ended(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF), status.Code(err) == codes.Canceled, status.Code(err) == codes.Unknown:
		return errEnded
	}
	return err
}

// requestError makes a refusal of the tenant's bytes a status; nil if err is something else.
func requestError(err error) error {
	if refused, ok := errors.AsType[*wire.RequestError](err); ok {
		return status.Error(codes.Code(refused.Code), refused.Message)
	}
	return nil
}
