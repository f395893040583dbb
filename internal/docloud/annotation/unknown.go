// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// mostMistaken is how many letters of a name may be wrong for it to be recognized.
const mostMistaken = 3

// Families are beginnings of names that are ours alone; what else begins so is a slip.
func Families() []string { return []string{Prefix, "service.kubernetes.io/do-loadbalancer-"} }

// unused warns of annotations that the load balancer's type does not use and of names that are nobody's.
func (r *reader) unused() {
	var known []string
	for _, e := range Table() {
		known = append(known, e.Name)
		if _, ok := r.values[e.Name]; ok && e.Regional && !e.RegionalNetwork && r.s.Type == TypeRegionalNetwork {
			r.idle(e.Name, "which has no effect on a load balancer of type "+TypeRegionalNetwork)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if slices.Contains(known, name) || !slices.ContainsFunc(Families(), func(f string) bool { return strings.HasPrefix(name, f) }) {
			continue
		}
		message := fmt.Sprintf("annotation %s is not known and has no effect", name)
		if near := prose.Nearest(name, slices.Sorted(slices.Values(known)), mostMistaken); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		r.warnings = append(r.warnings, Warning{Reason: ReasonUnknown, Message: message})
	}
}
