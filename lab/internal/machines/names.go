// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// mostNames is how many names fit into a sentence.
const mostNames = 12

// Instead returns which names there are, for somebody who gave one that does not exist: all of them if they are few, else those that look alike.
func Instead(name string, names []string) string {
	if len(names) <= mostNames {
		return "there are: " + strings.Join(names, ", ")
	}
	alike := slices.Clone(names)
	slices.SortStableFunc(alike, func(a, b string) int { return cmp.Compare(prose.Distance(name, a), prose.Distance(name, b)) })
	return fmt.Sprintf("of the %d that there are, these look most alike: %s", len(names), strings.Join(alike[:3], ", "))
}
