// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen_test

import (
	"io"
	"testing"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// What could not be read needs attention, however little it weighs.
func TestUnreadNeedsAttention(t *testing.T) {
	t.Parallel()
	format := screen.NewFormat(screen.Text)
	for name, c := range map[string]struct {
		f         finding.Finding
		attention bool
	}{
		"a note":   {finding.Finding{Severity: finding.Note}, false},
		"not read": {finding.Finding{Severity: finding.Note, Unread: true}, true},
		"problem":  {finding.Finding{Severity: finding.Problem}, true},
	} {
		if err := screen.Findings([]finding.Finding{{Severity: finding.OK}, c.f}, &format, io.Discard); (err != nil) != c.attention {
			t.Errorf("%s: %v", name, err)
		}
	}
}
