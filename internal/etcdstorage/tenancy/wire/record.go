// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// record is one field as it stands on the wire.
type record struct {
	// key is the field's number and wire type, as on the wire: number<<3 | type. Constants made by varint and length name it.
	key uint64
	// value is a varint's value, data what a length-delimited field holds. For other wire types both are zero.
	value uint64
	data  []byte
}

// Wire types within a key: a case reads "1<<3 | length".
const (
	varint = uint64(protowire.VarintType)
	length = uint64(protowire.BytesType)
)

func (r record) num() protowire.Number { return protowire.Number(r.key >> 3) }

// next reads the first record of a message. ok is false if it is not a record: a truncated or overlong varint, a length beyond the message, a
// field number that protobuf does not have, an end of a group that did not begin.
func next(message []byte) (r record, rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(message)
	if n < 0 {
		return record{}, nil, false
	}
	r.key, rest = uint64(num)<<3|uint64(typ), message[n:]
	switch typ {
	case protowire.VarintType:
		r.value, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		r.data, n = protowire.ConsumeBytes(rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, rest)
	}
	if n < 0 {
		return record{}, nil, false
	}
	return r, rest[n:], true
}

// seen remembers which singular fields of a message occurred. Field numbers are taken modulo 64, which keeps all of etcd's apart: 0 is not a
// field number and stands for Compare.range_end, 64.
type seen uint64

// again tells whether a field occurred before, and notes it.
func (s *seen) again(num protowire.Number) bool {
	bit := seen(1) << (uint32(num) & 63)
	if *s&bit != 0 {
		return true
	}
	*s |= bit
	return false
}

// responseFields reads a response of the core; take reports whether there may be only one of a field.
func responseFields(name string, message []byte, take func(r record) (once bool, err error)) error {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		if !ok {
			return undecodable(name)
		}
		message = rest
		once, err := take(r)
		if err == nil && once && before.again(r.num()) {
			err = foreign(name, "a field twice")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fields reads a request that has each field once; take reports whether it knows one.
func fields(name string, message []byte, take func(r record) bool) error {
	var before seen
	for len(message) > 0 {
		r, rest, ok := next(message)
		switch {
		case !ok:
			return malformed(name)
		case !take(r):
			return unknown(name, r)
		case before.again(r.num()):
			return repeated(name, r.num())
		}
		message = rest
	}
	return nil
}

// mark is a length-prefixed message that is being appended.
type mark struct{ start, width int }

// open begins a message as field num: it leaves as much room for the length as guess, the likely number of bytes, would need.
func open(dst []byte, num protowire.Number, guess int) ([]byte, mark) {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	width := protowire.SizeVarint(uint64(max(guess, 0)))
	for range width {
		dst = append(dst, 0)
	}
	return dst, mark{start: len(dst), width: width}
}

// shut writes the length of the message that open began; if the guess was wrong, the message moves by some bytes.
func shut(dst []byte, m mark) []byte {
	size := len(dst) - m.start
	width := protowire.SizeVarint(uint64(size))
	if width != m.width {
		begin := m.start - m.width + width
		for range width - m.width {
			dst = append(dst, 0)
		}
		copy(dst[begin:begin+size], dst[m.start:m.start+size])
		dst, m.start = dst[:begin+size], begin
	}
	protowire.AppendVarint(dst[:m.start-width], uint64(size))
	return dst
}

// appendVarint appends a field that is not there if it is zero, as proto3 has it. Negative numbers are sign-extended, enums too.
func appendVarint(dst []byte, num protowire.Number, value uint64) []byte {
	if value == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), value)
}

func appendInt(dst []byte, num protowire.Number, value int64) []byte {
	return appendVarint(dst, num, uint64(value))
}

func appendBool(dst []byte, num protowire.Number, value bool) []byte {
	return appendVarint(dst, num, protowire.EncodeBool(value))
}

func appendBytes(dst []byte, num protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), value)
}

// enum is a varint as protobuf reads an enum: its lower 32 bits.
func enum(value uint64) int32 { return int32(value) }
