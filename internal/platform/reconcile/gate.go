// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Gate lets work in until it is closed, and knows when all that was let in is done. Its zero value is open.
type Gate struct {
	mu     sync.Mutex // guards all below
	closed bool
	inside int
	empty  chan struct{} // made by close, closed when nobody is inside any more
}

// Enter lets in, and returns what must be called at the end. At a closed gate it waits until ctx ends and is its error: the process is about to
// end, and anyone who asks has nothing to tell anybody about it.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	g.mu.Lock()
	if !g.closed {
		g.inside++
		g.mu.Unlock()
		return g.leave, nil
	}
	g.mu.Unlock()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.closed {
		close(g.empty)
	}
}

// Drain closes the gate and waits until all are out, but no longer than most. It reports whether they are. It may be called once.
func (g *Gate) Drain(clock clock.Clock, most time.Duration) bool {
	g.mu.Lock()
	g.closed, g.empty = true, make(chan struct{})
	if g.inside == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	timer := clock.NewTimer(most)
	defer timer.Stop()
	select {
	case <-g.empty:
		return true
	case <-timer.C():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside == 0
}
