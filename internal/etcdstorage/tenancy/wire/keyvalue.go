// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// Header is etcdserverpb.ResponseHeader. It passes from the core to the tenant as it is, but for the revision, which is the whole core's, as clients
// compare it with the revisions of keys, with the tenant's offset.
type Header struct {
	ClusterID, MemberID uint64
	Revision            int64
	RaftTerm            uint64
}

const (
	headerField protowire.Number = 1
	nameHeader                   = "ResponseHeader"
)

func parseHeader(message []byte) (h Header, err error) {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return h, undecodable(nameHeader)
		}
		message = rest
		switch r.key {
		case 1<<3 | varint:
			h.ClusterID = r.value
		case 2<<3 | varint:
			h.MemberID = r.value
		case 3<<3 | varint:
			h.Revision = int64(r.value)
		case 4<<3 | varint:
			h.RaftTerm = r.value
		default:
			continue
		}
		if before.again(r.num()) {
			return h, foreign(nameHeader, "a field twice")
		}
	}
	return h, nil
}

// For returns the header as the tenant sees it.
func (h Header) For(t *tenancy.Tenant) Header {
	h.Revision = t.Revisions.Show(h.Revision)
	return h
}

// AppendHeaderField appends a header as field 1, which it is in every response of etcd. On its own it is a whole CompactionResponse, PutResponse
// or LeaseRevokeResponse.
func AppendHeaderField(dst []byte, h Header) []byte {
	dst, m := open(dst, headerField, 0)
	dst = appendVarint(dst, 1, h.ClusterID)
	dst = appendVarint(dst, 2, h.MemberID)
	dst = appendInt(dst, 3, h.Revision)
	dst = appendVarint(dst, 4, h.RaftTerm)
	return shut(dst, m)
}

// keyValue is mvccpb.KeyValue.
type keyValue struct {
	key, value           []byte
	create, mod, version int64
	lease                int64
	// unordered is set if the fields are not in the order of their numbers, as no encoder of etcd's writes them.
	unordered bool
}

const nameKV = "KeyValue"

func parseKV(message []byte) (kv keyValue, err error) {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return kv, undecodable(nameKV)
		}
		message = rest
		switch r.key {
		case 1<<3 | length:
			kv.key = r.data
		case 2<<3 | varint:
			kv.create = int64(r.value)
		case 3<<3 | varint:
			kv.mod = int64(r.value)
		case 4<<3 | varint:
			kv.version = int64(r.value)
		case 5<<3 | length:
			kv.value = r.data
		case 6<<3 | varint:
			kv.lease = int64(r.value)
		default:
			continue
		}
		kv.unordered = kv.unordered || before>>uint64(r.num()) != 0
		if before.again(r.num()) {
			return kv, foreign(nameKV, "a field twice")
		}
	}
	return kv, nil
}

// appendKV appends the core's KeyValue as the tenant sees it, and returns it with the tenant's revisions. Unless the tenant has an offset of revisions,
// dst may reach up to message in one array, and into what was read before: fields are written in the order in which they are read, and none becomes longer.
func appendKV(dst []byte, t *tenancy.Tenant, num protowire.Number, message []byte) ([]byte, keyValue, error) {
	kv, err := parseKV(message)
	if err == nil && kv.unordered {
		kv, err = parseKV(bytes.Clone(message))
	}
	if err != nil {
		return dst, kv, err
	}
	key, err := t.Prefix.Strip(kv.key)
	if err != nil {
		return dst, kv, foreign(nameKV, "a key that is not the tenant's")
	}
	kv.create, kv.mod = t.Revisions.Show(kv.create), t.Revisions.Show(kv.mod)
	dst, m := open(dst, num, len(message)-len(t.Prefix.String()))
	dst = appendBytes(dst, 1, key)
	dst = appendInt(dst, 2, kv.create)
	dst = appendInt(dst, 3, kv.mod)
	dst = appendInt(dst, 4, kv.version)
	dst = appendBytes(dst, 5, kv.value)
	dst = appendInt(dst, 6, t.Leases.Show(kv.lease))
	return shut(dst, m), kv, nil
}
