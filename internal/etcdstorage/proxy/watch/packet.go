// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// everyWatch is the watch ID of progress answers, and of refused watches (etcd's InvalidWatchID).
const everyWatch = -1

// watchIDField is the field number of WatchResponse.watch_id.
const watchIDField = 2

// packet is one answer of the core for the tenant. It is the same for all watchers but for the ID, and never changes once it is encoded: the
// message to a watcher is head, its ID as a field, and the events.
type packet struct {
	wire.WatchResponse
	head    []byte
	holders int // see memory
}

// encode sets head.
func (p *packet) encode() {
	without := p.WatchResponse
	without.WatchID = 0
	p.head = wire.AppendWatchHead(nil, &without)
}

func (p *packet) size() int { return len(p.head) + len(p.Events) }

// whole returns what can be handed on of a message that may be a fragment: the message itself to those who want fragments, all whole revisions to the
// others, nil if there are none yet.
func (f *feed) whole(p *packet) *packet {
	wants := f.group != nil && f.group.key.fragment || f.owner != nil && f.owner.key.fragment
	if wants || p.EventCount == 0 || !p.Fragment && f.held.EventCount == 0 {
		return p
	}
	if p.Fragment && f.held.EventCount > 0 && f.held.LastRevision == p.LastRevision { // a revision of many fragments
		f.held.Events, f.held.EventCount = append(f.held.Events, p.Events...), f.held.EventCount+p.EventCount
		return nil
	}
	all := packet{WatchResponse: p.WatchResponse}
	if f.held.EventCount > 0 {
		all.Events = append(append(make([]byte, 0, len(f.held.Events)+len(p.Events)), f.held.Events...), p.Events...)
		all.EventCount, all.FirstRevision = f.held.EventCount+p.EventCount, f.held.FirstRevision
		f.held = packet{}
	}
	all.Fragment = false
	if p.Fragment {
		all.cut(&f.held)
	}
	if all.EventCount == 0 {
		return nil
	}
	all.encode()
	return &all
}

// cut moves the events of the last revision to rest.
func (p *packet) cut(rest *packet) {
	*rest = *p
	previous, kept, count := int64(0), p.Events[:0], 0
	for tail := p.Events; ; count++ {
		e, after, ok := wire.NextEvent(tail)
		if !ok || e.ModRevision == p.LastRevision {
			break
		}
		previous, tail = e.ModRevision, after
		kept = p.Events[:len(p.Events)-len(after)]
	}
	rest.Events = append([]byte(nil), p.Events[len(kept):]...) // the rest of the message shall not be kept for it
	rest.EventCount, rest.FirstRevision = p.EventCount-count, p.LastRevision
	p.Events, p.EventCount, p.LastRevision = kept, count, previous
}

// after is the packet without the events up to a revision.
func (p *packet) after(revision int64) *packet {
	rest := packet{WatchResponse: p.WatchResponse, head: p.head}
	for {
		e, tail, ok := wire.NextEvent(rest.Events)
		if !ok {
			return &rest
		}
		if e.ModRevision > revision {
			rest.FirstRevision = e.ModRevision
			return &rest
		}
		rest.Events = tail
		rest.EventCount--
	}
}

// The fields that hidePrevious looks at: WatchResponse.events and Event.prev_kv.
const (
	eventsField   = 11
	previousField = 3
)

// hidePrevious takes out the previous versions that an etcd which had compacted at revision would not have: it looks them up at the revision before
// the event's. Since a watch begins at the compact revision or later, there is seldom one.
func (p *packet) hidePrevious(revision int64) {
	if p.EventCount == 0 || p.FirstRevision > revision {
		return
	}
	var out []byte
	for rest := p.Events; ; {
		e, tail, ok := wire.NextEvent(rest)
		if !ok {
			break
		}
		if e.ModRevision > revision {
			out = append(out, rest...)
			break
		}
		out = appendWithoutPrevious(out, e.Record)
		rest = tail
	}
	p.Events = out
}

// appendWithoutPrevious appends an event record without its previous version.
func appendWithoutPrevious(dst, record []byte) []byte {
	_, _, n := protowire.ConsumeTag(record)
	message, _ := protowire.ConsumeBytes(record[n:])
	var kept []byte
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			break // not so: package wire wrote it
		}
		if number != previousField {
			kept = append(kept, message[:n]...)
		}
		message = message[n:]
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, eventsField, protowire.BytesType), kept)
}

// notice is a packet of our own making with the header of one of the core's.
func notice(p *packet, set func(*wire.WatchResponse)) *packet {
	n := &packet{WatchResponse: wire.WatchResponse{Header: p.Header}}
	set(&n.WatchResponse)
	n.encode()
	return n
}

// idField is a watch ID as a field of a WatchResponse; nothing for 0, as proto3 has it.
func idField(id int64) []byte {
	if id == 0 {
		return nil
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, watchIDField, protowire.VarintType), uint64(id)) //nolint:gosec // proto encodes a negative int64 so
}
