// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"sync"
)

// turns lets one at a time go, per droplet, in the order in which they came: DigitalOcean takes one action of a droplet
// at a time.
type turns struct {
	mu      sync.Mutex // guards waiting
	waiting map[int][]turn
}

// turn is one that waits, or whose turn it is once the channel is closed.
type turn struct {
	what  string
	comes chan struct{}
}

func newTurns() *turns { return &turns{waiting: map[int][]turn{}} }

// take waits for the turn at a droplet and returns what ends it. It reports first which one it waits for, if any.
func (t *turns) take(
	ctx context.Context, droplet int, what string, waits func(first string),
) (release func(), err error) {
	mine := turn{what, make(chan struct{})}
	t.mu.Lock()
	line := append(t.waiting[droplet], mine)
	t.waiting[droplet] = line
	if len(line) == 1 {
		close(mine.comes)
	}
	t.mu.Unlock()
	if len(line) > 1 {
		waits(line[0].what)
	}
	select {
	case <-mine.comes:
		return func() { t.leave(droplet, mine) }, nil
	case <-ctx.Done():
		t.leave(droplet, mine)
		return nil, ctx.Err()
	}
}

// leave takes one out of the line; who is first then may go.
func (t *turns) leave(droplet int, who turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.waiting[droplet]
	for i, one := range line {
		if one != who {
			continue
		}
		line = append(line[:i:i], line[i+1:]...)
		if i == 0 && len(line) > 0 {
			close(line[0].comes)
		}
		break
	}
	if t.waiting[droplet] = line; len(line) == 0 {
		delete(t.waiting, droplet)
	}
}
