// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// CheckMetrics fails for each metric of ours in what a program serves at /metrics that docs/reference/metrics.md does not have of that program, with
// that type.
func CheckMetrics(tb testing.TB, program, served string) {
	tb.Helper()
	page := must.Get(os.ReadFile(filepath.Join(Root(tb), "docs", "reference", "metrics.md"))).Or(tb)
	_, section, found := strings.Cut(string(page), "\n## "+program+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := regexp.MustCompile(`(?m)^# TYPE ((?:mooring|firewall)_\w+) (\w+)$`).FindAllStringSubmatch(served, -1)
	if !found || len(all) == 0 {
		tb.Errorf("%s: a section of the reference: %v; metrics served: %d", program, found, len(all))
	}
	for _, m := range all {
		if !regexp.MustCompile("(?m)^\\| `" + m[1] + "` \\| " + m[2] + "\\b").MatchString(section) {
			tb.Errorf("%s serves the %s %s, which the reference does not have", program, m[2], m[1])
		}
	}
}
