// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package prose

// Nearest is the one of names that a person who wrote word most probably meant: the first of those with the least [Distance]. It is "" when that is more than
// most letters.
func Nearest(word string, names []string, most int) string {
	best, least := "", most+1
	for _, name := range names {
		if d := Distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// Distance is how many letters must be added, removed or replaced to make b of a (Levenshtein).
func Distance(a, b string) int {
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
