// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// mostNames is how many names fit into a sentence.
const mostNames = 12

// Instead returns which names there are, for somebody who gave one that does not exist: all of them if they are few, else those that look alike.
func Instead(name string, names []string) string {
	if len(names) <= mostNames {
		return "there are: " + strings.Join(names, ", ")
	}
	alike := slices.Clone(names)
	slices.SortStableFunc(alike, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	return fmt.Sprintf("of the %d that there are, these look most alike: %s", len(names), strings.Join(alike[:3], ", "))
}

// distance is how many characters must be added, removed or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
