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
	hourAgo := now.Add(-time.Hour)
	stopped := finding.Component{Name: "a", Problem: "it is scaled to 0", Renewed: &hourAgo}
	for _, test := range []struct {
		all          []finding.Component
		unread, want string
	}{
		{[]finding.Component{stopped, {Name: "a"}}, "Leases: forbidden", ""},
		{[]finding.Component{{Name: "b", Problem: "x"}}, "", ""},
		{[]finding.Component{stopped}, "", "not kept up to date: a: it is scaled to 0, last seen 60m ago"},
		{[]finding.Component{{Name: "b"}}, "Leases: forbidden", "not kept up to date: it is unknown whether a runs"},
	} {
		if got := finding.Unkept(test.all, "a", test.unread, now); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
