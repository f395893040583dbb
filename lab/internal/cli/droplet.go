// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

// The states of a droplet that one can give it.
const (
	powerOn  = "active"
	powerOff = "off"
)

func (a *app) dropletCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "droplet",
		Short: "Create, delete and switch the droplets that the machines are",
		Long: `Do as the owner of the simulated DigitalOcean account. Each machine of a lab with a cloud is a droplet: a new one boots and joins as a
Node, which digitalocean-cloud-controller-manager initializes; the Node of one that is deleted is removed by it, and nobody else.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(a.dropletListCommand(), a.dropletCreateCommand(),
		a.dropletChangeCommand("delete NAME", "Destroy a droplet: nothing more is ever heard of its machine, and its Node goes", (*site).delete),
		a.dropletChangeCommand("power-off NAME", "Switch a droplet off: its Node becomes NotReady and gets the shutdown taint, and stays",
			func(s *site, ctx context.Context, name string) (string, error) { return s.power(ctx, name, powerOff) }),
		a.dropletChangeCommand("power-on NAME", "Switch a droplet on again: its machine boots",
			func(s *site, ctx context.Context, name string) (string, error) { return s.power(ctx, name, powerOn) }),
	)
	return command
}

func (a *app) dropletListCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "list",
		Short: "List the droplets",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return fmt.Errorf("--output %q is unknown; use json or leave it out", output)
			}
			ctx, cancel := untilSignal(command)
			defer cancel()
			s, err := a.site()
			if err != nil {
				return err
			}
			list, err := s.client.Droplets(ctx)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(command.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(list)
			}
			return printDroplets(command.OutOrStdout(), list)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return command
}

func (a *app) dropletCreateCommand() *cobra.Command {
	var zone, size string
	var isReal bool
	command := a.dropletChangeCommand("create NAME", "Create a droplet; it boots and registers its Node by itself",
		func(s *site, ctx context.Context, name string) (string, error) {
			return s.create(ctx, name, zone, size, isReal)
		})
	command.Flags().StringVar(&zone, "zone", "", "zone of the machine (default: the one with the fewest machines)")
	command.Flags().StringVar(&size, "size", "", "size of the droplet, such as s-4vcpu-8gb (default s-2vcpu-4gb)")
	addRealFlag(command, &isReal)
	return command
}

// dropletChangeCommand is a command with one name, which says what it has done.
func (a *app) dropletChangeCommand(use, short string, change func(*site, context.Context, string) (string, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  oneArgument("name of a droplet"),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := untilSignal(command)
			defer cancel()
			s, err := a.site()
			if err != nil {
				return err
			}
			done, err := change(s, ctx, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), done)
			return nil
		},
	}
}

// site is the simulated cloud of a lab that runs.
type site struct {
	layout blueprint.Layout
	client *cloud.Client
}

// site finds the simulated cloud, or says in one sentence why there is none.
func (a *app) site() (*site, error) {
	layout, err := a.layout()
	if err != nil {
		return nil, err
	}
	if _, err := runner.Inspect(layout); err != nil {
		return nil, err
	}
	var lab folder.Lab
	if err := folder.ReadJSON(layout.LabFile(), &lab); err != nil {
		return nil, fmt.Errorf("the lab in %s is still starting; wait until `lab up` is done", layout.Dir)
	}
	if lab.DigitalOcean == nil {
		return nil, fmt.Errorf("the lab in %s has no cloud; use `lab node`, or start one with a cloud by `lab up --cloud digitalocean` in another folder",
			layout.Dir)
	}
	client, err := cloud.Connect(*lab.DigitalOcean)
	if err != nil {
		return nil, err
	}
	return &site{layout: layout, client: client}, nil
}

// find returns the droplet of a name, or an error that says which there are.
func (s *site) find(ctx context.Context, name string) (cloud.Droplet, error) {
	list, err := s.client.Droplets(ctx)
	if err != nil {
		return cloud.Droplet{}, err
	}
	var names []string
	for _, d := range list {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return cloud.Droplet{}, fmt.Errorf("there is no droplet %s; %s", name, machines.Instead(name, names))
}

// mine is find for droplets that may be harmed.
func (s *site) mine(ctx context.Context, name string) (cloud.Droplet, error) {
	d, err := s.find(ctx, name)
	if err == nil && d.Name == cloud.ControlPlane {
		err = fmt.Errorf("%s is the machine that this cluster's control plane runs on; choose another droplet", name)
	}
	return d, err
}

func (s *site) create(ctx context.Context, name, zone, size string, isReal bool) (string, error) {
	if err := checkReal(s.layout, isReal); err != nil {
		return "", err
	}
	if err := machines.CheckNames(name, zone); err != nil {
		return "", err
	}
	list, err := s.client.Droplets(ctx)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(list, func(d cloud.Droplet) bool { return d.Name == name }) {
		return "", fmt.Errorf("there is a droplet %s already; choose another name or delete it first", name)
	}
	if err := checkRoom(s.layout, len(list)-1); err != nil { // one is the control plane's
		return "", err
	}
	if len(list) > blueprint.MaxNodes {
		return "", fmt.Errorf("the lab has %d droplets, which is all that it can hold; delete one first", len(list))
	}
	if zone == "" {
		known, err := machines.Load(s.layout.MachinesFile())
		if err != nil {
			return "", err
		}
		zone = known.EmptiestZone()
	}
	d, err := s.client.Create(ctx, name, zone, size, isReal)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("droplet %s created (%d, %s); it boots and joins as a Node", d.Name, d.ID, zone), nil
}

func (s *site) delete(ctx context.Context, name string) (string, error) {
	d, err := s.mine(ctx, name)
	if err != nil {
		return "", err
	}
	if err := s.client.Delete(ctx, d); err != nil {
		return "", err
	}
	return fmt.Sprintf("droplet %s deleted (%d)", d.Name, d.ID), nil
}

func (s *site) power(ctx context.Context, name, status string) (string, error) {
	d, err := s.mine(ctx, name)
	if err != nil {
		return "", err
	}
	word := map[string]string{powerOn: "on", powerOff: "off"}[status]
	if d.Status == status {
		return fmt.Sprintf("droplet %s is switched %s already", d.Name, word), nil
	}
	if err := s.client.SetStatus(ctx, d, status); err != nil {
		return "", err
	}
	return fmt.Sprintf("droplet %s switched %s", d.Name, word), nil
}

func printDroplets(out io.Writer, list []cloud.Droplet) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "DROPLET\tID\tSTATUS\tREGION\tSIZE\tPRIVATE\tPUBLIC\tROLE")
	orNone := func(text string) string {
		if text == "" {
			return "-"
		}
		return text
	}
	for _, d := range list {
		role := "-"
		switch {
		case d.Node:
			role = "node, " + orNone(d.Zone)
		case d.Name == cloud.ControlPlane:
			role = "control plane"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, d.ID, d.Status, d.Region, d.Size, orNone(d.PrivateIP), orNone(d.PublicIP), role)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
