// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package prose_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"dry-run", "dryrun", 1}, {"protocol", "protocoll", 1}, {"ab", "ba", 2},
	} {
		if got := prose.Distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q it is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// It is a metric: symmetric, zero for equal words alone, and no way round is shorter.
func TestDistanceIsAMetric(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab-]{0,6}`)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		there, back := prose.Distance(a, b), prose.Distance(b, a)
		if there != back || (there == 0) != (a == b) || there > prose.Distance(a, c)+prose.Distance(c, b) {
			t.Fatalf("from %q to %q it is %d, back %d", a, b, there, back)
		}
	})
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"agreement", "apply", "plan", "plant"}
	for word, want := range map[string]string{"aply": "apply", "plann": "plan", "plan": "plan", "xyz": "", "agremnt": "agreement"} {
		if got := prose.Nearest(word, names, 2); got != want {
			t.Errorf("for %s it is %q, want %q", word, got, want)
		}
	}
}
