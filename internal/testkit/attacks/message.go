// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Writer makes messages of any type, by their descriptors, as bytes that an encoder could have written: known fields of the right type, singular
// ones at most once. [Generator.Mutate] makes of them what no encoder writes.
type Writer struct {
	Generator
	// Whole gives each message its key and each oneof a member.
	Whole bool
	// Shuffled writes the fields of a message in any order; otherwise they are in the order of the descriptor.
	Shuffled bool
	// Value returns the content of a field that is not a message, as []byte or int64; nil means that the writer chooses. It sees the fields of a message
	// in the order of the descriptor.
	Value func(field protoreflect.FieldDescriptor) any
}

// Message returns a message whose fields hold messages, so deep at most.
func (w Writer) Message(md protoreflect.MessageDescriptor, depth int) []byte {
	chosen := map[protoreflect.Name]protoreflect.Name{}
	for i := range md.Oneofs().Len() {
		oneof := md.Oneofs().Get(i)
		if n := w.IntN(oneof.Fields().Len() + 1); n < oneof.Fields().Len() {
			chosen[oneof.Name()] = oneof.Fields().Get(n).Name()
		} else if w.Whole {
			chosen[oneof.Name()] = oneof.Fields().Get(0).Name()
		}
	}
	var records [][]byte
	for i := range md.Fields().Len() {
		field := md.Fields().Get(i)
		times := w.few()
		switch oneof := field.ContainingOneof(); {
		case oneof != nil && chosen[oneof.Name()] != field.Name():
			times = 0
		case oneof != nil || w.Whole && field.Name() == "key":
			times = 1
		case !field.IsList():
			times = min(times, 1)
		}
		for range times {
			records = append(records, w.record(field, depth))
		}
	}
	if w.Shuffled {
		w.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	}
	return slices.Concat(records...)
}

func (w Writer) record(field protoreflect.FieldDescriptor, depth int) []byte {
	number := field.Number()
	if field.Kind() == protoreflect.MessageKind {
		switch {
		case depth > 0:
			return appendBytes(nil, number, w.Message(field.Message(), depth-1))
		case w.Whole && field.Message().Name() == "RequestOp":
			return nil // one without a member would not be whole
		}
		return appendBytes(nil, number, nil)
	}
	value := w.Value(field)
	if value == nil {
		value = w.scalar(field.Kind())
	}
	if content, ok := value.([]byte); ok {
		return appendBytes(nil, number, content)
	}
	n, _ := value.(int64)
	if field.IsPacked() && w.once(2) {
		return appendBytes(nil, number, protowire.AppendVarint(protowire.AppendVarint(nil, uint64(n)), 1))
	}
	return appendVarint(nil, number, n)
}

// scalar returns what a sender may put into a field of a kind: everything, and often what is delicate.
func (w Writer) scalar(kind protoreflect.Kind) any {
	switch kind {
	case protoreflect.BytesKind, protoreflect.StringKind:
		return Either(w.Generator, w.anyKey(), w.bytes(8), make([]byte, 100+w.IntN(40)))
	case protoreflect.BoolKind:
		return Either(w.Generator, int64(0), 1, 2)
	case protoreflect.EnumKind:
		return Either(w.Generator, int64(0), 0, 1, 1, 2, 3, 4, 5, -1, 1<<32+1)
	default:
		return Either(w.Generator, 0, 1, 2, 5, 100, -1, math.MaxUint32, 1<<32, math.MaxInt64, math.MinInt64, int64(w.Uint64()), Either(w.Generator, w.Leases...))
	}
}

// sender gives the fields of a tenant's requests the content that etcd takes as a rule. It keeps what fields of one message have to do with each
// other.
type sender struct {
	Generator
	key              []byte
	noValue, noLease bool
}

// value is a Writer's.
func (s *sender) value(field protoreflect.FieldDescriptor) any {
	switch field.Kind() {
	case protoreflect.BytesKind:
		return s.content(field.Name())
	case protoreflect.StringKind:
		return []byte(Either(s.Generator, "mallory", "root", "", "\x00", "http://127.0.0.1:1", "3.6.0"))
	case protoreflect.BoolKind:
		return s.flag(field.Name())
	case protoreflect.EnumKind:
		if s.once(30) {
			return s.small()
		}
		return Either(s.Generator, int64(0), 0, 0, 0, int64(s.IntN(5)))
	default:
		return s.number(field)
	}
}

func (s *sender) content(name protoreflect.Name) []byte {
	switch name {
	case "key":
		s.key, s.noValue, s.noLease = s.anyKey(), s.once(10), s.once(10)
		return s.key
	case "range_end":
		return s.end(s.key)
	case "value":
		if s.noValue && !s.once(4) {
			return nil
		}
		return s.anyValue()
	default:
		return Either(s.Generator, s.Hostile...)
	}
}

func (s *sender) flag(name protoreflect.Name) any {
	given := s.once(4)
	switch name {
	case "ignore_value":
		given = s.noValue
	case "ignore_lease":
		given = s.noLease
	}
	if given {
		return int64(1)
	}
	return int64(0)
}

// leaseOf is a lease, and none for about half of all puts.
func (s *sender) leaseOf(field protoreflect.FieldDescriptor) int64 {
	if field.Name() == "lease" && field.Parent().Name() == "PutRequest" && (s.noLease && !s.once(4) || s.once(2)) {
		return 0
	}
	return s.lease()
}

func (s *sender) number(field protoreflect.FieldDescriptor) int64 {
	switch name := field.Name(); {
	case name == "revision" && field.Parent().Name() == "CompactionRequest" && s.once(2):
		return max(0, s.Revision-s.Int64N(50))
	case name == "lease" || name == "ID":
		return s.leaseOf(field)
	case name == "TTL":
		return Either(s.Generator, int64(1), 5, 100, 0, -1, 9_000_000_001, math.MaxInt64)
	case name == "watch_id":
		return Either(s.Generator, 0, 0, int64(s.IntN(40)), int64(s.IntN(40)), s.small(), -1)
	case name == "limit" || name == "version":
		return s.small()
	case field.Kind() == protoreflect.Uint64Kind:
		return int64(s.Uint64())
	default:
		return s.revision()
	}
}
