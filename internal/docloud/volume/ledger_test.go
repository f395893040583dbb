// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestALedgerHasNoGap: however the account's list is read, in pages that move meanwhile and with reads left out, a
// volume that somebody else has attached since it was created is never shown as at its first attachment.
func TestALedgerHasNoGap(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 300, 1000, 10000, func(t *rapid.T) {
		start := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
		const perPage, created = 5, 10
		kinds := rapid.SampledFrom([]ActionKind{"power_cycle", "attach_volume", Attach, "detach_volume"})
		var list []Action // the newest first
		add := func(kind ActionKind) Action {
			a := Action{ID: len(list) + 1, Kind: kind, Status: Completed, Began: start.Add(time.Duration(len(list)) * time.Second)}
			list = slices.Insert(list, 0, a)
			return a
		}
		var ledger Ledger
		v, own, unknown := Observed{ID: "v", Created: start.Add(created * time.Second)}, 0, false
		for step := range rapid.IntRange(1, 12).Draw(t, "reads") {
			for range rapid.IntRange(0, 9).Draw(t, "new actions") {
				if len(list) > created && own == 0 && rapid.Bool().Draw(t, "own") {
					own = add(Attach).ID
					continue
				}
				a := add(kinds.Draw(t, "kind"))
				unknown = unknown || is(a, Attach) && !a.Began.Before(v.Created)
			}
			read := list[:min(len(list), rapid.IntRange(1, 3).Draw(t, "pages")*perPage)]
			ledger.Add(read, len(read) == len(list), rapid.SampledFrom([]int{4, 20, 100}).Draw(t, "most"))
			got := ledger.History(v, own, func(id int) string { return map[int]string{own: "v"}[id] })
			if got == FirstAttachment && (unknown || own == 0) {
				t.Fatalf("read %d: the ledger has %v of %v", step, ledger, list)
			}
			if i := ledger.Index(own); i >= 0 && list[i].ID != own {
				t.Fatalf("read %d: action %d is not at %d of %v", step, own, i, list)
			}
			if len(read) == len(list) && own != 0 && !unknown && len(ledger.actions) == len(list) && got != FirstAttachment {
				t.Fatalf("read %d: the whole list %v shows %d", step, list, got)
			}
		}
	})
}
