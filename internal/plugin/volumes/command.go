// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumes is the command of that name: DigitalOcean's volumes with their claims, Pods and machines.
package volumes

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/volumes"
)

const long = `Show each volume of DigitalOcean with its claim, Pod, machine and droplet, disagreements, and the billed size in GiB. Nothing is written.

The verdict is the worst finding, with what to do:
  disagree  no claim uses the volume, its claim or the volume itself is gone, it is attached where no Pod uses it or where Kubernetes does not know of it, or a
            snapshot has no VolumeSnapshotContent
  unknown   a side could not be read, or a volume may be another cluster's
  settling  the driver or Kubernetes is working on it
  one side  only Kubernetes was queried, so that nothing was compared
  agree     both sides were compared and nothing was found

Kubernetes is read from the cluster of the kubeconfig: PersistentVolumes, claims, Pods, VolumeAttachments, Nodes and, where the kind exists,
VolumeSnapshotContents; list on all of them is needed. DigitalOcean is read by environment variables: DO_ACCESS_TOKEN or DO_ACCESS_TOKEN_FILE, and DO_OVERRIDE_URL
for another address; scopes account:read, block_storage:read and block_storage_snapshot:read. What a list of DigitalOcean lacks proves nothing: a volume is gone when
reading it by ID responds with 404 while others of the cluster are visible.

Volumes of the account with the tag of another cluster, or that the driver has not created, are counted and not listed.

Exit codes: 0 all agree or settle; 2 something disagrees, is unknown, or was not compared; 1 the cluster cannot be read.`

const example = `  DO_ACCESS_TOKEN=... kubectl mooring volumes
  DO_ACCESS_TOKEN=... kubectl mooring volumes -o wide
  kubectl mooring volumes -o json`

// New is kubectl mooring volumes.
func New(env *observe.Env) *cobra.Command {
	output := screen.NewFormat(screen.FormatTable, screen.FormatWide, screen.FormatJSON, screen.FormatYAML)
	cmd := &cobra.Command{
		Use: "volumes", Aliases: []string{"volume"},
		Short: "Compare what Kubernetes and DigitalOcean report of each volume, and what it costs",
		Long:  long, Example: example, Args: cobra.NoArgs,
	}
	output.AddTo(cmd)
	screen.Watched(cmd, func(ctx context.Context, _ []string, out, _ io.Writer) error {
		w, err := observe.Read(ctx, env, func(ctx context.Context, c *observe.Cluster) (volumes.World, error) {
			return observe.Volumes(ctx, c, clock.RealClock{})
		})
		if err != nil {
			return err
		}
		report := volumes.Compare(w)
		return output.Show(out, report, report.NeedsAttention(), func(columns int, paint finding.Paint) string {
			if output.String() == screen.FormatWide {
				return wide(report).Text(columns)
			}
			return report.Text(w.Now, columns, paint)
		})
	})
	return cmd
}

// wide is the table with all columns.
func wide(report volumes.Report) screen.Table {
	t := screen.Table{Columns: volumes.Columns()}
	for _, r := range report.Volumes {
		t.Rows = append(t.Rows, r.Cells())
	}
	for _, s := range report.Snapshots {
		t.Rows = append(t.Rows, s.Row().Cells())
	}
	return t
}
