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
type table struct {
	columns string // with tabs between them
	rows    [][]any
}

func (t *table) add(cells ...any) { t.rows = append(t.rows, cells) }

// String lines the columns up.
func (t *table) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, t.columns)
	for _, row := range t.rows {
		fmt.Fprintf(w, strings.Repeat("%v\t", len(row))+"\n", row...)
	}
	_ = w.Flush()
	return out.String()
}
