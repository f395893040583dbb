// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"sync"
)

// turns lets one at a time go, per droplet, in the order in which they came: DigitalOcean takes one action of a droplet at a time.
type turns struct {
	mu      sync.Mutex // guards waiting
	waiting map[int][]chan struct{}
}

func newTurns() *turns { return &turns{waiting: map[int][]chan struct{}{}} }

// take waits for the turn at a droplet and returns what ends it.
func (t *turns) take(ctx context.Context, droplet int) (release func(), err error) {
	mine := make(chan struct{})
	t.mu.Lock()
	t.waiting[droplet] = append(t.waiting[droplet], mine)
	if len(t.waiting[droplet]) == 1 {
		close(mine)
	}
	t.mu.Unlock()
	select {
	case <-mine:
		return func() { t.leave(droplet, mine) }, nil
	case <-ctx.Done():
		t.leave(droplet, mine)
		return nil, ctx.Err()
	}
}

// leave takes one out of the line; who is first then may go.
func (t *turns) leave(droplet int, who chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.waiting[droplet]
	for i, one := range line {
		if one != who {
			continue
		}
		line = append(line[:i:i], line[i+1:]...)
		if i == 0 && len(line) > 0 {
			close(line[0])
		}
		break
	}
	if t.waiting[droplet] = line; len(line) == 0 {
		delete(t.waiting, droplet)
	}
}
