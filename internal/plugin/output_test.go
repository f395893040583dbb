// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/mooring-dev/mooring/internal/plugin"
)

// nodes is a result with everything that could break a format.
type nodes struct {
	Items []node `json:"items"`
}

type node struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"`
	Peers  int    `json:"peers"`
}

// Table implements plugin.Tabler.
func (n nodes) Table() plugin.Table {
	out := plugin.Table{Columns: []string{"NAME", "REASON"}}
	for _, i := range n.Items {
		out.Rows = append(out.Rows, []string{i.Name, i.Reason})
	}
	return out
}

func TestPrint(t *testing.T) {
	t.Parallel()
	full := nodes{[]node{{"a", "machine <gone> & forgotten", 1}, {"a-longer-name", "", 0}, {"tab\there", "two\nlines", 2}}}
	for name, tt := range map[string]struct {
		format string
		value  nodes
	}{
		"table": {"table", full}, "json": {"json", full}, "yaml": {"yaml", full}, "table-empty": {"table", nodes{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o plugin.Output
			if err := o.Set(tt.format); err != nil {
				t.Fatal(err)
			}
			var buf bytes.Buffer
			if err := o.Print(&buf, tt.value); err != nil {
				t.Fatal(err)
			}
			golden(t, "print-"+name, buf.String())
		})
	}
}

func TestPrintReportsAFullPipe(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "yaml"} {
		var o plugin.Output
		if err := o.Set(format); err != nil {
			t.Fatal(err)
		}
		r, w := io.Pipe()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := o.Print(w, nodes{[]node{{Name: "a"}}}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", format, err)
		}
	}
}
