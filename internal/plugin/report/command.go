// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package report is the command of that name: one archive for a bug report, with what the other commands print, the objects
// of the components and their logs, and without what looks like a secret.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const long = `Write one archive for a bug report: what the commands version, status, agreement, volumes and doctor print as JSON, the objects of Mooring's kinds, the
Nodes, the workloads, Leases, Events and logs of the components. Nothing is written in the cluster, and Secrets are not read.

What looks like a secret is replaced by [redacted] in all files: private keys, tokens, values of names such as password, users in addresses, and keys of 32 bytes. Names of
machines, their addresses and those of Services stay. Look at the archive before you send it.

What you may not read is left out, and unread.txt in the archive says why.`

const example = `  kubectl mooring report
  kubectl mooring report --file before-the-upgrade.tar.gz`

// Command runs one of the plugin's other commands, with all of its arguments.
type Command func(ctx context.Context, args []string, stdout, stderr io.Writer) (exitCode int)

// New returns the builder of kubectl mooring report.
func New(run Command) func(*observe.Env) *cobra.Command {
	return func(env *observe.Env) *cobra.Command {
		var file string
		cmd := &cobra.Command{
			Use: "report", Short: "Write an archive for a bug report, without secrets", Long: long, Example: example,
			RunE: func(cmd *cobra.Command, _ []string) error {
				c, err := env.Cluster()
				if err != nil {
					return err
				}
				now := clock.RealClock{}.Now().UTC()
				if file == "" {
					file = "mooring-report-" + now.Format("20060102-150405") + ".tar.gz"
				}
				r := &reporter{cluster: c, run: run, flags: connection(cmd.InheritedFlags()), now: now}
				return r.write(cmd.Context(), file, cmd.OutOrStdout())
			},
		}
		cmd.Flags().StringVar(&file, "file", "", "The archive to write (default mooring-report-TIME.tar.gz). It must not exist.")
		return cmd
	}
}

// connection are the flags with which the command was called and that all commands have.
func connection(flags *pflag.FlagSet) (args []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			args = append(args, "--"+f.Name+"="+strings.Join(list.GetSlice(), ","))
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	return args
}

// reporter gathers one report.
type reporter struct {
	cluster *observe.Cluster
	run     Command
	flags   []string
	now     time.Time
	// files are what is in the archive, by their names; unread is what is not, and why.
	files  map[string]string
	unread []string
}

// write gathers all and writes the archive. Of one that cannot be written as a whole nothing stays.
func (r *reporter) write(ctx context.Context, file string, out io.Writer) (err error) {
	if _, err := r.cluster.Version(ctx); err != nil {
		return err
	}
	target, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: delete it, or name another file with --file", file)
	}
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}
	defer func() {
		if closed := target.Close(); err == nil && closed != nil {
			err = fmt.Errorf("writing %s: %w", file, closed)
		}
		if err != nil {
			_ = os.Remove(file)
		}
	}()
	r.gather(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := archive(target, r.files, r.now); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	fmt.Fprintf(out, "wrote %s with %s; look at it before you send it\n", file, prose.Plural(len(r.files), "file"))
	for _, u := range r.unread {
		fmt.Fprintln(out, "left out: "+u)
	}
	return nil
}
