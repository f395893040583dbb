// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Families are beginnings of names that are ours alone; what else begins so is a slip.
func Families() []string { return []string{Prefix, "service.kubernetes.io/do-loadbalancer-"} }

// unused warns of annotations that the load balancer's type does not use and of names that are nobody's.
func (r *reader) unused() {
	known := map[string]Entry{}
	for _, e := range Table() {
		known[e.Name] = e
		if _, ok := r.values[e.Name]; ok && e.Regional && !e.RegionalNetwork && r.s.Type == TypeRegionalNetwork {
			r.idle(e.Name, "which has no effect on a load balancer of type "+TypeRegionalNetwork)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if _, ok := known[name]; ok || !slices.ContainsFunc(Families(), func(f string) bool { return strings.HasPrefix(name, f) }) {
			continue
		}
		message := fmt.Sprintf("annotation %s is not known and has no effect", name)
		if near := nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		r.warnings = append(r.warnings, Warning{Reason: ReasonUnknown, Message: message})
	}
}

// nearest returns the one of names that is at most three letters away, the first of equals; empty for none.
func nearest(name string, names []string) string {
	best, least := "", 4
	for _, candidate := range names {
		if d := distance(name, candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is Levenshtein's: letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
