// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcdisolation

import (
	"bytes"
	"math"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Words are what requests are made of.
type Words struct {
	// Own are keys that the tenant uses, as it names them.
	Own [][]byte
	// Hostile are keys that it has no business with: others' keys as the core names them, and bytes that upset bookkeeping.
	Hostile [][]byte
	// Leases are IDs of its own leases and of others', as anyone who owns them sees them.
	Leases []int64
	// Revision is about where the store was when the campaign began.
	Revision int64
}

// OwnKeys returns short keys, some of which are prefixes of others.
func OwnKeys() [][]byte {
	var keys [][]byte
	for _, k := range []string{
		"a", "a/", "a/1", "a/2", "a/22", "b", "b\x00", "c/0", "c/1", "c/2", "c/3", "z", "/", "/registry/pods/x", "compact_rev_key", "\x01", "\xff", "\xff\xff",
	} {
		keys = append(keys, []byte(k))
	}
	return keys
}

// oddKeys are bytes that upset bookkeeping whatever others keep.
func oddKeys() [][]byte {
	var keys [][]byte
	for _, k := range []string{"", "\x00", "\x00\x00", "\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", "/", "//", "../", "/../", "..", "\x7f", "0", "/.", "\xc3\x28"} {
		keys = append(keys, []byte(k))
	}
	return keys
}

// A Generator makes requests by chance. Two generators with equal words and chance make the same.
type Generator struct {
	*Words
	*rand.Rand
}

// NewGenerator returns the generator of the request with this number.
func NewGenerator(w *Words, seed, number uint64) Generator {
	return Generator{Words: w, Rand: rand.New(rand.NewPCG(seed, number))}
}

// once in n times it is true.
func (g Generator) once(n int) bool { return g.IntN(n) == 0 }

// either returns one of them.
func either[T any](g Generator, of ...T) T { return of[g.IntN(len(of))] }

// Key returns a key: mostly one of its own.
func (g Generator) Key() []byte {
	switch {
	case !g.once(3):
		return either(g, g.Own...)
	case !g.once(4):
		return either(g, g.Hostile...)
	case g.once(50):
		return bytes.Repeat([]byte{'k'}, 1+g.IntN(100_000))
	default:
		return g.bytes(12)
	}
}

func (g Generator) bytes(most int) []byte {
	out := make([]byte, g.IntN(most+1))
	for i := range out {
		out[i] = byte(g.Uint32())
	}
	return out
}

// end returns the end of a range that begins at key: none, all from there on, the prefix's, or anything.
func (g Generator) end(key []byte) []byte {
	switch g.IntN(8) {
	case 0, 1, 2:
		return nil
	case 3:
		return []byte{0}
	case 4:
		return append(bytes.Clone(key), 0)
	case 5:
		return afterPrefix(key)
	case 6:
		return either(g, g.Hostile...)
	default:
		return g.Key()
	}
}

// afterPrefix is the first key after all that begin with the prefix, as etcd's clients compute it.
func afterPrefix(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}

// Value returns a value that is nearly always short.
func (g Generator) Value() []byte {
	if g.once(2000) {
		return bytes.Repeat([]byte{'v'}, g.IntN(3<<20))
	}
	if g.once(20) {
		return bytes.Repeat([]byte{'v'}, g.IntN(2000))
	}
	return g.bytes(20)
}

// lease returns an ID: none, its own, another's, or one that is special to integers.
func (g Generator) lease() int64 {
	switch g.IntN(6) {
	case 0, 1:
		return 0
	case 2, 3:
		return either(g, g.Leases...)
	case 4:
		id := either(g, g.Leases...)
		return either(g, id&math.MaxUint32, id|1<<62, id^1<<32, -id, id+1, id>>32)
	default:
		return either(g, 1, -1, math.MaxInt64, math.MinInt64, math.MaxUint32, math.MaxUint32+1, g.Int64(), -g.Int64N(1<<40))
	}
}

// revision returns 0 mostly, else one around where the store is, or none that there is.
func (g Generator) revision() int64 {
	switch g.IntN(8) {
	case 0, 1, 2, 3, 4:
		return 0
	case 5, 6:
		return max(1, g.Revision+g.Int64N(2000)-100)
	default:
		return either(g, 1, -1, math.MaxInt64, math.MinInt64, g.Int64())
	}
}

// small returns one of the numbers that limits and enumerations are tested with.
func (g Generator) small() int64 {
	return either(g, int64(0), 0, 0, 0, 0, 1, 2, 3, 4, 5, 10, -1, 1000, math.MaxInt32, math.MaxInt64, math.MinInt64)
}

// order returns a number for an enumeration that has 0 to 4 at most.
func (g Generator) order() int32 {
	if g.once(30) {
		return int32(g.small())
	}
	return int32(either(g, 0, 0, 0, 0, g.IntN(5)))
}

// Range returns a read of any shape.
func (g Generator) Range() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: g.Key()}
	r.RangeEnd = g.end(r.Key)
	if g.once(2) {
		return r
	}
	r.Limit, r.Revision = g.small(), g.revision()
	r.SortOrder, r.SortTarget = pb.RangeRequest_SortOrder(g.order()%3), pb.RangeRequest_SortTarget(g.order())
	if g.once(50) {
		r.SortOrder = pb.RangeRequest_SortOrder(g.small())
	}
	r.Serializable, r.KeysOnly, r.CountOnly = g.once(6), g.once(4), g.once(6)
	if g.once(4) {
		r.MinModRevision, r.MaxModRevision = g.revision(), g.revision()
		r.MinCreateRevision, r.MaxCreateRevision = g.revision(), g.revision()
	}
	return r
}

