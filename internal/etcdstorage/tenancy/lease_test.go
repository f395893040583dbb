// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"cmp"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestParseLeaseSpace(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "77", "2147483646"} {
		s, err := tenancy.ParseLeaseSpace(text)
		if err != nil || s.String() != text || s.IsZero() {
			t.Errorf("ParseLeaseSpace(%q) = %s, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "0", "2147483647", "4294967297", "-1", "0x10", "1.0", " 1"} {
		s, err := tenancy.ParseLeaseSpace(text)
		want := `lease space "` + text + `" must be a whole number from 1 to 2147483646, and no other tenant's of this core`
		if err == nil || err.Error() != want || !s.IsZero() {
			t.Errorf("ParseLeaseSpace(%q) = %s, %v", text, s, err)
		}
	}
}

// TestDeriveLeaseSpace pins derived tags: if they changed, running tenants would lose their leases.
func TestDeriveLeaseSpace(t *testing.T) {
	t.Parallel()
	for prefix, tag := range map[string]string{"/a/": "65876093", "/team-a/": "1530529091", "/registry/": "123690240"} {
		if got := tenancy.DeriveLeaseSpace(mustPrefix(t, prefix)).String(); got != tag {
			t.Errorf("the lease space of %s is %s, want %s", prefix, got, tag)
		}
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "77", "2147483646"} {
		s := must.Get(tenancy.ParseLeaseSpace(text)).Or(t)
		nobody := s.Core(-1)
		if _, ok := s.Visible(nobody); ok || nobody <= 0 || s.Core(1<<32) != nobody || s.Core(math.MinInt64) != nobody || s.Core(math.MaxInt64) != nobody {
			t.Errorf("what cannot be named must be one lease that nobody has: %d", nobody)
		}
		if s.Core(0) != 0 || s.Show(0) != 0 || s.Compare(0) != 0 {
			t.Error("no lease must stay no lease")
		}
		for _, id := range []int64{1, 2, 1 << 31, math.MaxUint32} {
			core := s.Core(id)
			back, ok := s.Visible(core)
			if !ok || back != id || s.Show(core) != id || core <= math.MaxUint32 || !s.Choosable(id) || s.Compare(id) != core {
				t.Errorf("lease %d is %d in the core and %d again", id, core, back)
			}
		}
		for _, id := range []int64{-1, 0, 1 << 32, math.MinInt64, math.MaxInt64} {
			if s.Choosable(id) {
				t.Errorf("%d can be chosen", id)
			}
		}
		for _, core := range []int64{5, -5, math.MaxUint32, nobody, nobody + 1<<32 + 5, nobody - 1<<32 + 5, math.MaxInt64, math.MinInt64} {
			if id, ok := s.Visible(core); ok || s.Show(core) != core {
				t.Errorf("the core's lease %d passes for %d", core, id)
			}
		}
	}
	if _, ok := (tenancy.LeaseSpace{}).Visible(5); ok {
		t.Error("nobody has a lease")
	}
}

// TestSpacesDoNotMeet: no number that a tenant sends becomes a lease of another.
func TestSpacesDoNotMeet(t *testing.T) {
	t.Parallel()
	a, errA := tenancy.ParseLeaseSpace("1")
	b, errB := tenancy.ParseLeaseSpace("2")
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		core := a.Core(rapid.Int64().Draw(t, "id"))
		if id, ok := b.Visible(core); ok {
			t.Fatalf("the other tenant's lease %d", id)
		}
	})
}

// TestCompareKeepsTheOrder: a Txn's comparison of leases comes out the same on the core's IDs as on the tenant's.
func TestCompareKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"1", "77", "2147483646"} {
		s := must.Get(tenancy.ParseLeaseSpace(text)).Or(t)
		number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-2, 3), rapid.Int64Range(1<<32-3, 1<<32+3))
		cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
			lease := rapid.OneOf(rapid.Int64Range(0, math.MaxUint32), rapid.Int64Range(0, 3), rapid.Int64Range(1<<32-3, 1<<32-1)).Draw(t, "lease")
			to := number.Draw(t, "compared to")
			if cmp.Compare(s.Core(lease), s.Compare(to)) != cmp.Compare(lease, to) {
				t.Fatalf("lease %d compares with %d as %d with %d does", lease, to, s.Core(lease), s.Compare(to))
			}
		})
	}
}
