// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// A Death is when a program dies. The zero value is never.
type Death struct {
	// Write counts the program's writes from 1. Events are not counted, as they are sent at any time, nor is a write that is
	// refused: it changes nothing.
	Write int
	// After is true if the write is done, and the program never learns of it.
	After bool
}

func (d Death) String() string {
	if d.After {
		return fmt.Sprintf("after write %d", d.Write)
	}
	return fmt.Sprintf("before write %d", d.Write)
}

// A Fault makes calls of a program fail as long as it is injected.
type Fault struct {
	// Write restricts it to writes.
	Write bool
	// Path is how the paths of the calls end; "" is all of them.
	Path string
	// Err is what the caller gets instead of a response.
	Err error
	// After is true if the call is done, and only the response is lost.
	After bool
}

// Errors of calls of a program.
var (
	// ErrDead is what the calls of a dead program get.
	ErrDead = errors.New("the program is dead")
	// ErrAway is a Fault of a server that does not respond.
	ErrAway = errors.New("the server is away")
)

// A Program is a program under test as servers see it: its calls are counted, can fail, and end with its death.
type Program struct {
	config *rest.Config
	ctx    context.Context //nolint:containedctx // it is the program's life
	cancel context.CancelFunc

	turn     sync.Mutex // held during a call if there is a look
	mu       sync.Mutex // guards all below
	death    Death
	requests []string
	writes   int // those that were done or are on their way
	done     []string
	dead     bool
	faults   map[string]Fault
	look     func(write string)
}

// Program starts a program that may die. It lives until the test ends at the latest.
func (c *Cluster) Program(tb testing.TB, death Death) *Program {
	tb.Helper()
	return NewProgram(tb, c.Config, death)
}

// NewProgram starts a program that reaches an API server by a config.
func NewProgram(tb testing.TB, config *rest.Config, death Death) *Program {
	tb.Helper()
	p := &Program{death: death, faults: map[string]Fault{}}
	p.ctx, p.cancel = context.WithCancel(tb.Context())
	tb.Cleanup(p.cancel)
	p.config = rest.CopyConfig(config)
	p.config.Wrap(p.over)
	return p
}

// Config is how the program reaches the API server.
func (p *Program) Config() *rest.Config { return p.config }

// Context ends with the program.
func (p *Program) Context() context.Context { return p.ctx }

// Stop ends the program in order: its calls in flight are not cut off before they are done.
func (p *Program) Stop() { p.cancel() }

// DieAt changes when the program dies; writes count from its start.
func (p *Program) DieAt(death Death) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.death = death
}

// Died reports that the program has met its death.
func (p *Program) Died() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Inject makes calls fail until the fault of that name is healed.
func (p *Program) Inject(name string, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[name] = f
}

// Heal ends a fault.
func (p *Program) Heal(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.faults, name)
}

// Look calls a function after each write that was done, before the program learns of it. From then on the program makes one
// call at a time.
func (p *Program) Look(look func(write string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look = look
}

// Call does something that is not a request to the API server, such as one to etcd; what names it as a request: "PUT /calico/…".
// An error is that it was refused.
func (p *Program) Call(what string, do func() error) error {
	method, path, _ := strings.Cut(what, " ")
	defer p.oneAtATime()()
	after, err := p.enter(method, path)
	if err != nil {
		return err
	}
	err = do()
	if after = p.leave(method, path, err != nil, after); after != nil {
		return after
	}
	return err
}

func (p *Program) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		method := r.Method
		if isWatch(r) {
			method = "WATCH"
		}
		defer p.oneAtATime()()
		after, err := p.enter(method, r.URL.Path)
		if err != nil {
			return nil, err
		}
		response, err := next.RoundTrip(r)
		refused := err != nil || response.StatusCode >= http.StatusBadRequest
		if after = p.leave(method, r.URL.Path, refused, after); after == nil {
			return response, err
		}
		if response != nil {
			_ = response.Body.Close()
		}
		return nil, after
	})
}

// oneAtATime waits until no other call is made, if there is a look, and returns how to let the next one be made.
func (p *Program) oneAtATime() (over func()) {
	p.mu.Lock()
	alone := p.look != nil
	p.mu.Unlock()
	if !alone {
		return func() {}
	}
	p.turn.Lock()
	return p.turn.Unlock
}

// isWrite reports whether a call changes what the server stores, Events aside. A review of a token is not stored.
func isWrite(method, path string) bool {
	return method != http.MethodGet && method != "WATCH" && !strings.Contains(path, "/events") &&
		!strings.HasPrefix(path, "/apis/authentication.k8s.io/")
}

// enter counts a call. It returns the error with which the call fails before it is done, or with which it seems to fail when it is.
func (p *Program) enter(method, path string) (after, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil, ErrDead
	}
	p.requests = append(p.requests, method+" "+path)
	write := isWrite(method, path)
	fault := p.fault(write, path)
	if fault.Err != nil && !fault.After {
		return nil, fault.Err
	}
	if write {
		p.writes++
	}
	if !write || p.writes != p.death.Write {
		return fault.Err, nil
	}
	p.dead = true // nothing else leaves the program
	if p.death.After {
		return ErrDead, nil
	}
	p.cancel()
	return nil, ErrDead
}

// fault is one that is injected for such a call, or the zero value.
func (p *Program) fault(write bool, path string) Fault {
	for _, f := range p.faults {
		if (write || !f.Write) && strings.HasSuffix(path, f.Path) {
			return f
		}
	}
	return Fault{}
}

// leave ends a call that the server has responded to, and returns the error with which it seems to fail.
func (p *Program) leave(method, path string, refused bool, after error) error {
	switch write := isWrite(method, path); {
	case write && refused:
		after = p.refused(after)
	case write:
		p.did(method + " " + path)
	}
	if errors.Is(after, ErrDead) {
		p.cancel()
	}
	return after
}

// refused takes back that a write was counted, and that the program dies after it.
func (p *Program) refused(after error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes--
	if !errors.Is(after, ErrDead) {
		return after
	}
	p.dead = false
	return nil
}

// did records a write, and lets it be looked at.
func (p *Program) did(write string) {
	p.mu.Lock()
	p.done = append(p.done, write)
	look := p.look
	p.mu.Unlock()
	if look != nil {
		look(write)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Requests are the calls so far, as "PATCH /api/v1/nodes/a"; watches are left out.
func (p *Program) Requests() []string { return p.Since(0) }

// Since are the calls after the first n.
func (p *Program) Since(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.requests[n:]), func(r string) bool { return strings.HasPrefix(r, "WATCH ") })
}

// Count is the number of calls so far, watches included, for Since.
func (p *Program) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

// Written are the writes so far, those of Events included.
func (p *Program) Written() []string {
	return slices.DeleteFunc(p.Requests(), func(r string) bool { return strings.HasPrefix(r, http.MethodGet) })
}

// Done are the writes that were not refused, without Events.
func (p *Program) Done() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.done)
}
