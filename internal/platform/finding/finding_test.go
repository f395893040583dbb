// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

func TestTheWorstComeFirstThenTheOrderOfTheChecks(t *testing.T) {
	t.Parallel()
	say := func(all ...finding.Finding) func(int) []finding.Finding {
		return func(int) []finding.Finding { return all }
	}
	got := finding.Make([]finding.Check[int]{
		{Name: "second-letter", Find: say(finding.Finding{Severity: finding.Note, What: "z"}, finding.Finding{Severity: finding.Note, What: "y"})},
		{Name: "first-letter", Find: say(finding.Finding{Severity: finding.Note, What: "a"}, finding.Finding{Severity: finding.Problem, What: "b", Why: "c", Do: "d"})},
		{Name: "more", Find: say(finding.Finding{Severity: finding.OK, What: "fine"}, finding.Finding{Severity: finding.Warning, What: "w"})},
	}, 0)
	const want = "PROBLEM  first-letter: b\n         why: c\n         do:  d\nwarning  more: w\nnote     second-letter: y\nnote     second-letter: z\n" +
		"note     first-letter: a\nok       more: fine\n1 problem, 1 warning, 3 notes, 1 ok\n"
	if text := finding.Text(got, 0); text != want {
		t.Errorf("%s", text)
	}
	if finding.Worst(got) != finding.Problem || finding.Worst(got[1:]) != finding.Warning || finding.Worst(nil) != finding.OK {
		t.Error("the worst is another")
	}
	data, err := json.Marshal(got[0])
	if err != nil || string(data) != `{"check":"first-letter","severity":"problem","what":"b","why":"c","do":"d"}` {
		t.Errorf("%s, %v", data, err)
	}
}

func TestFew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"b", "a", "b"}, "a, b"},
		{[]string{"5", "4", "3", "2", "1"}, "1, 2, 3, 4, 5"},
		{[]string{"7", "6", "5", "4", "3", "2", "1"}, "1, 2, 3, 4, 5 and 2 more"},
	} {
		if got := finding.Few(c.names); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// Several doctors' findings are one list, the worst first; on a terminal nothing is cut and each line ends in time.
func TestMergedAndWrapped(t *testing.T) {
	t.Parallel()
	ok, note := finding.Finding{Check: "a", Severity: finding.OK, What: "fine"}, finding.Finding{Check: "b", Severity: finding.Note, What: "so"}
	worst := finding.Finding{Check: "c", Severity: finding.Problem, What: "one two three four five", Why: "six seven eight", Do: "a/path/that/is/longer/than/the/line now"}
	got := finding.Merge([]finding.Finding{note, ok}, []finding.Finding{worst, note})
	if diff := cmp.Diff([]finding.Finding{worst, note, note, ok}, got); diff != "" {
		t.Error(diff)
	}
	const want = "PROBLEM  c: one two\n         three four five\n         why: six seven\n              eight\n" +
		"         do:  a/path/that/is/longer/than/the/line\n              now\n1 problem, 0 warnings, 0 notes, 0 ok\n"
	if diff := cmp.Diff(want, finding.Text(got[:1], 24)); diff != "" {
		t.Error(diff)
	}
	if finding.Text(got, 5) != finding.Text(got, 0) {
		t.Error("without room, or without end, it is wrapped")
	}
}
