// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// WatchKind is the member of a WatchRequest's oneof.
type WatchKind int

const (
	// WatchNone is a request without a member. etcd ignores it (api/v3rpc/watch.go), and so must a proxy.
	WatchNone WatchKind = iota
	// WatchCreate begins a watch.
	WatchCreate
	// WatchCancel ends one.
	WatchCancel
	// WatchProgress asks how far all watches of the stream are.
	WatchProgress
)

// WatchRequest is etcdserverpb.WatchRequest as the core reads it. Two creations that differ in WatchID only ask for the same events.
type WatchRequest struct {
	Kind WatchKind
	// WatchID is, of a creation, the one the client chose, 0 for the server's choice; of a cancellation, the watch to end.
	WatchID int64
	// Key and End are the core's. An empty key of a client is "\0", the smallest, as etcd has it.
	Key, End string
	// StartRevision is the first one of interest, as the tenant names it; 0 is the next one. etcd answers a negative one as compacted.
	StartRevision int64
	// ProgressNotify asks for the core's own progress notifications, PrevKV for the key's previous version, Fragment for events in pieces.
	ProgressNotify, PrevKV, Fragment bool
	// NoPut and NoDelete are the filters.
	NoPut, NoDelete bool
}

const (
	nameWatch       = "WatchRequest"
	nameWatchCreate = "WatchCreateRequest"
	nameWatchCancel = "WatchCancelRequest"
	nameWatchProg   = "WatchProgressRequest"
)

// The smallest key that etcd has. In range_end it means "to the end".
const zeroKey = "\x00"

// ParseWatchRequest reads a tenant's WatchRequest and gives it as the core's.
func ParseWatchRequest(t *tenancy.Tenant, request []byte) (WatchRequest, error) {
	if !t.Valid() {
		return WatchRequest{}, errNoTenant
	}
	if len(request) == 0 {
		return WatchRequest{}, nil
	}
	r, rest, ok := next(request)
	switch {
	case !ok:
		return WatchRequest{}, malformed(nameWatch)
	case r.key&7 != length || r.num() > protowire.Number(WatchProgress):
		return WatchRequest{}, unknown(nameWatch, r)
	case len(rest) > 0:
		return WatchRequest{}, secondWatch(rest)
	}
	var w WatchRequest
	var err error
	switch WatchKind(r.num()) {
	case WatchCreate:
		w, err = parseWatchCreate(t, r.data)
	case WatchCancel:
		w, err = parseWatchCancel(r.data)
	default:
		w.Kind, err = WatchProgress, parseNothing(nameWatchProg, r.data)
	}
	if err != nil {
		return WatchRequest{}, err
	}
	return w, nil
}

// secondWatch says what is wrong with a WatchRequest that goes on after its one member.
func secondWatch(message []byte) error {
	r, _, ok := next(message)
	switch {
	case !ok:
		return malformed(nameWatch)
	case r.key&7 != length || r.num() > protowire.Number(WatchProgress):
		return unknown(nameWatch, r)
	default:
		return repeated(nameWatch, r.num())
	}
}

// parseNothing reads a message that has no fields.
func parseNothing(name string, message []byte) error {
	return fields(name, message, func(record) bool { return false })
}

func parseWatchCreate(t *tenancy.Tenant, message []byte) (w WatchRequest, err error) {
	var before seen
	var s span
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return w, malformed(nameWatchCreate)
		}
		message = rest
		switch r.key {
		case 1<<3 | length:
			s.key = r.data
		case 2<<3 | length:
			s.end = r.data
		case 5<<3 | varint:
			w.filter(r.value)
			continue // the one field that repeats
		case 5<<3 | length:
			if !w.filters(r.data) {
				return w, malformed(nameWatchCreate)
			}
			continue
		default:
			if !w.scalar(r) {
				return w, unknown(nameWatchCreate, r)
			}
		}
		if before.again(r.num()) {
			return w, repeated(nameWatchCreate, r.num())
		}
	}
	if len(s.key) == 0 {
		s.key = []byte(zeroKey)
	}
	w.Kind = WatchCreate
	w.Key, w.End = t.Prefix.Range(string(s.key), string(s.end))
	return w, nil
}

// scalar takes over a number and tells whether it is known.
func (w *WatchRequest) scalar(r record) bool {
	switch r.key {
	case 3<<3 | varint:
		w.StartRevision = int64(r.value)
	case 4<<3 | varint:
		w.ProgressNotify = r.value != 0
	case 6<<3 | varint:
		w.PrevKV = r.value != 0
	case 7<<3 | varint:
		w.WatchID = int64(r.value)
	case 8<<3 | varint:
		w.Fragment = r.value != 0
	default:
		return false
	}
	return true
}

// The values of WatchCreateRequest.FilterType.
const (
	filterNoPut    = 0
	filterNoDelete = 1
)

// filter takes over one filter. etcd ignores those it does not know, and how often one is given.
func (w *WatchRequest) filter(value uint64) {
	switch enum(value) {
	case filterNoPut:
		w.NoPut = true
	case filterNoDelete:
		w.NoDelete = true
	}
}

// filters takes over packed filters and tells whether they can be read.
func (w *WatchRequest) filters(packed []byte) bool {
	for len(packed) > 0 {
		value, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return false
		}
		w.filter(value)
		packed = packed[n:]
	}
	return true
}

func parseWatchCancel(message []byte) (w WatchRequest, err error) {
	w.Kind = WatchCancel
	w.WatchID, err = parseID(nameWatchCancel, message)
	return w, err
}

// AppendWatchRequest appends a WatchRequest for the core; one of WatchNone is empty. A range that is not the tenant's is a BoundaryError, and
// dst comes back as it was given.
func AppendWatchRequest(dst []byte, t *tenancy.Tenant, w *WatchRequest) ([]byte, error) {
	if !t.Valid() {
		return dst, errNoTenant
	}
	if w.Kind == WatchNone {
		return dst, nil
	}
	out, m := open(dst, protowire.Number(w.Kind), len(w.Key)+len(w.End))
	switch w.Kind {
	case WatchCreate:
		if !t.Prefix.ContainsRange([]byte(w.Key), []byte(w.End)) {
			return dst, errEscape
		}
		out = w.appendCreate(out, t)
	case WatchCancel:
		out = appendInt(out, 1, w.WatchID)
	case WatchProgress, WatchNone:
	}
	return shut(out, m), nil
}

func (w *WatchRequest) appendCreate(dst []byte, t *tenancy.Tenant) []byte {
	dst = protowire.AppendString(protowire.AppendTag(dst, 1, protowire.BytesType), w.Key)
	if w.End != "" {
		dst = protowire.AppendString(protowire.AppendTag(dst, 2, protowire.BytesType), w.End)
	}
	dst = appendInt(dst, 3, t.Revisions.Since(w.StartRevision))
	dst = appendBool(dst, 4, w.ProgressNotify)
	if w.NoPut { // an element of a repeated field stands there even if it is zero
		dst = protowire.AppendVarint(protowire.AppendTag(dst, 5, protowire.VarintType), filterNoPut)
	}
	if w.NoDelete {
		dst = protowire.AppendVarint(protowire.AppendTag(dst, 5, protowire.VarintType), filterNoDelete)
	}
	dst = appendBool(dst, 6, w.PrevKV)
	dst = appendInt(dst, 7, w.WatchID)
	return appendBool(dst, 8, w.Fragment)
}
