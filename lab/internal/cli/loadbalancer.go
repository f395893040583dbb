// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
)

func (a *app) loadBalancerCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "load-balancer",
		Short: "Look at the load balancers of the simulated DigitalOcean",
		Args:  noArguments,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the load balancers with their targets",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := untilSignal(command)
			defer cancel()
			s, err := a.site()
			if err != nil {
				return err
			}
			balancers, err := s.client.LoadBalancers(ctx)
			if err != nil {
				return err
			}
			droplets, err := s.client.Droplets(ctx)
			if err != nil {
				return err
			}
			return printLoadBalancers(command.OutOrStdout(), balancers, droplets)
		},
	})
	return command
}

// printLoadBalancers names each target by its droplet's name, or by its number where the droplet is gone.
func printLoadBalancers(out io.Writer, balancers []digitalocean.LoadBalancer, droplets []cloud.Droplet) error {
	names := map[int]string{}
	for _, d := range droplets {
		names[d.ID] = d.Name
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "LOAD BALANCER\tSTATUS\tADDRESS\tTARGETS")
	for _, lb := range balancers {
		var targets []string
		for _, id := range slices.Sorted(slices.Values(lb.DropletIDs)) {
			targets = append(targets, cmp.Or(names[id], strconv.Itoa(id)))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", lb.Name, lb.Status, cmp.Or(lb.IP, "-"), cmp.Or(strings.Join(targets, ", "), "-"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
