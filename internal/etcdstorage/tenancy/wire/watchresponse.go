// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// WatchResponse is etcdserverpb.WatchResponse as the tenant sees it, all revisions included. The message for a client is AppendWatchHead followed by Events, so that
// one piece of events can go to many watchers.
type WatchResponse struct {
	Header Header
	// CoreHeader is the header as it came from the core.
	CoreHeader                  Header
	WatchID                     int64
	Created, Canceled, Fragment bool
	CompactRevision             int64
	// CancelReason is one of etcd's fixed texts.
	CancelReason string
	// Events are the event records, with tags and lengths, as a part of what ParseWatchResponse returned. Any run of whole records is good
	// too: see NextEvent.
	Events     []byte
	EventCount int
	// FirstRevision and LastRevision are the mod revisions of the first and the last event.
	FirstRevision, LastRevision int64
}

const (
	nameWatchResponse = "WatchResponse"
	nameEvent         = "Event"
)

// eventField is WatchResponse.events.
const eventField protowire.Number = 11

// canceled is what a client is told in place of a reason that is not known here (rpctypes.ErrGRPCWatchCanceled).
const canceled = "etcdserver: watch canceled"

// ParseWatchResponse reads the core's WatchResponse and appends its events as the tenant sees them to dst. On any error dst comes back as it
// was given.
func ParseWatchResponse(dst []byte, t *tenancy.Tenant, response []byte) ([]byte, WatchResponse, error) {
	if !t.Valid() {
		return dst, WatchResponse{}, errNoTenant
	}
	var w WatchResponse
	var before seen
	out := dst
	for len(response) > 0 {
		r, rest, ok := next(response)
		if !ok {
			return dst, WatchResponse{}, undecodable(nameWatchResponse)
		}
		response = rest
		var err error
		switch r.key {
		case 1<<3 | length:
			w.CoreHeader, err = parseHeader(r.data)
			w.Header = w.CoreHeader.For(t)
		case 6<<3 | length:
			w.CancelReason = cancelReason(r.data)
		case uint64(eventField)<<3 | length:
			if out, err = w.event(out, t, r.data); err != nil {
				return dst, WatchResponse{}, err
			}
			continue // the one field that repeats
		default:
			if !w.scalar(r) {
				continue
			}
		}
		if err == nil && before.again(r.num()) {
			err = foreign(nameWatchResponse, "a field twice")
		}
		if err != nil {
			return dst, WatchResponse{}, err
		}
	}
	w.CompactRevision = t.Revisions.Show(w.CompactRevision)
	w.Events = out[len(dst):]
	return out, w, nil
}

// scalar takes over a number and tells whether it is known.
func (w *WatchResponse) scalar(r record) bool {
	switch r.key {
	case 2<<3 | varint:
		w.WatchID = int64(r.value)
	case 3<<3 | varint:
		w.Created = r.value != 0
	case 4<<3 | varint:
		w.Canceled = r.value != 0
	case 5<<3 | varint:
		w.CompactRevision = int64(r.value)
	case 7<<3 | varint:
		w.Fragment = r.value != 0
	default:
		return false
	}
	return true
}

// cancelReason returns the core's reason if it is one of etcd v3.7.3's fixed texts, none of which says anything of other tenants, and a plain
// one otherwise: no text of a newer core reaches a tenant unread. The texts are those of api/v3rpc/watch.go and storage/mvcc/watcher.go.
func cancelReason(text []byte) string {
	switch string(text) {
	case "":
		return ""
	case reasonCompacted:
		return reasonCompacted
	case reasonEmptyRange:
		return reasonEmptyRange
	case reasonDuplicateID:
		return reasonDuplicateID
	case reasonAuthToken:
		return reasonAuthToken
	case reasonAuthRevision:
		return reasonAuthRevision
	case reasonUserEmpty:
		return reasonUserEmpty
	case reasonPermission:
		return reasonPermission
	default:
		return canceled
	}
}

const (
	reasonCompacted    = "etcdserver: mvcc: required revision has been compacted"
	reasonEmptyRange   = "mvcc: watcher range is empty"
	reasonDuplicateID  = "mvcc: duplicate watch ID provided on the WatchStream"
	reasonAuthToken    = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
	reasonAuthRevision = "rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old"
	reasonUserEmpty    = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty"
	reasonPermission   = "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
)

// event appends one mvccpb.Event.
func (w *WatchResponse) event(dst []byte, t *tenancy.Tenant, message []byte) ([]byte, error) {
	prefix := len(t.Prefix.String())
	dst, m := open(dst, eventField, len(message)-prefix)
	var before seen
	var revision int64
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return dst, undecodable(nameEvent)
		}
		message = rest
		switch r.key {
		case 1<<3 | varint:
			dst = appendInt(dst, 1, int64(enum(r.value)))
		case 2<<3 | length, 3<<3 | length:
			var kv keyValue
			var err error
			if dst, kv, err = appendKV(dst, t, r.num(), r.data); err != nil {
				return dst, err
			}
			if r.num() == 2 {
				revision = kv.mod
			}
		default:
			continue
		}
		if before.again(r.num()) {
			return dst, foreign(nameEvent, "a field twice")
		}
	}
	if !before.again(2) {
		return dst, foreign(nameEvent, "no key")
	}
	if w.EventCount == 0 {
		w.FirstRevision = revision
	}
	w.EventCount++
	w.LastRevision = revision
	return shut(dst, m), nil
}

// AppendWatchHead appends all of a WatchResponse but its events.
func AppendWatchHead(dst []byte, w *WatchResponse) []byte {
	dst = AppendHeaderField(dst, w.Header)
	dst = appendInt(dst, 2, w.WatchID)
	dst = appendBool(dst, 3, w.Created)
	dst = appendBool(dst, 4, w.Canceled)
	dst = appendInt(dst, 5, w.CompactRevision)
	if w.CancelReason != "" {
		dst = protowire.AppendString(protowire.AppendTag(dst, 6, protowire.BytesType), w.CancelReason)
	}
	return appendBool(dst, 7, w.Fragment)
}

// Event is one of WatchResponse.Events.
type Event struct {
	// Record is the event with its tag and length.
	Record []byte
	// Delete tells a deletion from a put.
	Delete bool
	// ModRevision and CreateRevision are those of the event's key; a deletion has no CreateRevision.
	ModRevision, CreateRevision int64
}

// NextEvent takes the first event off WatchResponse.Events; ok is false at the end. It reads what this package wrote and nothing else.
func NextEvent(events []byte) (e Event, rest []byte, ok bool) {
	r, rest, ok := next(events)
	if !ok {
		return Event{}, nil, false
	}
	e.Record = events[:len(events)-len(rest)]
	for message := r.data; len(message) > 0; {
		var field record
		if field, message, ok = next(message); !ok {
			return Event{}, nil, false
		}
		switch field.key {
		case 1<<3 | varint:
			e.Delete = field.value == 1
		case 2<<3 | length:
			kv, err := parseKV(field.data)
			if err != nil {
				return Event{}, nil, false
			}
			e.ModRevision, e.CreateRevision = kv.mod, kv.create
		}
	}
	return e, rest, true
}
