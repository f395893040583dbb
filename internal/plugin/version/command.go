// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package version is the command of that name: the versions of the plugin and of the components.
package version

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
)

// Result is the output of `version`. Its JSON form is a contract with scripts.
type Result struct {
	Client buildinfo.Info `json:"client"`
	// Kubernetes is the API server's version, Components are Mooring's programs in the cluster; both are empty with --client.
	Kubernetes string              `json:"kubernetes,omitempty"`
	Components []finding.Component `json:"components,omitempty"`
}

// table is one row per program.
func (v Result) table() screen.Table {
	c := v.Client
	t := screen.Table{
		Columns: []string{"COMPONENT", "VERSION", "COMMIT", "DATE", "GO", "PLATFORM"},
		Rows:    [][]string{{observe.Name, c.Version, c.Commit, c.Date, c.GoVersion, c.Platform}},
	}
	if v.Kubernetes != "" {
		t.Rows = append(t.Rows, []string{"kubernetes", v.Kubernetes, "", "", "", ""})
	}
	for _, x := range v.Components {
		t.Rows = append(t.Rows, []string{x.Name + " (" + x.Namespace + ")", x.Version, "", "", "", ""})
	}
	return t
}

// New is kubectl mooring version.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(screen.FormatTable, screen.FormatJSON, screen.FormatYAML)
	var client bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin, of Kubernetes and of the components in the cluster",
		Long: `Print the version of the plugin, and those of Kubernetes and of Mooring's components in the cluster, by the tags of their images. A cluster that cannot
be read is noted; the exit code is 0 all the same.`,
		Example: `  kubectl mooring version
  kubectl mooring version --client -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := Result{Client: buildinfo.Get()}
			if !client {
				seen, err := observe.Read(cmd.Context(), env, read)
				if v.Kubernetes, v.Components = seen.Kubernetes, seen.Components; err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "note: versions in the cluster are unknown: %v\n", err)
				}
			}
			return v.Print(&output, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "Print the version of the plugin only; the cluster is not queried.")
	output.AddTo(cmd)
	return cmd
}

// Print prints the versions.
func (v Result) Print(output *screen.Format, out io.Writer) error {
	return output.Show(out, v, false, func(columns int, _ finding.Paint) string { return v.table().Text(columns) })
}

// read reads the versions in the cluster.
func read(ctx context.Context, c *observe.Cluster) (v Result, err error) {
	if v.Kubernetes, err = c.Version(ctx); err != nil {
		return v, err
	}
	e := checks.ControllerEvidence(ctx, checks.New(c, clock.RealClock{}))
	v.Components = doctor.Components(e)
	if len(e.Unread) > 0 {
		err = fmt.Errorf("listing %s: %s", e.Unread[0].Name, e.Unread[0].Problem)
	}
	return v, err
}
