// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"
)

// writer makes messages of any type, by their descriptors, as bytes.
//
// A tidy one writes what some encoder could have written: known fields of the right type, in any order, singular ones at most once. One that
// is not tidy breaks all of these rules now and then: fields that nobody knows or of another wire type, singular fields and members of a oneof
// many times over, messages in pieces, odd varints.
type writer struct {
	tidy bool
	// whole makes it choose a member for each oneof.
	whole bool
	// value gives the content of a field that is not a message; nil content means that the writer shall choose.
	value func(t *rapid.T, field protoreflect.FieldDescriptor) any
}

// canary stands in everything that a tenant must never see.
const canary = "another-tenants-secret"

func (w writer) message(t *rapid.T, md protoreflect.MessageDescriptor, depth int) []byte {
	var records [][]byte
	if w.tidy {
		records = w.tidyRecords(t, md, depth)
	} else {
		for range rapid.IntRange(0, 5).Draw(t, "fields") {
			records = append(records, w.looseRecord(t, md, depth))
		}
	}
	if len(records) > 1 {
		records = rapid.Permutation(records).Draw(t, "order")
	}
	return slices.Concat(records...)
}

func (w writer) tidyRecords(t *rapid.T, md protoreflect.MessageDescriptor, depth int) (records [][]byte) {
	for i := range md.Oneofs().Len() {
		members := md.Oneofs().Get(i).Fields()
		least := -1
		if w.whole {
			least = 0
		}
		if n := rapid.IntRange(least, members.Len()-1).Draw(t, "member"); n >= 0 {
			records = append(records, w.record(t, members.Get(n), depth))
		}
	}
	for i := range md.Fields().Len() {
		field := md.Fields().Get(i)
		if field.ContainingOneof() != nil {
			continue
		}
		times := rapid.IntRange(0, 3).Draw(t, "times of "+string(field.Name()))
		if !field.IsList() {
			times = min(times, 1)
		}
		for range times {
			records = append(records, w.record(t, field, depth))
		}
	}
	return records
}

func (w writer) looseRecord(t *rapid.T, md protoreflect.MessageDescriptor, depth int) []byte {
	odd := rapid.IntRange(0, 19).Draw(t, "odd")
	if odd > 1 && md.Fields().Len() > 0 {
		return w.record(t, md.Fields().Get(rapid.IntRange(0, md.Fields().Len()-1).Draw(t, "field")), depth)
	}
	num := protowire.Number(rapid.IntRange(1, 70).Draw(t, "number"))
	typ := protowire.Type(rapid.IntRange(0, 5).Draw(t, "wire type"))
	if typ == protowire.BytesType {
		num = protowire.Number(rapid.IntRange(15, 63).Draw(t, "unknown number")) // below are fields that may well hold a text
	}
	b := protowire.AppendTag(nil, num, typ)
	switch typ {
	case protowire.VarintType:
		return protowire.AppendVarint(b, rapid.Uint64().Draw(t, "varint"))
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(b, 1)
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(b, 1)
	case protowire.BytesType:
		return protowire.AppendString(b, canary)
	case protowire.StartGroupType:
		return protowire.AppendTag(b, num, protowire.EndGroupType)
	default:
		return b
	}
}

func (w writer) record(t *rapid.T, field protoreflect.FieldDescriptor, depth int) []byte {
	num := field.Number()
	if field.Kind() == protoreflect.MessageKind {
		var inner []byte
		switch {
		case depth > 0:
			inner = w.message(t, field.Message(), depth-1)
		case w.whole && field.Message().Name() == "RequestOp":
			return nil // one without a member would not be whole
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), inner)
	}
	value := w.value(t, field)
	if value == nil {
		value = w.scalar(t, field)
	}
	switch v := value.(type) {
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), v)
	case int64:
		if field.IsPacked() && rapid.Bool().Draw(t, "packed") {
			packed := protowire.AppendVarint(protowire.AppendVarint(nil, uint64(v)), 1)
			return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), packed)
		}
		return w.varint(t, protowire.AppendTag(nil, num, protowire.VarintType), uint64(v))
	default:
		panic("no such value")
	}
}

// varint appends a number, in more bytes than it needs if the writer is not tidy.
func (w writer) varint(t *rapid.T, dst []byte, v uint64) []byte {
	dst = protowire.AppendVarint(dst, v)
	if w.tidy || protowire.SizeVarint(v) > 7 || rapid.IntRange(0, 9).Draw(t, "padded") > 0 {
		return dst
	}
	dst[len(dst)-1] |= 0x80
	return append(dst, 0x80, 0x00)
}

func (w writer) scalar(t *rapid.T, field protoreflect.FieldDescriptor) any {
	switch field.Kind() {
	case protoreflect.BytesKind:
		return bytesOf(t, string(field.Name()))
	case protoreflect.StringKind:
		return rapid.SampledFrom([][]byte{nil, []byte(canary), []byte("etcdserver: mvcc: required revision has been compacted")}).
			Draw(t, string(field.Name()))
	case protoreflect.BoolKind:
		return rapid.SampledFrom([]int64{0, 1, 2}).Draw(t, string(field.Name()))
	case protoreflect.EnumKind:
		return rapid.SampledFrom([]int64{0, 0, 1, 1, 2, 3, 4, 5, -1, 1<<32 + 1}).Draw(t, string(field.Name()))
	default:
		return numberOf(t, string(field.Name()))
	}
}

// bytesOf draws what a tenant may send as key, end or value: everything, and the delicate things often.
func bytesOf(t *rapid.T, name string) []byte {
	return rapid.OneOf(
		rapid.SampledFrom([][]byte{
			nil, {0}, {0}, []byte("a"), []byte("b"), []byte("/"), {0xff}, {0xff, 0xff}, {0, 0}, []byte("a\x00"), []byte(ownPrefix),
			[]byte(ownPrefix[:len(ownPrefix)-1] + "0"), []byte("/other/" + canary), []byte("../"), make([]byte, 120), make([]byte, 127),
		}),
		rapid.SliceOfN(rapid.Byte(), 1, 8),
		rapid.SliceOfN(rapid.Byte(), 100, 140),
	).Draw(t, name)
}

// numberOf draws 64 bits: revisions, limits, lease IDs.
func numberOf(t *rapid.T, name string) int64 {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 2, 5, 100, -1, 1<<32 - 1, 1 << 32, 1<<63 - 1, -1 << 63, ownTag << 32, ownTag<<32 | 5, (ownTag + 1) << 32}),
		rapid.Int64(),
	).Draw(t, name)
}
