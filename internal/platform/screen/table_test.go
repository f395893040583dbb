// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// nodes is a result with everything that could break a format.
type nodes struct {
	Items []node `json:"items"`
}

type node struct {
	Name   string `json:"name"`
	Reason string `json:"reason,omitempty"`
	Peers  int    `json:"peers"`
}

func (n nodes) table() screen.Table {
	out := screen.Table{Columns: []string{"NAME", "REASON"}}
	for _, i := range n.Items {
		out.Rows = append(out.Rows, []string{i.Name, i.Reason})
	}
	return out
}

// printed writes nodes in a format.
func printed(t *testing.T, format string, w io.Writer, n nodes) error {
	t.Helper()
	f := screen.NewFormat(screen.FormatTable, screen.FormatJSON, screen.FormatYAML)
	must.Do(t, f.Set(format))
	return f.Write(w, n.table().Text(0), n)
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
			var buf bytes.Buffer
			must.Do(t, printed(t, tt.format, &buf, tt.value))
			path := filepath.Join("testdata", "print-"+name+".golden")
			if *update {
				must.Do(t, os.WriteFile(path, buf.Bytes(), 0o600))
			}
			want := must.Get(os.ReadFile(path)).Or(t)
			if diff := cmp.Diff(string(want), buf.String()); diff != "" {
				t.Errorf("%s differs (-want +got), rewrite it with -update if that is meant:\n%s", path, diff)
			}
		})
	}
}

func TestPrintReportsAFullPipe(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"table", "json", "yaml"} {
		r, w := io.Pipe()
		must.Do(t, r.Close())
		if err := printed(t, format, w, nodes{[]node{{Name: "a"}}}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", format, err)
		}
	}
}
