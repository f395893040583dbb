// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"
	"strings"
)

// Dump describes what the hub holds.
func (h *Hub) Dump() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for i, cl := range h.classes {
		if c := cl.shared; c != nil {
			fmt.Fprintf(&b, "class %d shared: feeds %d, creating %d, unanswered %d, in flight %v, asking %d, next %d, retry %v, err %v, out %d, rev %d\n", i,
				len(c.feeds), len(c.creating), c.unanswered, c.inFlight, len(c.asking), len(c.next), c.retry, c.err, len(c.out), c.header.Revision)
		}
		for k, g := range cl.groups {
			fmt.Fprintf(&b, "group %v: feed %v, members %d, waiting %d", k, g.feed != nil, len(g.members), len(g.waiting))
			if g.feed != nil {
				fmt.Fprintf(&b, " live %v pos %d mid %v core %v", g.feed.live, g.feed.pos, g.feed.mid, g.feed.core == cl.shared)
			}
			b.WriteString("\n")
		}
	}
	for s := range h.sessions {
		s.mu.Lock()
		fmt.Fprintf(&b, "session: progress %v, high %d, bytes %d, queue %d, err %v\n", s.progress, s.high, s.bytes, len(s.queue), s.err)
		s.mu.Unlock()
		for id, w := range s.watchers {
			fmt.Fprintf(&b, "  watch %d %v: start %d, over %v, group %v, waiting %v, target %d, skip %d, backlog %d", id, w.key, w.start, w.over, w.group != nil,
				w.waiting != nil, w.target, w.skip, len(w.backlog))
			if f := w.feed; f != nil {
				fmt.Fprintf(&b, ", private: live %v pos %d mid %v detached %v, id %d; its stream: feeds %d, last ID %d, rev %d, out %d, unanswered %d, in flight %v, blocked %v, err %v",
					f.live, f.pos, f.mid, f.detached.Load(), f.id, len(f.core.feeds), f.core.lastID, f.core.header.Revision, len(f.core.out), f.core.unanswered, f.core.inFlight, f.core.blocked.Load(), f.core.err)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}
