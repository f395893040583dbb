// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// assumptionsPage renders what is assumed about systems of others. What nobody outside states is a table of its own.
func assumptionsPage(string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "# Assumptions about other systems\n\nThe constants of other systems that the code and the simulators rely on, from `internal/assumed`; written by `make " +
		"generate`, do not edit. Each has its source, the date on which it was read, and the test that fails when the source says otherwise. A value of this table never refuses a " +
		"request that DigitalOcean may accept.\n\n")
	tables := map[bool]*strings.Builder{false: {}, true: {}}
	for _, row := range assumed.Table() {
		source := row.Source
		if row.Stated != nil {
			source += ", " + row.Stated.Where()
		}
		fmt.Fprintf(tables[row.Unknown], "| %s | `%s` | %s | `%s` | %s | %s | `%s` |\n", row.System, row.Name, row.Meaning, cell(row.Text()), cell(source), row.Read, row.Test)
	}
	fmt.Fprintf(&b, "| system | name | meaning | value | source | read | test |\n|---|---|---|---|---|---|---|\n%s", tables[false])
	b.WriteString("\n## Not known\n\nNo source states these. The simulators show every variant, and the test of a row runs all of them.\n\n")
	fmt.Fprintf(&b, "| system | name | meaning | variants | what there is | read | test |\n|---|---|---|---|---|---|---|\n%s", tables[true])
	return b.Bytes(), nil
}
