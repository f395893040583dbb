// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"sync"
	"time"
)

// memory counts the bytes of the packets that wait for sessions; one that waits for many sessions counts once. Its lock is the innermost, and guards
// packet.holders.
type memory struct {
	mu    sync.Mutex
	room  sync.Cond
	bytes int
}

// hold counts a packet for one more session.
func (m *memory) hold(p *packet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.holders == 0 {
		m.bytes += p.size()
	}
	p.holders++
}

// release is the opposite.
func (m *memory) release(p *packet) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.holders--; p.holders == 0 {
		m.bytes -= p.size()
		m.room.Broadcast()
	}
}

func (m *memory) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// wake has those who wait look again whether their feed is still wanted.
func (m *memory) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room.Broadcast()
}

// waitForMemory returns when at most half of TotalBytes is held, or nobody wants the feed any more. When that takes too long, the session that holds most
// ends.
func (h *Hub) waitForMemory(f *feed) {
	h.memory.mu.Lock()
	defer h.memory.mu.Unlock()
	if h.memory.bytes <= h.cfg.TotalBytes/2 {
		return
	}
	over := false // guarded by h.memory.mu, as timer is
	var timer *time.Timer
	timer = time.AfterFunc(h.cfg.Patience, func() {
		h.mu.Lock()
		h.endLargest(h.cfg.TotalBytes / 2)
		h.mu.Unlock()
		h.memory.mu.Lock()
		defer h.memory.mu.Unlock()
		if !over { // others may have been quicker
			timer.Reset(h.cfg.Patience)
		}
	})
	defer func() {
		over = true
		timer.Stop()
	}()
	for h.memory.bytes > h.cfg.TotalBytes/2 && !f.detached.Load() {
		h.memory.room.Wait()
	}
}

// endLargest ends the sessions with the longest queues while more than the bytes given are held; h.mu is held.
func (h *Hub) endLargest(bytes int) {
	for h.memory.held() > bytes {
		var largest *session
		most := 0
		for s := range h.sessions {
			if n := s.waiting(); n > most {
				largest, most = s, n
			}
		}
		if largest == nil {
			return
		}
		h.slow++
		largest.fail(errSlow)
	}
}
