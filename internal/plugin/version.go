// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
)

// versionResult is the output of `version`. Its JSON form is a contract with scripts; the nesting
// leaves room for the versions of the components in a cluster.
type versionResult struct {
	Client buildinfo.Info `json:"client"`
}

// Table is one row per binary.
func (v versionResult) Table() Table {
	c := v.Client
	return Table{
		Columns: []string{"COMPONENT", "VERSION", "COMMIT", "DATE", "GO", "PLATFORM"},
		Rows:    [][]string{{Name, c.Version, c.Commit, c.Date, c.GoVersion, c.Platform}},
	}
}

func newVersion(*Env) *cobra.Command {
	var output Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the plugin's version",
		Example: `  kubectl mooring version
  kubectl mooring version -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return output.Print(out(cmd), versionResult{Client: buildinfo.Get()})
		},
	}
	output.AddTo(cmd)
	return cmd
}
