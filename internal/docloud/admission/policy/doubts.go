// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// doubt is a reason to warn: its list of sentences, and what is said should the list not be a text.
type doubt struct{ variable, expression, message string }

// doubts are the reasons that can be told from the Service: those of [annotation.Parse] that come of one value alone, and fields that stay.
func doubts() []doubt {
	return []doubt{
		{"doubtfulNumbers", sum(numberDoubts()...), "a number is not one that DigitalOcean documents to take"},
		{"unknownNames", unknownNames(), "an annotation is not known and has no effect"},
		{"idleNames", idleNames(), "an annotation has no effect on a load balancer of type " + annotation.TypeRegionalNetwork},
		{"keptFields", sum(kept(annotation.Network, "network", annotation.NetworkExternal), kept(annotation.NetworkStack, "network stack", "")),
			"a change is requested that DigitalOcean does not make"},
	}
}

// changed reports that an annotation n is not as it was.
const changed = `!(n in variables.oldAnnotations && variables.oldAnnotations[n] == variables.newAnnotations[n])`

// numberDoubts are the numbers that DigitalOcean does not document to take: one list for those that share bounds and words.
func numberDoubts() []string {
	const value = "variables.newAnnotations[n]"
	var lists []string
	taken := map[string]bool{}
	for _, first := range annotation.Table() {
		form := annotation.FormOf(first.Name)
		if form.Doubt == "" || taken[first.Name] {
			continue
		}
		var names []string
		for _, e := range annotation.Table() {
			if f := annotation.FormOf(e.Name); alike(f, form) && f.Doubt == form.Doubt {
				names, taken[e.Name] = append(names, e.Name), true
			}
		}
		low := ""
		if form.From > math.MinInt64 {
			low = fmt.Sprintf("int(%s) < %d || ", value, form.From)
		}
		outside := fmt.Sprintf("(size(%s) > 18 || %sint(%s) > %d)", significant(value), low, value, form.To)
		sentence := wrong("n", value, form.Doubt)
		if form.Kind == annotation.KindInteger {
			sentence = fmt.Sprintf(`(%s == "" ? %s : %s)`, significant(value), wrong("n", value, annotation.NotSent), sentence)
		}
		lists = append(lists, fmt.Sprintf(`%s.filter(n, n in variables.newAnnotations && %s && %s != "" && %s && (%s) && %s).map(n, %s)`,
			list(names), changed, value, short(value), right(form, value), outside, sentence))
	}
	return lists
}

// unknownNames are names that begin like ours and are none of the table's.
func unknownNames() string {
	var known []string
	for _, e := range annotation.Table() {
		known = append(known, e.Name)
	}
	var begins []string
	for _, family := range annotation.Families() {
		begins = append(begins, "n.startsWith("+lit(family)+")")
	}
	return fmt.Sprintf(`variables.newAnnotations.filter(n, (%s) && !(n in %s) && !(n in variables.oldAnnotations)).map(n, "annotation " + n + " is not known and has no effect")`,
		strings.Join(begins, " || "), list(known))
}

// idleNames are annotations that REGIONAL_NETWORK does not use.
func idleNames() string {
	var names []string
	for _, e := range annotation.Table() {
		if e.Regional && !e.RegionalNetwork {
			names = append(names, e.Name)
		}
	}
	return fmt.Sprintf(`(variables.newRegional ? [] : %s).filter(n, n in variables.newAnnotations && %s).map(n, %s)`, list(names), changed,
		wrong("n", "variables.newAnnotations[n]", "which has no effect on a load balancer of type "+annotation.TypeRegionalNetwork))
}

// kept is the warning about a field of a load balancer that exists and that does not change; fallback is what no value means.
func kept(name, field, fallback string) string {
	now, before := sides()[0], sides()[1]
	effective := func(s side) string {
		return fmt.Sprintf(`(%[1]s == "" ? %[2]s : %[1]s)`, s.value(name), lit(fallback))
	}
	id := before.value(annotation.LoadBalancerID)
	condition := fmt.Sprintf(`%s != "" && %s == %s && %s != %s`, id, now.value(annotation.LoadBalancerID), id, effective(now), effective(before))
	return when(condition, now.wrong(name, "but DigitalOcean does not change the "+field+" of a load balancer: only a new one can have another"))
}
