// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding_test

import (
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// What a component reports may be old while none works, and while it is unknown whether one does.
func TestUnkept(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	stopped := finding.Keeper{Name: "a", Problem: "it is scaled to 0", Seen: now.Add(-time.Hour)}
	for _, test := range []struct {
		all          []finding.Keeper
		unread, want string
	}{
		{[]finding.Keeper{stopped, {Name: "a"}}, "Leases: forbidden", ""},
		{[]finding.Keeper{{Name: "b", Problem: "x"}}, "", ""},
		{[]finding.Keeper{stopped}, "", "not kept up to date: a: it is scaled to 0, last seen 60m ago"},
		{[]finding.Keeper{{Name: "b"}}, "Leases: forbidden", "not kept up to date: it is unknown whether a runs"},
	} {
		if got := finding.Unkept(test.all, "a", test.unread, now); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
