// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

func (a *app) nodeCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "node",
		Short: "Add, remove, freeze and thaw machines",
		Long: `Change the list of machines that exist, DIR/machines.json. The nodes process makes the cluster follow the list.

Until Mooring's own cloud controller manager takes over, the nodes process plays that part too: the Node of a machine which is no longer in the
list is deleted from the API server after a live read, as a cloud controller manager does when the cloud says that a machine is gone.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(a.nodeAddCommand(),
		a.nodeChangeCommand("remove NAME", "Destroy a machine: nothing more is ever heard of it, and its Node goes", "destroyed",
			func(l machines.List, name string) (machines.List, error) { return l.Remove(name) }),
		a.nodeChangeCommand("freeze NAME", "Silence a machine that is still there: its Node becomes NotReady", "frozen",
			func(l machines.List, name string) (machines.List, error) { return l.SetState(name, machines.Frozen) }),
		a.nodeChangeCommand("thaw NAME", "Let a frozen machine speak again", "thawed",
			func(l machines.List, name string) (machines.List, error) { return l.SetState(name, machines.Running) }),
		a.nodeListCommand(),
	)
	return command
}

func (a *app) nodeAddCommand() *cobra.Command {
	var zone string
	var external bool
	command := a.nodeChangeCommand("add NAME", "Create a machine; it registers its Node by itself", "created",
		func(l machines.List, name string) (machines.List, error) { return l.Add(name, zone, external) })
	command.Flags().StringVar(&zone, "zone", "", "zone of the machine (default: the one with the fewest machines)")
	command.Flags().BoolVar(&external, "external-cloud-provider", false,
		"register with the taint that waits for a cloud controller manager")
	return command
}

func (a *app) nodeChangeCommand(use, short, done string, change func(machines.List, string) (machines.List, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  oneArgument("name of a machine"),
		RunE: func(command *cobra.Command, args []string) error {
			path, err := a.machinesFile()
			if err != nil {
				return err
			}
			err = machines.Edit(path, func(list machines.List) (machines.List, error) { return change(list, args[0]) })
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "machine %s %s\n", args[0], done)
			return nil
		},
	}
}

func (a *app) nodeListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the machines that exist",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			path, err := a.machinesFile()
			if err != nil {
				return err
			}
			list, err := machines.Load(path)
			if err != nil {
				return err
			}
			return printMachines(command.OutOrStdout(), list)
		},
	}
}

// machinesFile finds the list, or says that there is no lab. The lab need not run: the list is obeyed when it does.
func (a *app) machinesFile() (string, error) {
	layout, err := a.layout()
	if err != nil {
		return "", err
	}
	var ignored machines.List
	err = folder.ReadJSON(layout.MachinesFile(), &ignored)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no lab in %s; start one with `lab up --dir %s`", layout.Dir, layout.Dir)
	}
	return layout.MachinesFile(), err
}
