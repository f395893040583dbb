// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// Lines fit, words stay whole, and what goes on stands under where the last column begins.
func TestFold(t *testing.T) {
	t.Parallel()
	const long = "one two three four five six seven eight nine ten eleven twelve thirteen"
	text := "short\n\n12. " + long + "\nNAME  WHY\nx     " + long + "\n  - Äußeres " + long + "\n" + strings.Repeat("y", 20) + "  " + long + "\n" + strings.Repeat("z", 50) + " end\n"
	const want = `short

12. one two three four five six seven
    eight nine ten eleven twelve
    thirteen
NAME  WHY
x     one two three four five six seven
      eight nine ten eleven twelve
      thirteen
  - Äußeres one two three four five six
    seven eight nine ten eleven twelve
    thirteen
yyyyyyyyyyyyyyyyyyyy
    one two three four five six seven
    eight nine ten eleven twelve
    thirteen
zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz
  end
`
	if diff := cmp.Diff(want, screen.Fold(text, 40)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, width := range []int{0, 200} {
		if got := screen.Fold(text, width); got != text {
			t.Errorf("in %d columns: %s", width, got)
		}
	}
}
