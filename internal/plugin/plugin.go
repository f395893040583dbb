// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/command"
)

// Name is the executable's name. It MUST not be changed: kubectl finds plugins as kubectl-NAME.
const Name = "kubectl-mooring"

// Builder makes one subcommand. It must not do work before the command runs.
type Builder func(*Env) *cobra.Command

// Env is what the plugin's commands share.
type Env struct {
	// Kube holds kubectl's connection flags; Kube.RESTConfig dials nothing before it is called.
	Kube *KubeFlags
	// namespaces are those of Mooring's components.
	namespaces []string
}

// Builtin is every command of the plugin, in the order of the help text.
func Builtin() []Builder {
	return []Builder{newStatus, newAgreement, newTopology, newVolumes, newExplain, newUI, newPlan, newConfirm, newNode, newRestore, newDoctor, newMigrate, newEtcd, newVersion, newCompletion}
}

const long = `Shows and explains what Mooring's components do in a cluster.

Exit codes:
  0  done, and nothing needs attention
  1  the command failed
  2  done, and the result needs attention: a plan would change something, or a check found a problem

All of kubectl's connection flags work (--server, --as, --token, ...); the help text shows the common ones.`

// NewCommand returns the plugin's root command with the given subcommands.
func NewCommand(builders ...Builder) *cobra.Command {
	root := &cobra.Command{
		Use:   Name,
		Short: "See and explain what Mooring does in a cluster",
		Long:  long,
		// kubectl runs the plugin as "kubectl mooring", so help and errors should say that.
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl mooring"},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // ours knows kubectl's convention
		DisableAutoGenTag: true,
	}
	env := &Env{Kube: NewKubeFlags()}
	env.Kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringSliceVar(&env.namespaces, "mooring-namespace", defaultNamespaces(),
		"Namespaces of Mooring's components: Events and state from other namespaces are not trusted.")
	for _, build := range builders {
		root.AddCommand(build(env))
	}
	return root
}

// exitAttention is the exit code of an answer that needs attention. It MUST NOT change: scripts depend on it.
const exitAttention = command.ExitAttention

// out is where a command's result goes.
func out(cmd *cobra.Command) io.Writer { return cmd.OutOrStdout() }
