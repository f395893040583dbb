// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin/agreement"
	"github.com/mooring-dev/mooring/internal/plugin/birdtemplates"
	"github.com/mooring-dev/mooring/internal/plugin/confirm"
	"github.com/mooring-dev/mooring/internal/plugin/doctor"
	"github.com/mooring-dev/mooring/internal/plugin/estate"
	"github.com/mooring-dev/mooring/internal/plugin/etcd"
	"github.com/mooring-dev/mooring/internal/plugin/explain"
	"github.com/mooring-dev/mooring/internal/plugin/migrate"
	"github.com/mooring-dev/mooring/internal/plugin/node"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/plan"
	"github.com/mooring-dev/mooring/internal/plugin/report"
	"github.com/mooring-dev/mooring/internal/plugin/status"
	"github.com/mooring-dev/mooring/internal/plugin/topology"
	"github.com/mooring-dev/mooring/internal/plugin/ui"
	"github.com/mooring-dev/mooring/internal/plugin/version"
	"github.com/mooring-dev/mooring/internal/plugin/volumes"
)

// Builder makes one subcommand. It must not do work before the command runs.
type Builder func(*observe.Env) *cobra.Command

// Builtin is every command of the plugin, in the order of the help text.
func Builtin() []Builder {
	return []Builder{status.New, agreement.New, topology.New, volumes.New, estate.New, explain.New, ui.New, plan.New, confirm.New, node.New, node.NewRestore, doctor.New, birdtemplates.New, migrate.New, etcd.New, version.New, report.New(again), newCompletion}
}

// again runs one of the commands as a part of another one.
func again(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return command.Run(ctx, NewCommand(Builtin()...), args, stdout, stderr) //nolint:contextcheck // a command is given its context when it runs
}

const long = `Shows and explains what Mooring's components do in a cluster.

Exit codes:
  0  done, and nothing needs attention
  1  the command failed
  2  done, and the result needs attention: a plan would change something, or a check found a problem

All of kubectl's connection flags work (--server, --as, --token, ...); the help text shows the common ones.`

// NewCommand returns the plugin's root command with the given subcommands. From then on the process logs nothing of
// controller-runtime, whose clients print a stack trace 30 s after the start of a process that has not decided on a
// logger (sigs.k8s.io/controller-runtime/pkg/log).
func NewCommand(builders ...Builder) *cobra.Command {
	ctrllog.SetLogger(logr.Discard())
	root := &cobra.Command{
		Use:   observe.Name,
		Short: "See and explain what Mooring does in a cluster",
		Long:  long,
		// kubectl runs the plugin as "kubectl mooring", so help and errors should say that.
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl mooring"},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // ours knows kubectl's convention
		DisableAutoGenTag: true,
	}
	env := &observe.Env{}
	env.AddFlags(root.PersistentFlags())
	for _, build := range builders {
		root.AddCommand(build(env))
	}
	return root
}
