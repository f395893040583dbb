// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// followInterval is how often a followed log is looked at.
const followInterval = 200 * time.Millisecond

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	command := &cobra.Command{
		Use:   "logs [PROCESS]",
		Short: "Print the log of a process, or list the logs",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return listLogs(command.OutOrStdout(), layout)
			}
			ctx, cancel := untilSignal(command)
			defer cancel()
			return printLog(ctx, command.OutOrStdout(), layout, args[0], follow)
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what is added, until interrupted")
	return command
}

func logNames(layout blueprint.Layout) []string {
	paths, _ := filepath.Glob(layout.Log("*")) // the pattern is well-formed
	var names []string
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".log"))
	}
	return names
}

func listLogs(out io.Writer, layout blueprint.Layout) error {
	names := logNames(layout)
	if len(names) == 0 {
		return fmt.Errorf("there are no logs in %s; start a lab with `lab up --dir %s`", layout.Dir, layout.Dir)
	}
	for _, name := range names {
		fmt.Fprintf(out, "%s\t%s\n", name, layout.Log(name))
	}
	return nil
}

func printLog(ctx context.Context, out io.Writer, layout blueprint.Layout, name string, follow bool) error {
	if name != filepath.Base(name) {
		return fmt.Errorf("%q is not the name of a process", name)
	}
	log, err := os.Open(layout.Log(name))
	if err != nil {
		return fmt.Errorf("there is no log of %s; there are: %s", name, strings.Join(logNames(layout), ", "))
	}
	defer log.Close()
	for {
		if _, err := io.Copy(out, log); err != nil {
			return fmt.Errorf("printing %s: %w", layout.Log(name), err)
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followInterval):
		}
	}
}
