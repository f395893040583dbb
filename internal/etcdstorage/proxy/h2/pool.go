// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
)

// Pauses of the connections to the core.
const (
	redialLeast   = 100 * time.Millisecond
	redialMost    = 2 * time.Second
	keepAliveTick = 5 * time.Second
	keepAliveIdle = 2 // ticks without a byte until a ping, while calls are under way
	keepAliveDead = 4 // …and until the connection is given up
)

// Endpoint is one address of the core.
type Endpoint struct {
	Address   string // host:port
	Authority string // for the handshake and :authority
}

// PoolConfig says how to reach the core.
type PoolConfig struct {
	Endpoints   []Endpoint
	Connections int
	Credentials credentials.TransportCredentials // nil: plaintext
	DialTimeout time.Duration
	Dialer      func(ctx context.Context, address string) (net.Conn, error)
	// KeepAlive is how often connections are looked at; 0 is 5 s. A peer that was silent for two such times, with calls under way, is pinged,
	// and given up after two more. etcd allows one ping in five seconds.
	KeepAlive time.Duration
	// Lost is called when the last connection was lost, before there is another; it must not block. nil tells nobody.
	Lost func()
	// Failed is told why an attempt to connect failed; for the log.
	Failed func(address string, err error)
	// Renewed is told of each connection that took the place of one with older credentials (see Renewable); nil tells nobody.
	Renewed func(address string)
	// Look is how often connections are asked whether they are outdated; 0 is 5 s.
	Look time.Duration
	// Linger is the most that an old connection has for its last calls then; 0 is 5 minutes. It has less when its credentials end before.
	Linger time.Duration
	// Answers bounds the answers that are held; nil bounds nothing.
	Answers *Budget
}

// Pool keeps several connections to the core. It begins to connect with the first call.
type Pool struct {
	cfg   PoolConfig
	ctx   context.Context //nolint:containedctx // the life of the connections
	stop  context.CancelFunc
	work  sync.WaitGroup
	begun sync.Once
	next  atomic.Uint32
	slots []*slot

	mu      sync.Mutex
	changed chan struct{} // closed when a slot's state changes
}

// slot is one connection to be.
type slot struct {
	conn atomic.Pointer[Conn]
	// Guarded by Pool.mu.
	failed bool // the last attempt failed, and the next has not begun
	kick   chan struct{}
	// renewal holds one value when the connection is outdated.
	renewal chan struct{}
}

// NewPool returns a pool that lives until ctx ends or it is closed.
func NewPool(ctx context.Context, cfg PoolConfig) *Pool {
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = keepAliveTick
	}
	p := &Pool{cfg: cfg, changed: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(ctx)
	for range cfg.Connections {
		p.slots = append(p.slots, &slot{kick: make(chan struct{}, 1), renewal: make(chan struct{}, 1)})
	}
	return p
}

// Close ends all connections and waits for their goroutines.
func (p *Pool) Close() {
	p.stop()
	p.begun.Do(func() {})
	p.work.Wait()
}

// begin starts the connections' goroutines.
func (p *Pool) begin() {
	p.begun.Do(func() {
		if p.ctx.Err() != nil {
			return
		}
		for i, s := range p.slots {
			p.work.Go(func() { p.keep(i, s) })
		}
		p.work.Go(p.keepAlive)
		p.work.Go(p.keepFresh)
	})
}

// Call is a unary call under way.
type Call struct{ call *clientCall }

// Abandon gives the call up but for its end, of which the sink is told: what the core has begun goes on there.
func (c Call) Abandon() {
	if c.call != nil {
		c.call.Abandon()
	}
}

// Cancel gives the call up; its sink hears no more of it, unless it is being told just now.
func (c Call) Cancel(b *Batch) {
	if c.call != nil {
		c.call.Cancel(b)
	}
}

