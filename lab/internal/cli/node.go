// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

func (a *app) nodeCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "node",
		Short: "Add, remove, freeze and thaw machines",
		Long: `Change the machines that exist. In a lab with a cloud a machine is a droplet: add and remove are "lab droplet create" and "delete". Without a
cloud they change the list of machines, DIR/machines.json, which the nodes process follows; that process then deletes the Node of a machine which is
no longer in the list, as a person would. A machine that is frozen is still there, but nothing is heard of it. In a lab with a BGP network
a new machine joins it, and one that is removed is gone from it at once, without a word to the others.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(a.nodeAddCommand(),
		a.nodeChangeCommand("remove NAME", "Destroy a machine: nothing more is ever heard of it, and its Node goes", "destroyed",
			func(l machines.List, name string) (machines.List, error) { return l.Remove(name) }, (*site).delete),
		a.nodeChangeCommand("freeze NAME", "Silence a machine that is still there: its Node becomes NotReady", "frozen",
			func(l machines.List, name string) (machines.List, error) { return l.SetState(name, machines.Frozen) }, nil),
		a.nodeChangeCommand("thaw NAME", "Let a frozen machine speak again", "thawed",
			func(l machines.List, name string) (machines.List, error) { return l.SetState(name, machines.Running) }, nil),
		a.nodeListCommand(),
	)
	return command
}

func (a *app) nodeAddCommand() *cobra.Command {
	var zone string
	var external, isReal bool
	command := a.nodeChangeCommand("add NAME", "Create a machine; it registers its Node by itself", "created",
		func(l machines.List, name string) (machines.List, error) {
			layout, err := a.layout()
			if err == nil {
				err = checkReal(layout, isReal)
			}
			if err == nil {
				err = checkRoom(layout, len(l.Machines))
			}
			if err != nil {
				return l, err
			}
			return l.Add(name, zone, external, isReal)
		},
		func(s *site, ctx context.Context, name string) (string, error) {
			return s.create(ctx, name, zone, "", isReal)
		})
	command.Flags().StringVar(&zone, "zone", "", "zone of the machine (default: the one with the fewest machines)")
	command.Flags().BoolVar(&external, "external-cloud-provider", false,
		"register with the taint that waits for a cloud controller manager, which all machines of a lab with a cloud do")
	addRealFlag(command, &isReal)
	return command
}

func addRealFlag(command *cobra.Command, isReal *bool) {
	command.Flags().BoolVar(isReal, "real", false, "the machine is real, in a lab that was made with --real-nodes")
}

// checkReal refuses a real machine where nothing runs them.
func checkReal(layout blueprint.Layout, isReal bool) error {
	if !isReal {
		return nil
	}
	made, err := runner.RealNodes(layout)
	if err == nil && made == 0 {
		err = fmt.Errorf("the lab in %s has only simulated machines; leave --real out, or start one with `lab up --real-nodes 1` in another folder", layout.Dir)
	}
	return err
}

// nodeChangeCommand is a command that changes the list of machines or, in a lab with a cloud, does to the droplet what inCloud does; if that is nil
// it changes the list there too.
func (a *app) nodeChangeCommand(
	use, short, done string, change func(machines.List, string) (machines.List, error), inCloud func(*site, context.Context, string) (string, error),
) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  oneArgument("name of a machine"),
		RunE: func(command *cobra.Command, args []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			kind, err := runner.Cloud(layout)
			if err != nil {
				return err
			}
			inList := func(list machines.List) (machines.List, error) { return change(list, args[0]) }
			if kind != blueprint.CloudNone && inCloud != nil {
				err = a.changeDroplet(command, layout, args[0], inList, inCloud)
			} else {
				err = machines.Edit(layout.MachinesFile(), inList)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "machine %s %s\n", args[0], done)
			return nil
		},
	}
}

// changeDroplet does to a droplet what was asked for a machine, and speaks of machines if that cannot be.
func (a *app) changeDroplet(
	command *cobra.Command, layout blueprint.Layout, name string,
	inList func(machines.List) (machines.List, error), inCloud func(*site, context.Context, string) (string, error),
) error {
	ctx, cancel := untilSignal(command)
	defer cancel()
	s, err := a.site()
	if err != nil {
		return err
	}
	list, err := machines.Load(layout.MachinesFile())
	if err != nil {
		return err
	}
	_, listErr := inList(list)
	if listErr != nil && !errors.Is(listErr, machines.ErrUnknown) {
		return listErr
	}
	if _, err = inCloud(s, ctx, name); err != nil && listErr != nil {
		return listErr // a droplet that boots is not in the list; one that does not exist is in neither
	}
	return err
}

func (a *app) nodeListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the machines that exist",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			if _, err := runner.Cloud(layout); err != nil {
				return err
			}
			list, err := machines.Load(layout.MachinesFile())
			if err != nil {
				return err
			}
			return printMachines(command.OutOrStdout(), list)
		},
	}
}
