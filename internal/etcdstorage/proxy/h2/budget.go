// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
)

// smallAnswer is what an answer may be and still fit into the window that a call begins with. Larger ones come only once there is room in the budget.
const smallAnswer = defaultWindow - messageHeaderLen

// Budget bounds the bytes of answers that are held, from the moment that the core begins to send one until the tenant has taken it. The core is held back
// by its windows: an answer for which there is no room stays there, but for its first 64 KiB. Small answers are not held back; what of them waits for the
// tenant is counted apart, see Crowded. A nil Budget bounds nothing.
type Budget struct {
	total  int64
	waited func()
	small  atomic.Int64

	mu    sync.Mutex
	used  int64
	queue []*claim
}

// NewBudget returns a budget of that many bytes; waited, if it is not nil, is called for each answer that has to wait.
func NewBudget(total int64, waited func()) *Budget { return &Budget{total: total, waited: waited} }

// aloneFactor and aloneDivisor are how much larger than the budget an answer may be that passes alone.
const (
	aloneFactor  = 3
	aloneDivisor = 2
	// crowdedPart is the part of the budget that small answers may take, in addition.
	crowdedPart = 4
)

// claim is one answer's part of a budget. Budget.mu guards it.
type claim struct {
	size  int64
	state claimState
	call  *clientCall
}

type claimState int

const (
	claimNone    claimState = iota
	claimWaiting            // in the queue
	claimGranted            // held by the call
	claimOver               // given back, or held by a Buf
)

// Held is how many bytes are held, small answers apart, and how many answers wait.
func (b *Budget) Held() (bytes int64, waiting int) {
	if b == nil {
		return 0, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, len(b.queue)
}

// Crowded reports whether small answers take so much that no more calls should begin.
func (b *Budget) Crowded() bool { return b != nil && b.small.Load() > b.total/crowdedPart }

// take claims room for an answer: now is true if there is some. Otherwise the call is opened once there is.
func (b *Budget) take(c *claim, size int64) (now bool, failure *Status) {
	if b == nil {
		return true, nil
	}
	most := b.total / aloneDivisor * aloneFactor
	if size > most {
		return false, &Status{Code: codes.ResourceExhausted, Message: fmt.Sprintf(
			"etcd-storage-proxy: an answer of %d bytes is more than the tenant's budget \"answers\" (--max-answer-bytes) ever allows, %d: "+
				"read in pages, with a limit", size, most)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.size = size
	if len(b.queue) == 0 && b.fits(size) {
		b.used += size
		c.state = claimGranted
		return true, nil
	}
	c.state = claimWaiting
	b.queue = append(b.queue, c)
	if b.waited != nil {
		b.waited()
	}
	return false, nil
}

// fits reports whether there is room; one that is larger than all passes alone. The caller holds the lock.
func (b *Budget) fits(size int64) bool { return b.used == 0 || b.used+size <= b.total }

// give gives room back, and lets in who waited. It may be called with the lock of a connection, so calls are opened elsewhere.
func (b *Budget) give(size int64) {
	if b == nil || size == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= size
	b.grant()
}

func (b *Budget) grant() {
	for len(b.queue) > 0 && b.fits(b.queue[0].size) {
		c := b.queue[0]
		b.queue[0] = nil
		b.queue = b.queue[1:]
		b.used += c.size
		c.state = claimGranted
		go c.call.openWindow(nil)
	}
	if len(b.queue) == 0 {
		b.queue = nil
	}
}

// withdraw ends a claim that waits; false if it does not wait.
func (b *Budget) withdraw(c *claim) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.state != claimWaiting {
		return false
	}
	b.remove(c)
	return true
}

func (b *Budget) remove(c *claim) {
	c.state = claimOver
	if i := slices.Index(b.queue, c); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	b.grant() // the next may be smaller
}

// leave ends a claim, whatever its state.
func (b *Budget) leave(c *claim) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch c.state {
	case claimWaiting:
		b.remove(c)
	case claimGranted:
		c.state = claimOver
		b.used -= c.size
		b.grant()
	case claimNone, claimOver:
	}
}

// move makes a claim the buffer's: it ends when the buffer is released.
func (b *Budget) move(c *claim, to *Buf) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.state == claimGranted {
		c.state = claimOver
		to.budget, to.held = b, c.size
	}
}

// uncounted is the size up to which a message of a streaming call counts in no budget.
const uncounted = 4 << 10

// holder counts a message of a streaming call until it is released.
func (b *Budget) holder(bytes int) *Buf {
	if b == nil {
		return nil
	}
	b.small.Add(int64(bytes))
	return &Buf{budget: b, held: -int64(bytes)}
}

// overcrowded is Crowded for streaming calls: those of connections that are behind end first.
func (b *Budget) overcrowded(behind bool) bool {
	if b == nil {
		return false
	}
	held := b.small.Load()
	return held > b.total/crowdedPart*2 || behind && held > b.total/crowdedPart
}

// holdSmall counts a small answer that waits for the tenant.
func (b *Budget) holdSmall(buf *Buf) {
	if b == nil || buf.budget != nil {
		return
	}
	b.small.Add(int64(cap(buf.B)))
	buf.budget, buf.held = b, -int64(cap(buf.B))
}
