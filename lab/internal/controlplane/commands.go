// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"github.com/spf13/cobra"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Commands returns the hidden subcommands, ready to be added to the lab's root command.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		newEtcdCommand(),
		upstream("kube-apiserver", apiserver.NewAPIServerCommand),
		upstream("kube-controller-manager", controllermanager.NewControllerManagerCommand),
		upstream("kube-scheduler", func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	}
}

// upstream wraps a command of Kubernetes. It is made only when it is about to run: making it takes over the process's signals and
// registers its flags and metrics, which no other subcommand of the lab wants.
func upstream(name string, newCommand func() *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Run " + name + " (used by the supervisor)",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			command := newCommand()
			command.SetArgs(args)
			command.SilenceErrors = true
			return command.Execute()
		},
	}
}