// TryStart makes a unary call on a connection that is ready; ok is false when none is. message begins with MessageRoom bytes of room; it is copied.
func (p *Pool) TryStart(b *Batch, r *Request, message []byte, sink Sink) (call Call, ok bool) {
	var tried uint64
	for range p.slots {
		c := p.least(&tried)
		if c == nil {
			break
		}
		if call, err := c.start(b, r, message, sink); err == nil {
			return Call{call}, true
		}
	}
	return Call{}, false
}

// least is the connection with the fewest calls under way, of those that were not tried yet: one that hangs, or whose member of the core is
// slow, gets no more of them than others finish. Of equals, they take turns.
func (p *Pool) least(tried *uint64) *Conn {
	n := uint32(len(p.slots))
	first := p.next.Add(1)
	var best *Conn
	var bit uint64
	var fewest int64
	for i := range n {
		at := (first + i) % n
		mask := uint64(1) << (at & 63)
		c := p.slots[at].conn.Load()
		if c == nil || *tried&mask != 0 {
			continue
		}
		if calls := c.calls.Load(); best == nil || calls < fewest {
			best, bit, fewest = c, mask, calls
		}
	}
	*tried |= bit
	return best
}

// Start is TryStart that waits for a connection while one is being made, and is Unavailable when the core cannot be reached.
func (p *Pool) Start(ctx context.Context, r *Request, message []byte, sink Sink) (Call, error) {
	for {
		changed := p.change() //nolint:contextcheck // connections outlive the call that needs them first
		if call, ok := p.TryStart(nil, r, message, sink); ok {
			return call, nil
		}
		if err := p.wait(ctx, changed); err != nil {
			return Call{}, err
		}
	}
}

// Stream makes a streaming call, and waits as Start does.
func (p *Pool) Stream(ctx context.Context, r *Request) (*ClientStream, error) {
	for {
		changed := p.change() //nolint:contextcheck // connections outlive the call that needs them first
		var tried uint64
		for range p.slots {
			c := p.least(&tried)
			if c == nil {
				break
			}
			if s, err := c.stream(ctx, r); err == nil {
				return s, nil
			}
		}
		if err := p.wait(ctx, changed); err != nil {
			return nil, err
		}
	}
}

