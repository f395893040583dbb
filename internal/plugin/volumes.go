// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/volumes"
)

const volumesLong = `Show each volume of DigitalOcean with its claim, Pod, machine and droplet, disagreements, and the billed size in GiB. Nothing is written.

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

const volumesExample = `  DO_ACCESS_TOKEN=... kubectl mooring volumes
  DO_ACCESS_TOKEN=... kubectl mooring volumes -o wide
  kubectl mooring volumes -o json`

type volumesCommand struct {
	env    *Env
	clock  clock.PassiveClock
	output Output
	watch  bool
}

func newVolumes(env *Env) *cobra.Command {
	v := &volumesCommand{env: env, clock: clock.RealClock{}}
	v.output.known = []string{string(FormatTable), string(FormatWide), string(FormatJSON), string(FormatYAML)}
	cmd := &cobra.Command{
		Use: "volumes", Aliases: []string{"volume"}, Short: "Compare what Kubernetes and DigitalOcean report of each volume, and what it costs",
		Long: volumesLong, Example: volumesExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return repeat(cmd, v.watch, func(ctx context.Context, out io.Writer) error { return v.run(ctx, out) })
		},
	}
	v.output.AddTo(cmd)
	addWatch(cmd, &v.watch)
	return cmd
}

func (v *volumesCommand) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	w, err := readVolumes(ctx, v.env, v.clock)
	if err != nil {
		return err
	}
	report := volumes.Compare(w)
	switch v.output.format {
	case FormatTable:
		columns, colors := terminal(out)
		color := agreement.Plain
		if colors {
			color = paint
		}
		_, err = io.WriteString(out, printableVolumes(report).Text(columns, color))
	case FormatWide:
		err = volumesList{printableVolumes(report)}.Table().write(out)
	default:
		err = v.output.Print(out, volumesList{report})
	}
	if err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	if report.NeedsAttention() {
		return command.Exit(exitAttention, nil)
	}
	return nil
}

// volumesList is what JSON and YAML have.
type volumesList struct{ volumes.Report }

// Table implements Tabler: the wide form.
func (l volumesList) Table() Table {
	t := Table{Columns: volumes.Columns()}
	for _, r := range l.Volumes {
		t.Rows = append(t.Rows, r.Cells())
	}
	for _, s := range l.Snapshots {
		row := slices.Repeat([]string{""}, len(t.Columns))
		row[4], row[5], row[6], row[7], row[8], row[9] = fmt.Sprint(s.GiB), "snapshot", s.Verdict.String(), s.Name, s.ID, s.Finding.What
		t.Rows = append(t.Rows, row)
	}
	return t
}

// printableVolumes is a report without anything that a terminal would take for an order: names at DigitalOcean, and messages, are anybody's.
func printableVolumes(r volumes.Report) volumes.Report {
	finding := func(f agreement.Finding) agreement.Finding {
		f.What, f.Next = command.Printable(f.What), command.Printable(f.Next)
		return f
	}
	r.Volumes, r.Snapshots, r.NotRead = slices.Clone(r.Volumes), slices.Clone(r.Snapshots), slices.Clone(r.NotRead)
	for i := range r.Volumes {
		v := &r.Volumes[i]
		v.Volume, v.ID, v.Claim, v.Machine = command.Printable(v.Volume), command.Printable(v.ID), command.Printable(v.Claim), command.Printable(v.Machine)
		v.Pods, v.Findings = slices.Clone(v.Pods), slices.Clone(v.Findings)
		for n := range v.Pods {
			v.Pods[n] = command.Printable(v.Pods[n])
		}
		for n := range v.Findings {
			v.Findings[n] = finding(v.Findings[n])
		}
	}
	for i := range r.Snapshots {
		s := &r.Snapshots[i]
		s.Name, s.ID, s.Finding = command.Printable(s.Name), command.Printable(s.ID), finding(s.Finding)
	}
	for i := range r.NotRead {
		r.NotRead[i] = command.Printable(r.NotRead[i])
	}
	return r
}
