// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestHistoryOfAVolume by its actions, under either name that DigitalOcean may have for them, in any order.
func TestHistoryOfAVolume(t *testing.T) {
	t.Parallel()
	for _, shown := range assumed.AttachTypes() {
		attach := ActionKind(shown)
		detach := ActionKind(strings.Replace(shown, "attach", "detach", 1))
		resize := ActionKind(strings.Replace(shown, "attach", "resize", 1))
		ended := func(kind ActionKind) Action { return Action{Kind: kind, Status: Completed} }
		failed := func(kind ActionKind) Action { return Action{Kind: kind, Status: Errored} }
		for name, story := range map[string]struct {
			actions []Action
			want    History
		}{
			"nothing is shown yet":          {nil, NotShown},
			"only a resize is":              {[]Action{ended(resize)}, NotShown},
			"the first attachment":          {[]Action{ended(attach)}, FirstAttachment},
			"it has begun":                  {[]Action{{Kind: attach, Status: InProgress}}, FirstAttachment},
			"after one that failed":         {[]Action{ended(attach), failed(attach)}, FirstAttachment},
			"after a resize":                {[]Action{ended(attach), ended(resize)}, FirstAttachment},
			"only failures are shown":       {[]Action{failed(attach)}, NotShown},
			"the second attachment":         {[]Action{ended(attach), ended(attach)}, AttachedBefore},
			"the first one is not shown":    {[]Action{ended(detach)}, AttachedBefore},
			"a detachment that failed":      {[]Action{ended(attach), failed(detach)}, AttachedBefore},
			"a detachment that is not over": {[]Action{ended(attach), {Kind: detach, Status: InProgress}}, AttachedBefore},
		} {
			for _, actions := range [][]Action{story.actions, reversed(story.actions)} {
				if got := HistoryOf(actions, 0); got != story.want {
					t.Errorf("%s, %s: got %d, want %d", shown, name, got, story.want)
				}
			}
		}
	}
}

// TestOnlyAnEarlierAttachmentIsShown: a list that lags behind shows one attachment, which is not the present one.
func TestOnlyAnEarlierAttachmentIsShown(t *testing.T) {
	t.Parallel()
	earlier, present := Action{ID: 1, Kind: Attach, Status: Completed}, Action{ID: 3, Kind: Attach, Status: Completed}
	for _, row := range []struct {
		actions []Action
		want    History
	}{{[]Action{earlier}, NotShown}, {[]Action{present}, FirstAttachment}, {[]Action{present, earlier}, AttachedBefore}} {
		if got := HistoryOf(row.actions, present.ID); got != row.want {
			t.Errorf("%v: got %d, want %d", row.actions, got, row.want)
		}
	}
}

func reversed(actions []Action) []Action {
	actions = slices.Clone(actions)
	slices.Reverse(actions)
	return actions
}

// TestHistoryOfAnAccount, whose actions do not say whose they are: what is not proven is not shown.
func TestHistoryOfAnAccount(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	at := func(id, second int, kind ActionKind, status ActionStatus) Action {
		return Action{ID: id, Kind: kind, Status: status, Began: start.Add(time.Duration(second) * time.Second)}
	}
	const mine, others, unknown, attach = 9, 8, 7, ActionKind("attach_volume")
	own, older := at(mine, 10, "attach_volume", InProgress), at(1, -1, "power_cycle", Completed)
	for name, story := range map[string]struct {
		page  []Action
		whole bool
		want  History
	}{
		"it reaches back":             {[]Action{own, older}, false, FirstAttachment},
		"it is all there is":          {[]Action{own}, true, FirstAttachment},
		"another volume's":            {[]Action{own, at(others, 5, attach, Completed), older}, false, FirstAttachment},
		"what failed":                 {[]Action{own, at(unknown, 5, attach, Errored), older}, false, FirstAttachment},
		"an older one":                {[]Action{own, at(unknown, -1, attach, Completed)}, false, FirstAttachment},
		"other kinds":                 {[]Action{own, at(unknown, 5, "detach_volume", Completed), older}, false, FirstAttachment},
		"it does not reach back":      {[]Action{own}, false, NotShown},
		"in the second of its making": {[]Action{own, at(1, 0, "power_cycle", Completed)}, false, NotShown},
		"its own is not shown":        {[]Action{older}, true, NotShown},
		"somebody else's":             {[]Action{own, at(unknown, 5, attach, Completed), older}, false, NotShown},
		"one of its own before":       {[]Action{own, at(mine-3, 5, attach, Completed), older}, false, NotShown},
		"a time that is not known":    {[]Action{own, {ID: unknown, Kind: Resize}, older}, false, NotShown},
	} {
		owners := map[int]string{mine: "v", mine - 3: "v", others: "other"}
		for _, page := range [][]Action{story.page, reversed(story.page)} {
			v, owner := Observed{ID: "v", Created: start}, func(id int) string { return owners[id] }
			ledger := Ledger{}
			ledger.Add(page, story.whole, len(page))
			got := ledger.History(v, mine, owner)
			if got != story.want {
				t.Errorf("%s: got %d, want %d", name, got, story.want)
			}
		}
	}
	ledger := Ledger{actions: []Action{own}, whole: true}
	got := ledger.History(Observed{ID: "v"}, mine, func(int) string { return "" })
	if got != NotShown {
		t.Errorf("a volume whose time is not known: got %d", got)
	}
}

// TestTheRightIsSpentOnce: whatever happens to a volume, once it was let go it has no right any more, and more actions
// never bring one back.
func TestTheRightIsSpentOnce(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		kinds := []ActionKind{Attach, Detach, Resize, "attach_volume", "detach_volume", "resize_volume"}
		action := rapid.Custom(func(t *rapid.T) Action {
			return Action{
				Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
				Status: rapid.SampledFrom([]ActionStatus{InProgress, Completed, Errored}).Draw(t, "status"),
			}
		})
		before := rapid.SliceOfN(action, 0, 6).Draw(t, "before")
		after := slices.Concat(rapid.SliceOfN(action, 0, 6).Draw(t, "newer"), before)
		if HistoryOf(before, 0) == AttachedBefore && HistoryOf(after, 0) != AttachedBefore {
			t.Fatalf("%v was attached before, and is not any more with %v", before, after)
		}
		if RightOf(FormatFirst, HistoryOf(before, 0)) == RightFirst {
			attached := slices.Concat([]Action{{Kind: Attach, Status: Completed}}, before)
			if RightOf(FormatFirst, HistoryOf(attached, 0)).Allows() {
				t.Fatalf("%v gives the right again at another attachment", before)
			}
		}
	})
}

// TestRightOf: a volume of unknown origin has none whatever its actions show; a person's word counts at each
// attachment.
func TestRightOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		format Format
		right  map[History]Right
	}{
		{FormatNever, map[History]Right{NotShown: RightOrigin, FirstAttachment: RightOrigin, AttachedBefore: RightOrigin}},
		{FormatFirst, map[History]Right{NotShown: RightUnknown, FirstAttachment: RightFirst, AttachedBefore: RightSpent}},
		{FormatBlank, map[History]Right{NotShown: RightBlank, FirstAttachment: RightBlank, AttachedBefore: RightBlank}},
	} {
		for history, want := range row.right {
			if got := RightOf(row.format, history); got != want || got.Allows() != (want == RightFirst || want == RightBlank) {
				t.Errorf("format %q, history %d: got %q, want %q", row.format, history, got, want)
			}
		}
	}
}