func (p *Pool) change() <-chan struct{} {
	p.begin()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// wait returns nil when it is worth looking for a connection again.
func (p *Pool) wait(ctx context.Context, changed <-chan struct{}) error {
	p.mu.Lock()
	hopeless := true
	for _, s := range p.slots {
		hopeless = hopeless && s.failed
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	if hopeless || p.ctx.Err() != nil {
		return Status{Code: codes.Unavailable, Message: unreachable, Unprocessed: true}
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return Status{Code: codes.Unavailable, Message: unreachable, Unprocessed: true}
	}
}

// set changes a slot's state.
func (p *Pool) set(s *slot, c *Conn, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was := s.conn.Swap(c); was != nil && c == nil && p.cfg.Lost != nil && p.none() {
		p.cfg.Lost()
	}
	s.failed = failed
	close(p.changed)
	p.changed = make(chan struct{})
}

// none reports whether there is no connection.
func (p *Pool) none() bool {
	return !slices.ContainsFunc(p.slots, func(s *slot) bool { return s.conn.Load() != nil })
}

// notify makes those who wait look again.
func (p *Pool) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// keep keeps one slot connected.
func (p *Pool) keep(i int, s *slot) {
	pause := redialLeast
	for p.ctx.Err() == nil {
		c, err := p.connectAny(i)
		if err == nil {
			p.set(s, c, false)
			pause = redialLeast
			p.stay(i, s, c)
			p.set(s, nil, false)
			select { // a core that accepts and hangs up must not be called in a tight loop
			case <-time.After(redialLeast / 4):
			case <-p.ctx.Done():
			}
			continue
		}
		if p.ctx.Err() != nil {
			return
		}
		p.set(s, nil, true)
		p.pause(s, pause)
		pause = min(2*pause, redialMost)
		p.set(s, nil, false)
	}
}

// stay returns when a slot's connection, or the last that took its place, takes no more calls.
func (p *Pool) stay(i int, s *slot, c *Conn) {
	for {
		select {
		case <-c.unusable:
			return
		case <-p.ctx.Done():
			return
		case <-s.renewal:
			c = p.replace(i, s, c)
		}
	}
}

// pause waits before the next attempt: for the whole pause when nobody calls, for the least when somebody does.
func (p *Pool) pause(s *slot, pause time.Duration) {
	least, whole := time.NewTimer(redialLeast), time.NewTimer(pause)
	defer least.Stop()
	defer whole.Stop()
	select {
	case <-least.C:
	case <-p.ctx.Done():
		return
	}
	select { // what was asked before does not count
	case <-s.kick:
	default:
	}
	select {
	case <-whole.C:
	case <-s.kick:
	case <-p.ctx.Done():
	}
}

// connectAny tries the endpoints one after the other, beginning with the slot's own.
func (p *Pool) connectAny(i int) (*Conn, error) {
	var errs []error
	for j := range p.cfg.Endpoints {
		e := p.cfg.Endpoints[(i+j)%len(p.cfg.Endpoints)]
		c, err := p.connect(e)
		if err == nil {
			return c, nil
		}
		if p.ctx.Err() == nil && p.cfg.Failed != nil {
			p.cfg.Failed(e.Address, err)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// connect makes one connection, ready for calls.
func (p *Pool) connect(e Endpoint) (*Conn, error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DialTimeout)
	defer cancel()
	dial := p.cfg.Dialer
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	raw, err := dial(ctx, e.Address)
	if err != nil {
		return nil, err
	}
	s := newSock(raw)
	conn, scheme := net.Conn(s), "http"
	var info credentials.AuthInfo
	if p.cfg.Credentials != nil {
		scheme = "https"
		conn, info, err = p.cfg.Credentials.ClientHandshake(ctx, e.Authority, s)
		if err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	c := newConn(conn, s, scheme, e.Authority, p.notify)
	c.answers = p.cfg.Answers
	c.auth, _ = info.(Renewable)
	c.t.flush()
	ended := make(chan error, 1)
	p.work.Go(func() {
		defer context.AfterFunc(p.ctx, func() { c.t.close(errClosed) })()
		err := c.t.read()
		c.t.mu.Lock()
		c.leave()
		c.t.mu.Unlock()
		close(c.gone)
		var broken *PanicError
		if errors.As(err, &broken) && p.cfg.Failed != nil {
			p.cfg.Failed(e.Address, err)
		}
		ended <- err
	})
	select {
	case <-c.ready:
		return c, nil
	case err = <-ended:
		return nil, fmt.Errorf("the connection ended before HTTP/2 began: %w", err)
	case <-ctx.Done():
		c.t.close(errClosed)
		return nil, fmt.Errorf("no HTTP/2 SETTINGS came: %w", ctx.Err())
	}
}

// keepAlive finds connections whose peer is silently gone.
func (p *Pool) keepAlive() {
	ticker := time.NewTicker(p.cfg.KeepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.ctx.Done():
			return
		}
		for _, s := range p.slots {
			if c := s.conn.Load(); c != nil {
				c.tick()
			}
		}
	}
}

// tick pings a connection that has calls under way and is silent, and closes it when that does not help.
func (c *Conn) tick() {
	seen := c.reads.Load()
	if seen != c.seen || c.calls.Load() == 0 {
		c.seen, c.idle = seen, 0
		return
	}
	switch c.idle++; c.idle {
	case keepAliveIdle:
		c.t.mu.Lock()
		c.t.out = appendPing(c.t.out, 0, [pingLen]byte{'a', 'l', 'i', 'v', 'e', '?'})
		c.t.mu.Unlock()
		c.t.flush()
	case keepAliveDead:
		c.t.close(errSilent)
	}
}

var errSilent = errors.New("the core does not respond pings")
