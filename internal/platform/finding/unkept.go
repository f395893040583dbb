// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Keeper is one installation of a component, as far as it matters whether it keeps up to date what it reports.
type Keeper struct {
	Name string
	// Problem is why it does not do its work, "" if it does; Seen is when it last showed a sign of life, zero if unknown.
	Problem string
	Seen    time.Time
}

// NotKept begins why what a component reports may be old.
const NotKept = "not kept up to date: "

// Unkept is why what a component reports of its objects may be old, "" while one works: that none does, or that it is
// unknown whether one runs, for which unread has the reason.
func Unkept(all []Keeper, name, unread string, now time.Time) string {
	its := slices.DeleteFunc(slices.Clone(all), func(k Keeper) bool { return k.Name != name })
	switch {
	case slices.ContainsFunc(its, func(k Keeper) bool { return k.Problem == "" }), len(its) == 0 && unread == "":
		return ""
	case len(its) == 0:
		return NotKept + "it is unknown whether " + name + " runs"
	}
	why := NotKept + name + ": " + its[0].Problem
	if at := its[0].Seen; !at.IsZero() {
		why += ", last seen " + prose.Span(max(0, now.Sub(at))) + " ago"
	}
	return why
}
