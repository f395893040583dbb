// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// A table is what is printed at the end.
type table struct{ rows [][]any }

func (t *table) add(load, target, figure, ratio, goal, more string) {
	t.rows = append(t.rows, []any{load, target, figure, ratio, goal, more})
}

// String lines the columns up.
func (t *table) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "load\ttarget\tfigure\tratio to direct\tgoal\tand")
	for _, row := range t.rows {
		fmt.Fprintf(w, "%v\t%v\t%v\t%v\t%v\t%v\n", row...)
	}
	_ = w.Flush()
	return out.String()
}
