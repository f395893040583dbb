// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package estate is the command of that name: what this cluster has at DigitalOcean, what refers to it, and what it costs.
package estate

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const long = `Show what this cluster has at DigitalOcean, what in the cluster refers to each object, and what it costs in a month. Nothing is written.

What nothing refers to is listed first, with the command that removes it:
  load balancers  with the tag k8s:<DO_CLUSTER_ID>, to which no Service leads
  certificates    with the name mooring-..., which no load balancer uses and no Service asks for
  volumes         of the volume driver, with the cluster's tag, which no PersistentVolume has
  snapshots       of such volumes, or with the cluster's tag, which no VolumeSnapshotContent has; among them those of clones
The firewall is listed, and droplets are counted.

A list that fails, tags that are not shown, and a cluster without DO_CLUSTER_ID make it unknown, never unreferenced. Load balancers with the tag of another cluster, and
those of people, are counted and not listed.

Droplets have the price of DigitalOcean's list of sizes, others that of docs/reference/assumptions.md. "unknown" is what has no source there.

The cluster of the kubeconfig is read: Services, Nodes, Deployments in the namespaces of --mooring-namespace, the Lease with the account, and what
"kubectl mooring volumes" reads. DigitalOcean is read by DO_ACCESS_TOKEN or DO_ACCESS_TOKEN_FILE, and DO_OVERRIDE_URL for another address; scopes account:read,
load_balancer:read, certificate:read, firewall:read, droplet:read, sizes:read, regions:read, tag:read, block_storage:read and block_storage_snapshot:read.

Exit codes: 0 something refers to each object; 2 nothing refers to one, or that is unknown; 1 it could not be read.`

const example = `  DO_ACCESS_TOKEN=... kubectl mooring estate
  DO_ACCESS_TOKEN=... kubectl mooring estate -o json | jq '.objects[] | select(.state == "unreferenced")'
  DO_ACCESS_TOKEN=... kubectl mooring estate remove load-balancer 4de7ac8b-495b-4884-9a69-1050c6793cd6`

// New is kubectl mooring estate.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML)
	cmd := &cobra.Command{
		Use: "estate", Short: "Show what the cluster has at DigitalOcean, what refers to it and what it costs", Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := observe.Read(cmd.Context(), env, func(ctx context.Context, c *observe.Cluster) (*observe.Estate, error) {
				return observe.ReadEstate(ctx, c, clock.RealClock{})
			})
			if err != nil {
				return err
			}
			return Print(estate.Judge(e.World), &output, cmd.OutOrStdout())
		},
	}
	output.AddTo(cmd)
	cmd.AddCommand(newRemove(env))
	return cmd
}

// Print prints a report. Its error is the exit code.
func Print(r estate.Report, output *screen.Format, to io.Writer) error {
	return output.Show(to, r, r.NeedsAttention(), func(columns int, _ finding.Paint) string { return r.Text(columns) })
}
