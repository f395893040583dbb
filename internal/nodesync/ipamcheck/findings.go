// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck

import (
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// CheckIPAM is the check of findings that are about no kind. It stands in JSON and MUST NOT change.
const CheckIPAM = "ipam"

// Findings are the disagreements for people: one finding for each kind, with its count and its first example. The
// check of each is its kind.
func Findings(d Data, found []Disagreement) []finding.Finding {
	checks := make([]finding.Check[[]Disagreement], 0, len(Meanings())+1)
	for _, m := range Meanings() {
		checks = append(checks, finding.Check[[]Disagreement]{Name: string(m.Kind), Find: m.find})
	}
	checks = append(checks, finding.Check[[]Disagreement]{Name: CheckIPAM, Find: func(found []Disagreement) []finding.Finding { return summary(d, found) }})
	return finding.Make(checks, found)
}

func (m Meaning) find(found []Disagreement) []finding.Finding {
	first := slices.IndexFunc(found, func(d Disagreement) bool { return d.Kind == m.Kind })
	if first < 0 {
		return nil
	}
	count := 0
	for _, d := range found {
		if d.Kind == m.Kind {
			count++
		}
	}
	what := fmt.Sprintf("%d × %s: %s", count, m.Title, found[first].Detail)
	if count > 1 {
		what = fmt.Sprintf("%d × %s, such as: %s", count, m.Title, found[first].Detail)
	}
	return []finding.Finding{{Severity: m.Severity, What: what, Why: m.Harm, Do: m.Cure}}
}

// summary says what was not compared, and, if nothing disagrees, what was.
func summary(d Data, found []Disagreement) []finding.Finding {
	var out []finding.Finding
	if len(d.Unreadable) > 0 {
		out = append(out, finding.Finding{
			Severity: finding.Warning, Unread: true, What: fmt.Sprintf("%s cannot be parsed: %s", prose.Plural(len(d.Unreadable), "object"), finding.Few(d.Unreadable)),
			Why: "what refers to them was not compared", Do: "read each with `etcdctl get KEY` or `kubectl get`, and correct or delete it",
		})
	}
	for _, unread := range []struct{ of, failure string }{{"IPPools", d.PoolsUnread}, {"pods", d.PodsUnread}} {
		if unread.failure != "" {
			out = append(out, finding.Finding{
				Severity: finding.Warning, Unread: true, What: fmt.Sprintf("%s could not be read: %s", unread.of, unread.failure),
				Why: "addresses and blocks were not compared with them", Do: "run it again with an account that may list " + unread.of,
			})
		}
	}
	if len(found) == 0 && len(out) == 0 {
		addresses := 0
		for _, b := range d.Blocks {
			addresses += len(b.Allocations)
		}
		out = append(out, finding.Finding{Severity: finding.OK, What: fmt.Sprintf("%s of %s agree with %s, %s, %s and %s",
			prose.Plural(addresses, "address"), prose.Plural(len(d.Blocks), "block"), prose.Plural(len(d.Handles), "handle"),
			plural(len(d.Affinities), "affinity", "affinities"), prose.Plural(len(d.Endpoints), "endpoint"), prose.Plural(len(d.Pools), "pool"))})
	}
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
