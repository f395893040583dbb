// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package example_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestArchitectureShowsThisController: the controller in ARCHITECTURE.md is the one that is compiled and run here, in at most 120 lines.
func TestArchitectureShowsThisController(t *testing.T) {
	t.Parallel()
	code := must.Get(os.ReadFile("example_test.go")).Or(t)
	page := must.Get(os.ReadFile("../../../../ARCHITECTURE.md")).Or(t)
	_, want, _ := strings.Cut(string(code), "package example_test\n")
	_, rest, _ := strings.Cut(string(page), "```go\n")
	shown, _, found := strings.Cut(rest, "```\n")
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(shown)); !found || diff != "" {
		t.Errorf("ARCHITECTURE.md has another controller; copy example_test.go from its imports on:\n%s", diff)
	}
	if lines := strings.Count(string(code), "\n"); lines > 120 {
		t.Errorf("the example has %d lines, it must not have more than 120", lines)
	}
}
