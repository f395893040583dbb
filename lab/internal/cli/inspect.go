// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the processes of the running lab, its BGP network and its page",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			state, err := runner.Inspect(layout)
			if err != nil {
				return err
			}
			if err := printStatus(command.OutOrStdout(), state, time.Now()); err != nil {
				return err
			}
			ctx, cancel := untilSignal(command)
			defer cancel()
			printNetwork(ctx, command.OutOrStdout(), layout, state)
			printPage(command.OutOrStdout(), layout, state)
			return nil
		},
	}
}

func printStatus(out io.Writer, state folder.State, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PROCESS\tPID\tSTATE\tRESTARTS\tFOR\tADDRESS")
	for _, p := range state.Processes {
		pid := "-"
		if p.PID != 0 {
			pid = fmt.Sprint(p.PID)
		}
		addresses := "-"
		if len(p.Addresses) > 0 {
			addresses = strings.Join(p.Addresses, " ")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%v\t%s\n", p.Name, pid, p.State, p.Restarts, now.Sub(p.Since).Round(time.Second), addresses)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

func (a *app) kubeconfigCommand() *cobra.Command {
	var content bool
	command := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			text, err := os.ReadFile(layout.Kubeconfig())
			if err != nil {
				return fmt.Errorf("there is no kubeconfig in %s; start a lab with `lab up --dir %s`", layout.Dir, layout.Dir)
			}
			if content {
				_, err = command.OutOrStdout().Write(text)
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), layout.Kubeconfig())
			return nil
		},
	}
	command.Flags().BoolVar(&content, "content", false, "print the content instead; it names files in the lab's folder")
	return command
}

func printMachines(out io.Writer, list machines.List) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tZONE\tADDRESS\tSTATE\tDROPLET")
	for _, m := range list.Machines {
		droplet := "-"
		if m.Droplet != 0 {
			droplet = strconv.Itoa(m.Droplet)
		}
		fmt.Fprintf(table, "%s\t%s\t%v\t%s\t%s\n", m.Name, m.Zone, m.Address, m.State, droplet)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
