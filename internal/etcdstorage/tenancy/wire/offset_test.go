// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
)

// TestAnOffsetShiftsEveryRevision: with an offset, the output is that without one, but for each field that etcd's messages call a revision.
func TestAnOffsetShiftsEveryRevision(t *testing.T) {
	t.Parallel()
	for kind, all := range map[string]map[string]rewriter{"requests": requests(), "responses": responses()} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			check(t, all, 100, func(t *rapid.T, r rewriter, g attacks.Generator) bool {
				in := r.message(g, g.IntN(2) == 0)
				tenant := own(t)
				plain, plainErr := r.rewrite(nil, tenant, in)
				offset := attacks.Either(g, int64(1), 2, 100, 1<<33)
				tenant.Revisions = tenancy.NewRevisions(offset)
				shifted, err := r.rewrite(nil, tenant, in)
				if (err == nil) != (plainErr == nil) || err != nil {
					if (err == nil) != (plainErr == nil) || err.Error() != plainErr.Error() {
						t.Fatalf("error %v, and without an offset %v", err, plainErr)
					}
					return false
				}
				want := r.decode(t, plain)
				shift(want.ProtoReflect(), offset, r.seen != nil, false)
				if got := r.decode(t, shifted); !proto.Equal(got, want) {
					t.Fatalf("in   %x\ngot  %v\nwant %v", in, got, want)
				}
				return true
			})
		})
	}
}

// shift changes all revisions of a message, which it knows by their fields' names.
func shift(m protoreflect.Message, offset int64, response, inTxn bool) {
	inTxn = inTxn || m.Descriptor().Name() == "TxnRequest"
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := string(field.Name())
		switch {
		case field.Kind() == protoreflect.MessageKind && field.IsList():
			for i := range v.List().Len() {
				shift(v.List().Get(i).Message(), offset, response, inTxn)
			}
		case field.Kind() == protoreflect.MessageKind:
			shift(v.Message(), offset, response, inTxn)
		case m.Descriptor().Name() == "CompactionRequest", !strings.HasSuffix(name, "revision"), v.Int() <= 0: // 0 and less stay
		case response:
			m.Set(field, protoreflect.ValueOfInt64(v.Int()+offset))
		case v.Int() > offset:
			m.Set(field, protoreflect.ValueOfInt64(v.Int()-offset))
		case name == "start_revision", name == "revision" && inTxn: // of the past that was lost: compacted
			m.Set(field, protoreflect.ValueOfInt64(math.MinInt64))
		default:
			m.Set(field, protoreflect.ValueOfInt64(1))
		}
		return true
	})
}
