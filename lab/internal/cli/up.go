// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

type upFlags struct {
	options       blueprint.Options
	dryRun        bool
	foreground    bool
	stopWithStdin bool
	reportFD      int
}

func (a *app) upCommand() *cobra.Command {
	var f upFlags
	command := &cobra.Command{
		Use:   "up",
		Short: "Start a lab and leave it running",
		Long: `Start a lab and leave it running in the background. The command returns when everything is ready.

A folder that holds a lab from an earlier start goes on with its data; only its ports may differ.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return a.up(command, f) },
	}
	flags := command.Flags()
	addLabFlags(command, &f.options)
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be started, as YAML, and start nothing")
	flags.BoolVar(&f.foreground, "foreground", false, "stay in the foreground and stop the lab on SIGINT or SIGTERM; prints `lab ready` when it is")
	flags.BoolVar(&f.stopWithStdin, "stop-with-stdin", false, "with --foreground: also stop when standard input ends")
	flags.IntVar(&f.reportFD, "report-fd", 0, "file descriptor to report the start to")
	_ = flags.MarkHidden("report-fd") // the flag exists
	return command
}

// addLabFlags adds the flags that describe a lab.
func addLabFlags(command *cobra.Command, o *blueprint.Options) {
	flags := command.Flags()
	flags.StringVar(&o.Datastore, "calico-datastore", blueprint.DatastoreEtcd, "where Calico keeps its data: etcdv3, kubernetes, or none for no Calico")
	flags.IntVar(&o.NodeCount, "nodes", 3, "number of machines at the first start")
	flags.IntVar(&o.ZoneCount, "zones", 1, "number of zones that they are spread over")
	flags.IntVar(&o.PodsPerNode, "pods-per-node", 2, "number of pods that are bound to each node")
	flags.StringSliceVar(&o.Components, "components", nil, "run only these: a subset of etcd,kube-apiserver,kube-controller-manager,calico-etcd,nodes")
	flags.StringSliceVar(&o.With, "with", nil, "run these as well: calico-node-sync")
	flags.DurationVar(&o.NodeMonitorGracePeriod, "node-monitor-grace-period", 20*time.Second, "time after which a silent node is NotReady")
	flags.IntVar(&o.APIServerPort, "apiserver-port", 0, "port of kube-apiserver on 127.0.0.1 (0: any free port)")
	flags.DurationVar(&o.CalicoNodeSyncGrace, "calico-node-sync-grace-period", 10*time.Second, "grace period of calico-node-sync")
}

// given says which options the user chose.
func given(command *cobra.Command) runner.Given {
	changed := command.Flags().Changed
	return runner.Given{Datastore: changed("calico-datastore"), Nodes: changed("nodes"), Zones: changed("zones")}
}

func (a *app) up(command *cobra.Command, f upFlags) error {
	options, err := a.completeOptions(f.options)
	if err != nil {
		return err
	}
	if f.stopWithStdin && !f.foreground {
		return fmt.Errorf("--stop-with-stdin works with --foreground only; add --foreground or leave it out")
	}
	if f.dryRun {
		return dryRun(command, options)
	}
	if !f.foreground {
		return a.upDetached(command, options)
	}
	ctx, cancel := untilSignal(command)
	defer cancel()
	if f.stopWithStdin {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, command.InOrStdin())
			stop()
		}()
	}
	request, err := a.request(options, given(command))
	if err != nil {
		return err
	}
	if f.reportFD > 0 {
		return runReporting(ctx, request, os.NewFile(uintptr(f.reportFD), "report"))
	}
	request.Progress = func(line string) { fmt.Fprintln(command.ErrOrStderr(), line) }
	request.Ready = func(folder.Lab) { fmt.Fprintln(command.OutOrStdout(), readyLine) }
	return runner.Run(ctx, request)
}

// readyLine is a contract with internal/testkit.
const readyLine = "lab ready"

// completeOptions fills in what is not a flag.
func (a *app) completeOptions(o blueprint.Options) (blueprint.Options, error) {
	layout, err := a.layout()
	if err != nil {
		return o, err
	}
	o.Dir = layout.Dir
	return a.findCalicoNodeSync(o)
}

func (a *app) request(o blueprint.Options, given runner.Given) (runner.Request, error) {
	executable, err := a.Executable()
	if err != nil {
		return runner.Request{}, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	return runner.Request{
		Options: o, Given: given, MinFreeBytes: a.MinFreeBytes, Executable: executable,
		Progress: func(string) {}, Ready: func(folder.Lab) {},
	}, nil
}

func dryRun(command *cobra.Command, o blueprint.Options) error {
	o, err := runner.Agree(o, given(command))
	if err != nil {
		return err
	}
	description, err := blueprint.Make(o, blueprint.PlaceholderPorts(o))
	if err != nil {
		return err
	}
	text, err := description.YAML()
	if err != nil {
		return err
	}
	fmt.Fprint(command.OutOrStdout(), text)
	return nil
}
