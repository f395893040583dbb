// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package confirm is the command of that name: what waits for a person, and the confirmation of it.
package confirm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/waiting"
)

const long = `Show what Mooring's components hold back until a person confirms it, and how to confirm it. Nothing is written.

  calico-node-sync                       machines whose deletion was not observed, if they are more than the mass guard allows, or most of the datastore;
                                         and leftovers of deleted pods on existing machines, if they are more than a guard allows
  digitalocean-cloud-controller-manager  machines that are off, if they are more than it puts out of service by itself
  calico-route-reflector-operator        a topology whose Nodes or labels disappeared all at once, or whose deletion would remove routes

The controllers have reported it: in the ConfigMap calico-node-sync-state in the namespaces of --mooring-namespace, on the Lease
digitalocean-cloud-controller-manager-out-of-service in kube-system, and in the status of each RouteReflectorTopology. Neither credentials of etcd or DigitalOcean nor
the log of a controller are needed.

Required rights: get on that ConfigMap and that Lease, and list on routereflectortopologies.bgp.mooring.dev; to confirm, get and patch on the ConfigMap, the Lease, or
the topology.

Exit codes: 0 nothing waits; 2 something waits for a confirmation; 1 it could not be read.`

const example = `  kubectl mooring confirm
  kubectl mooring confirm nodes 3f2a9c01d4be
  kubectl mooring confirm machines 91c04be7a2d3
  kubectl mooring confirm topology main 5d0c77aa`

// New is kubectl mooring confirm.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
	cmd := &cobra.Command{
		Use: "confirm", Short: "Show what waits for a confirmation, and confirm it", Long: long, Example: example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd.Context(), env, &output, cmd.OutOrStdout())
		},
	}
	output.AddTo(cmd)
	cmd.AddCommand(newNodes(env), newMachines(env), newTopology(env))
	return cmd
}

// list prints what waits.
func list(ctx context.Context, env *observe.Env, output *screen.Format, to io.Writer) error {
	var now time.Time
	is, err := observe.Read(ctx, env, func(ctx context.Context, c *observe.Cluster) (waiting.List, error) {
		now = c.ServerTime(time.Now())
		return c.Waiting(ctx, now), nil
	})
	if err != nil {
		return err
	}
	err = output.Show(to, is, is.Pending(), func(columns int, _ finding.Paint) string { return is.Text(now, columns) })
	if err == nil && len(is.Unread) > 0 {
		return errors.New(strings.Join(is.Unread, "; ") + ": whether something waits there is unknown (--mooring-namespace says in which namespaces to look)")
	}
	return err
}

// shortestConfirmation is the least that --for may be: clocks differ, and the controller needs a moment.
const shortestConfirmation = time.Minute

// byHash completes a command that confirms what waits under a hash, for a time of at most longest.
func byHash(
	cmd *cobra.Command, env *observe.Env, longest time.Duration, usage string, confirm func(context.Context, *observe.Cluster, string, time.Duration) (string, error),
) *cobra.Command {
	holds := time.Hour
	cmd.Args = exactly("HASH")
	cmd.ValidArgsFunction = cobra.NoFileCompletions // the hash is not completed: who gives it has looked
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if holds < shortestConfirmation || holds > longest {
			return fmt.Errorf("--for is %s: it must be between %s and %s, 1h is the default", holds, shortestConfirmation, longest)
		}
		return say(cmd, env, func(ctx context.Context, c *observe.Cluster) (string, error) { return confirm(ctx, c, args[0], holds) })
	}
	cmd.Flags().DurationVar(&holds, "for", holds, usage)
	return cmd
}

// say prints what a confirmation does that was written.
func say(cmd *cobra.Command, env *observe.Env, confirm func(context.Context, *observe.Cluster) (string, error)) error {
	text, err := observe.Read(cmd.Context(), env, confirm)
	if err == nil {
		columns, _ := screen.Terminal(cmd.OutOrStdout())
		fmt.Fprint(cmd.OutOrStdout(), prose.Wrap("", "", text, columns))
	}
	return err
}

// lastReport says that what was confirmed was reported too long ago, "" if it was not.
func lastReport(v finding.Verdict) string {
	if v.Stale == "" {
		return ""
	}
	return fmt.Sprintf(" It last reported %s ago: %s.", prose.Span(time.Since(v.ObservedAt)), v.Stale)
}

// exactly takes as many arguments as it has names for.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return fmt.Errorf("%s needs %s, as 'kubectl mooring confirm' shows; see '%s --help'",
			cmd.CommandPath(), strings.Join(names, " "), cmd.CommandPath())
	}
}
