// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// ipamLong is what the command does in both programs.
const ipamLong = `Find disagreements in the data of Calico's IPAM: between blocks, handles, block affinities, IPPools, workload endpoints, Calico Nodes and pods. Each kind is one
finding, with how many there are, the first of them, the harm and what to do. Nothing is written.

Everything is read: in etcd at one revision of the store. Calico changes these objects one after the other, so what seems to disagree is read again after
--wait, and only what is the same then is reported. A datastore in which nothing disagrees is read once.

`

// usualWait is longer than Calico needs for the writes of one change.
const usualWait = 10 * time.Second

// IPAM is a doctor of the data of Calico's IPAM.
type IPAM struct {
	source Source
	// datastore is --datastore-type, and wait --wait.
	datastore string
	wait      time.Duration
	clock     clock.Clock
}

// NewIPAM returns a doctor that reads what the source names.
func NewIPAM(source Source) *IPAM {
	return &IPAM{source: source, wait: usualWait, clock: clock.RealClock{}}
}

// Command returns the command "ipam" of a doctor. where says in words where it reads.
func (x *IPAM) Command(where string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ipam", Short: "Find disagreements in the data of Calico's IPAM, and write nothing", Long: ipamLong + where + "\n\n" + screen.FindingExitCodes,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&x.datastore, "datastore-type", x.datastore, "Calico's datastore, etcdv3 or kubernetes; as for the controller.")
	cmd.Flags().DurationVar(&x.wait, "wait", x.wait, "How long to wait before what disagrees is read again; only what both readings show is reported.")
	return screen.Finds(cmd, func(cmd *cobra.Command) ([]finding.Finding, error) {
		if x.wait < 0 {
			return nil, fmt.Errorf("--wait is %s: it must not be negative; 10s is the default", x.wait)
		}
		sides, err := Open(cmd.Context(), x.source, x.datastore)
		if err != nil {
			return nil, err
		}
		defer func() { _ = sides.Store.Close() }()
		data, found, err := sides.Disagreements(cmd.Context(), x.wait, x.clock)
		if err != nil {
			return nil, err
		}
		return ipamcheck.Findings(data, found), nil
	})
}

// Disagreements reads Calico's IPAM and, if anything disagrees, reads it again after the wait. It returns the last
// reading, and what all readings show alike.
func (s Sides) Disagreements(ctx context.Context, wait time.Duration, clock clock.Clock) (ipamcheck.Data, []ipamcheck.Disagreement, error) {
	data, err := s.readIPAM(ctx)
	if err != nil {
		return data, nil, err
	}
	found := ipamcheck.Check(data)
	if len(found) == 0 {
		return data, nil, nil
	}
	select {
	case <-ctx.Done():
		return data, nil, context.Cause(ctx)
	case <-clock.After(wait):
	}
	if data, err = s.readIPAM(ctx); err != nil {
		return data, nil, err
	}
	return data, ipamcheck.Confirmed(found, ipamcheck.Check(data)), nil
}

// readIPAM is one reading. Pods are listed before and after the datastore, so that one that came or went meanwhile
// counts as existing.
func (s Sides) readIPAM(ctx context.Context) (ipamcheck.Data, error) {
	before, err := s.pods(ctx)
	if err != nil {
		before = nil
	}
	data, readErr := s.Store.IPAM(ctx)
	if readErr != nil {
		return data, readErr
	}
	if err == nil {
		data.Pods, err = s.pods(ctx)
	}
	if ctx.Err() != nil {
		return data, context.Cause(ctx)
	}
	if err != nil {
		data.Pods, data.PodsUnread = nil, plain(err)
		return data, nil
	}
	maps.Copy(data.Pods, before)
	return data, nil
}

// pods lists the pods that have not finished.
func (s Sides) pods(ctx context.Context) (map[ipamcheck.Pod]bool, error) {
	pods := map[ipamcheck.Pod]bool{}
	err := s.Cluster.EachPod(ctx, func(namespace, name string) { pods[ipamcheck.Pod{Namespace: namespace, Name: name}] = true })
	return pods, err
}

// showRepairs prints what would be repaired. Whether anything disagrees is in the exit code that the error carries.
func showRepairs(cmd *cobra.Command, source Source, settings Settings, machines []string, output *screen.Format) error {
	if len(machines) > 0 {
		return errors.New("--repair is about all of IPAM's data: name no machine")
	}
	sides, err := Open(cmd.Context(), source, settings.Datastore)
	if err != nil {
		return err
	}
	defer func() { _ = sides.Store.Close() }()
	data, found, err := sides.Disagreements(cmd.Context(), min(usualWait, settings.Config.Grace), clock.RealClock{})
	if err != nil {
		return err
	}
	NoteUnread(cmd.ErrOrStderr(), data)
	return ShowRepairs(cmd.OutOrStdout(), output, ipamcheck.Planned(found))
}

// ShowRepairs prints a plan of repairs. Whether anything disagrees is in the exit code that the error carries.
func ShowRepairs(out io.Writer, output *screen.Format, plan ipamcheck.Plan) error {
	if err := output.Print(out, prose.Printable(plan.String()), plan); err != nil {
		return err
	}
	return command.Attention(len(plan.Repairs)+len(plan.LeftAlone) > 0)
}

// NoteUnread prints what was not read, and so was not compared.
func NoteUnread(out io.Writer, data ipamcheck.Data) {
	for _, f := range ipamcheck.Findings(data, nil) {
		if f.Unread {
			fmt.Fprintln(out, "note: "+prose.Printable(command.OneLine(f.What)))
		}
	}
}
