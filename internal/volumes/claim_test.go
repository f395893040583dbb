// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/volumes"
)

// A claim is explained by its own volume, not by that of an earlier claim of its name.
func TestRowOfClaim(t *testing.T) {
	t.Parallel()
	mine, old := volumes.Row{Volume: "pvc-1", Claim: "shop/data", State: volumes.InUse}, volumes.Row{Volume: "pvc-0", Claim: "shop/data", State: volumes.Released}
	waits, another := volumes.Row{Claim: "shop/data", State: volumes.Pending}, volumes.Row{Volume: "pvc-1", Claim: "shop/other"}
	for name, test := range map[string]struct {
		rows   []volumes.Row
		volume string
		want   *volumes.Row
	}{
		"its own":               {[]volumes.Row{old, mine, old}, "pvc-1", &mine},
		"it waits":              {[]volumes.Row{waits, old}, "", &waits},
		"bound since":           {[]volumes.Row{old, mine, old}, "", &mine},
		"only an earlier one's": {[]volumes.Row{old}, "", nil},
		"only another volume":   {[]volumes.Row{old, another}, "pvc-1", nil},
	} {
		got := volumes.RowOf(test.rows, "shop/data", test.volume)
		if (got == nil) != (test.want == nil) || got != nil && got.Volume != test.want.Volume {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