// Put returns a write.
func (g Generator) Put() *pb.PutRequest {
	p := &pb.PutRequest{Key: g.Key(), Value: g.Value()}
	if g.once(2) {
		p.Lease = g.lease()
	}
	p.PrevKv, p.IgnoreValue, p.IgnoreLease = g.once(3), g.once(10), g.once(10)
	if p.IgnoreValue && !g.once(4) {
		p.Value = nil
	}
	if p.IgnoreLease && !g.once(4) {
		p.Lease = 0
	}
	return p
}

// Delete returns a deletion.
func (g Generator) Delete() *pb.DeleteRangeRequest {
	d := &pb.DeleteRangeRequest{Key: g.Key(), PrevKv: g.once(2)}
	if g.once(2) {
		d.RangeEnd = g.end(d.Key)
	}
	return d
}

// Compare returns one condition of a transaction.
func (g Generator) Compare() *pb.Compare {
	c := &pb.Compare{Key: g.Key(), Result: pb.Compare_CompareResult(g.order() % 4), Target: pb.Compare_CompareTarget(g.order())}
	if g.once(50) {
		c.Result, c.Target = pb.Compare_CompareResult(g.small()), pb.Compare_CompareTarget(g.small())
	}
	if g.once(4) {
		c.RangeEnd = g.end(c.Key)
	}
	target := int32(c.Target)
	if g.once(20) {
		target = g.order() // what is compared is not what is given
	}
	switch target {
	case 0:
		c.TargetUnion = &pb.Compare_Version{Version: g.small()}
	case 1:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: g.revision()}
	case 2:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: g.revision()}
	case 3:
		c.TargetUnion = &pb.Compare_Value{Value: g.Value()}
	case 4:
		c.TargetUnion = &pb.Compare_Lease{Lease: g.lease()}
	}
	return c
}

// Txn returns a transaction whose branches may hold transactions, so deep at most.
func (g Generator) Txn(depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range g.few() {
		t.Compare = append(t.Compare, g.Compare())
	}
	for range g.few() {
		t.Success = append(t.Success, g.op(depth))
	}
	for range g.few() {
		t.Failure = append(t.Failure, g.op(depth))
	}
	return t
}

// few is a number of parts: seldom as many as etcd takes, or more.
func (g Generator) few() int {
	if g.once(400) {
		return either(g, 127, 128, 129, 300)
	}
	return either(g, 0, 1, 1, 2, 3)
}

func (g Generator) op(depth int) *pb.RequestOp {
	switch n := g.IntN(14); {
	case n < 4:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: g.Range()}}
	case n < 8:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: g.Put()}}
	case n < 11:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: g.Delete()}}
	case n < 13 && depth > 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.Txn(depth - 1)}}
	case g.once(4):
		return &pb.RequestOp{}
	default:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: g.Range()}}
	}
}

// nested is a transaction within a transaction and so on, with a read at the bottom.
func (g Generator) nested(depth int) *pb.TxnRequest {
	t := g.Txn(0)
	for range depth {
		t = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}}}
	}
	return t
}

// Compact returns a request to forget history.
func (g Generator) Compact() *pb.CompactionRequest {
	revision := g.revision()
	if g.once(2) {
		revision = max(0, g.Revision-g.Int64N(50))
	}
	return &pb.CompactionRequest{Revision: revision, Physical: g.once(3)}
}

// Watch returns a message of a watch stream.
func (g Generator) Watch() *pb.WatchRequest {
	switch g.IntN(10) {
	case 0:
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	case 1, 2, 3:
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: g.watchID()}}}
	case 4:
		if g.once(4) {
			return &pb.WatchRequest{}
		}
	}
	c := &pb.WatchCreateRequest{
		Key: g.Key(), StartRevision: g.revision(), ProgressNotify: g.once(4), PrevKv: g.once(2), Fragment: g.once(4), WatchId: g.watchID(),
	}
	c.RangeEnd = g.end(c.Key)
	if g.once(6) {
		c.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_FilterType(g.order())}
	}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}}
}

func (g Generator) watchID() int64 {
	if g.once(2) {
		return 0
	}
	return either(g, int64(g.IntN(40)), int64(g.IntN(40)), g.small(), -1)
}
