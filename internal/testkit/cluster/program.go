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
	// Write counts the program's writes from 1. Events are not counted: they are sent at any time.
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

	mu        sync.Mutex // guards all below
	death     Death
	requests  []string
	writes    int
	conflicts int
	dead      bool
	faults    map[string]Fault
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

// Call does something that is not a request to the API server, such as one to etcd; what names it as a request: "PUT /calico/…".
func (p *Program) Call(what string, do func() error) error {
	method, path, _ := strings.Cut(what, " ")
	after, err := p.enter(method, path)
	if err != nil {
		return err
	}
	if err = do(); after != nil {
		return p.leave(after)
	}
	return err
}

func (p *Program) over(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		method := r.Method
		if isWatch(r) {
			method = "WATCH"
		}
		after, err := p.enter(method, r.URL.Path)
		if err != nil {
			return nil, err
		}
		response, err := next.RoundTrip(r)
		if err == nil && isWrite(method, "") && response.StatusCode == http.StatusConflict {
			p.mu.Lock()
			p.conflicts++
			p.mu.Unlock()
		}
		if after == nil {
			return response, err
		}
		if response != nil {
			_ = response.Body.Close()
		}
		return nil, p.leave(after)
	})
}

func isWrite(method, path string) bool {
	return method != http.MethodGet && method != "WATCH" && !strings.Contains(path, "/events")
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
	if write {
		p.writes++
	}
	if write && p.writes == p.death.Write {
		p.dead = true // nothing else leaves the program
		if p.death.After {
			return ErrDead, nil
		}
		p.cancel()
		return nil, ErrDead
	}
	for _, f := range p.faults {
		if f.Write && !write || !strings.HasSuffix(path, f.Path) {
			continue
		}
		if f.After {
			return f.Err, nil
		}
		return nil, f.Err
	}
	return nil, nil
}

// leave ends a call that is done.
func (p *Program) leave(err error) error {
	if errors.Is(err, ErrDead) {
		p.cancel()
	}
	return err
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

// Conflicts is how many of the writes were refused since they came from a stale cache: they changed nothing.
func (p *Program) Conflicts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conflicts
}
