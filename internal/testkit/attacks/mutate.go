// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"bytes"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// A field is one field of a message as it stands on the wire, tag included.
type field struct {
	number protowire.Number
	kind   protowire.Type
	raw    []byte
	// value is what is inside when the kind is BytesType.
	value []byte
}

// split takes a message apart; what cannot be read stays together at the end.
func split(message []byte) (fields []field, rest []byte) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fields, message
		}
		m := protowire.ConsumeFieldValue(number, kind, message[n:])
		if m < 0 {
			return fields, message
		}
		f := field{number: number, kind: kind, raw: message[:n+m]}
		if kind == protowire.BytesType {
			f.value, _ = protowire.ConsumeBytes(message[n:])
		}
		fields, message = append(fields, f), message[n+m:]
	}
	return fields, nil
}

func join(fields []field, rest []byte) []byte {
	var out []byte
	for _, f := range fields {
		out = append(out, f.raw...)
	}
	return append(out, rest...)
}

func bytesField(number protowire.Number, value []byte) field {
	return field{number: number, kind: protowire.BytesType, raw: appendBytes(nil, number, value), value: value}
}

// Mutate returns bytes that a client library would not make of the message: fields twice or in pieces, unknown or of the wrong kind, lengths
// that lie, or noise.
func (g Generator) Mutate(message []byte) []byte {
	for range 1 + g.IntN(2) {
		if g.once(5) {
			message = g.noise(message)
		} else {
			message = g.restructure(message, 4)
		}
	}
	return message
}

// noise knows nothing of fields.
func (g Generator) noise(message []byte) []byte {
	out := bytes.Clone(message)
	switch g.IntN(5) {
	case 0:
		return g.bytes(64)
	case 1:
		return out[:g.IntN(len(out)+1)]
	case 2:
		return append(out, g.bytes(8)...)
	case 3:
		at := g.IntN(len(out) + 1)
		return append(append(bytes.Clone(out[:at]), g.bytes(4)...), out[at:]...)
	default:
		for range 1 + g.IntN(3) {
			if len(out) > 0 {
				out[g.IntN(len(out))] ^= 1 << g.IntN(8)
			}
		}
		return out
	}
}

// restructure changes the list of fields, or that of one which looks like a message.
func (g Generator) restructure(message []byte, depth int) []byte {
	fields, rest := split(message)
	if len(fields) == 0 {
		return g.unknownField(bytes.Clone(message))
	}
	n := g.IntN(len(fields))
	f := fields[n]
	if depth > 0 && f.kind == protowire.BytesType && len(f.value) > 1 && g.once(2) {
		if inner, odd := split(f.value); len(inner) > 0 && len(odd) == 0 {
			fields[n] = bytesField(f.number, g.restructure(f.value, depth-1))
			return join(fields, rest)
		}
	}
	return g.alter(fields, n, rest)
}

// alter changes the n-th field, or the order of all.
func (g Generator) alter(fields []field, n int, rest []byte) []byte {
	f := fields[n]
	switch g.IntN(9) {
	case 0: // twice
		return append(join(fields, rest), f.raw...)
	case 1: // twice, and the two differ: which one counts?
		return append(join(fields, rest), g.variant(f).raw...)
	case 2:
		fields = append([]field{g.variant(f)}, fields...)
	case 3: // a message in two pieces is merged by protobuf
		fields = g.cut(fields, n)
	case 4:
		fields = append(fields[:n:n], fields[n+1:]...)
	case 5:
		g.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	case 6:
		fields[n] = g.renumbered(f)
	case 7:
		return g.unknownField(join(fields, rest))
	default:
		fields[n] = g.overlong(f)
	}
	return join(fields, rest)
}

// cut takes the n-th field, if it is a message, into two of the same number.
func (g Generator) cut(fields []field, n int) []field {
	f := fields[n]
	inner, odd := split(f.value)
	if f.kind != protowire.BytesType || len(inner) < 2 || len(odd) > 0 {
		return fields
	}
	at := g.IntN(len(inner))
	fields[n] = bytesField(f.number, join(inner[:at], nil))
	return append(fields, bytesField(f.number, join(inner[at:], nil)))
}

// variant is another value for a field: a key of somebody else, an ID, or a message.
func (g Generator) variant(f field) field {
	switch f.kind {
	case protowire.BytesType:
		value := Either(g, Either(g, g.Hostile...), g.anyKey(), nil, appendBytes(nil, 1, Either(g, g.Hostile...)))
		return bytesField(f.number, value)
	case protowire.VarintType:
		return field{number: f.number, kind: f.kind, raw: appendVarint(nil, f.number, Either(g, g.lease(), g.small(), g.revision()))}
	default:
		return f
	}
}

// renumbered gives a field another number, or another kind.
func (g Generator) renumbered(f field) field {
	number := Either(g, protowire.Number(1+g.IntN(16)), 64, 1000, protowire.MaxValidNumber)
	if f.kind == protowire.BytesType && g.once(2) {
		return bytesField(number, f.value)
	}
	kind := protowire.Type(g.IntN(8))
	return field{number: number, raw: append(protowire.AppendTag(nil, f.number, kind), f.raw...)}
}

// unknownField adds one that etcd does not know: a group, a deep nest, a length that lies, or an old-fashioned number.
func (g Generator) unknownField(message []byte) []byte {
	number := Either(g, protowire.Number(1+g.IntN(20)), 99, 19_000, protowire.MaxValidNumber)
	switch g.IntN(6) {
	case 0:
		out := protowire.AppendTag(message, number, protowire.StartGroupType)
		out = appendBytes(out, 1, Either(g, g.Hostile...))
		if g.once(3) {
			return out // it never ends
		}
		return protowire.AppendTag(out, number, protowire.EndGroupType)
	case 1:
		depth := Either(g, 3, 100, 5000)
		return append(message, bytes.Repeat(protowire.AppendTag(nil, number, protowire.StartGroupType), depth)...)
	case 2:
		out := protowire.AppendTag(message, number, protowire.BytesType)
		return protowire.AppendVarint(out, Either(g, uint64(1000), 1<<31-1, 1<<31, 1<<32, 1<<40, math.MaxInt64, math.MaxUint64))
	case 3:
		return protowire.AppendFixed64(protowire.AppendTag(message, number, protowire.Fixed64Type), g.Uint64())
	case 4:
		return append(message, Either(g, []byte{0}, []byte{0x07}, []byte{0x80}, bytes.Repeat([]byte{0xff}, 11), []byte{0x08, 0x80, 0x80, 0x00})...)
	default:
		return appendBytes(message, number, Either(g, g.Hostile...))
	}
}

// overlong writes a field's tag with more bytes than it needs, which protobuf allows.
func (g Generator) overlong(f field) field {
	_, _, n := protowire.ConsumeTag(f.raw)
	tag := bytes.Clone(f.raw[:n])
	tag[len(tag)-1] |= 0x80
	for range g.IntN(3) {
		tag = append(tag, 0x80)
	}
	return field{number: f.number, raw: append(append(tag, 0), f.raw[n:]...)}
}
