// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"cmp"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestRevisionsKeepTheirOrder: whatever number a tenant names, it stands to the revision of a key at the core as it stands to what the tenant is shown of
// it, and to 0, which says that there is no key. Numbers from before the core went back are below those of all keys.
func TestRevisionsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		offset := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 50), rapid.Int64Range(1, 1<<40)).Draw(t, "offset")
		r := tenancy.NewRevisions(offset)
		near := rapid.Int64Range(-3, 60)
		named := rapid.OneOf(near, rapid.Map(near, func(n int64) int64 { return offset + n }), rapid.Int64Range(-1<<62, 1<<62)).Draw(t, "named")
		key := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(2, 60)).Draw(t, "key") // a key's revision, 0 of none
		if want, got := cmp.Compare(r.Show(key), named), cmp.Compare(key, r.Core(named)); want != got {
			t.Fatalf("offset %d: %d compared with %d is %d at the core", offset, r.Show(key), named, got)
		}
		if key > 0 && (r.Core(r.Show(key)) != key || r.Since(r.Show(key)) != key || r.Show(key) <= offset) {
			t.Fatalf("offset %d: revision %d is shown as %d", offset, key, r.Show(key))
		}
		if lost := named > 0 && named < r.Compacted(); lost != (named > 0 && named <= offset) || lost && r.Since(named) >= 0 {
			t.Fatalf("offset %d: a watch from %d begins at %d", offset, named, r.Since(named))
		}
	})
}
