// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/demo"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

func (a *app) demoCommand() *cobra.Command {
	o := blueprint.Options{
		Datastore: blueprint.DatastoreEtcd, Cloud: blueprint.CloudDigitalOcean, With: []string{blueprint.CalicoNodeSync},
		NodeMonitorGracePeriod: 8 * time.Second, CalicoNodeSyncGrace: 10 * time.Second,
	}
	var victim string
	command := &cobra.Command{
		Use:   "demo",
		Short: "Start a lab with Mooring's components and show their main job, step by step",
		Long: `Start a lab with digitalocean-cloud-controller-manager and calico-node-sync, and show their main job: a droplet becomes a Node, a Service
gets a load balancer, a droplet is destroyed, its Node goes, and the load balancer and Calico's datastore follow.

On a terminal the lab then stays up until Ctrl-C. Without one it is stopped, and the exit status reports whether the job was seen done. Machines that
an earlier demo in the same folder has destroyed are brought back first.`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return a.demo(command, o, victim) },
	}
	flags := command.Flags()
	flags.IntVar(&o.NodeCount, "nodes", 5, "number of machines")
	flags.IntVar(&o.ZoneCount, "zones", 2, "number of zones that they are spread over")
	flags.IntVar(&o.PodsPerNode, "pods-per-node", 2, "number of pods that are bound to each node")
	flags.DurationVar(&o.CalicoNodeSyncGrace, "grace-period", o.CalicoNodeSyncGrace, "grace period of calico-node-sync")
	addPageFlag(command, &o)
	flags.StringVar(&victim, "victim", "node-3", "machine to destroy")
	return command
}

func (a *app) demo(command *cobra.Command, o blueprint.Options, victim string) error {
	ctx, cancel := untilSignal(command)
	defer cancel()
	o, err := a.completeOptions(command, o)
	if err != nil {
		return err
	}
	if o, err = runner.Agree(o, given(command)); err != nil {
		return err
	}
	if o.Enclosed() {
		return fmt.Errorf("the lab in %s was made with real machines, and the demo needs one without; choose another folder with --dir", o.Dir)
	}
	if err := checkVictim(o, victim); err != nil {
		return err
	}
	request, err := a.request(o, given(command))
	if err != nil {
		return err
	}
	out := command.OutOrStdout()
	begin := time.Now()
	fmt.Fprintf(out, "Starting a lab in %s\n", o.Dir)
	request.RestoreMachines = true
	request.Progress = func(line string) { fmt.Fprintf(out, "  %s\n", line) }
	ready := make(chan folder.Lab, 1)
	request.Ready = func(lab folder.Lab) { ready <- lab }

	labCtx, stopLab := context.WithCancel(ctx)
	defer stopLab()
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(labCtx, request) }()
	var lab folder.Lab
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("interrupted before the lab was ready; it has been stopped")
		}
		return err
	case lab = <-ready:
	}
	fmt.Fprintf(out, "  ready after %.1f s\n", time.Since(begin).Seconds())
	layout := blueprint.Layout{Dir: o.Dir}
	a.showPage(ctx, out, o)
	story := &demo.Story{
		Layout: layout, Lab: lab, Newcomer: fmt.Sprintf("node-%d", o.NodeCount+1), Victim: victim, PodsPerNode: o.PodsPerNode, Out: out,
	}
	storyErr := story.Run(ctx)
	if storyErr == nil {
		fmt.Fprintf(out, "\nThe main job is done.\n")
		a.showStatus(ctx, out, layout)
	}
	if storyErr == nil && a.OnTerminal() {
		stay(ctx, command, layout, ended)
	}
	stopLab()
	fmt.Fprintln(out, "Stopping the lab")
	if err := <-ended; err != nil {
		return errors.Join(storyErr, err)
	}
	if storyErr != nil && ctx.Err() != nil {
		return errors.New("interrupted before the main job was seen done; the lab has been stopped")
	}
	return storyErr
}

// checkVictim finds a victim that will not be there before anything is started.
func checkVictim(o blueprint.Options, victim string) error {
	for i := range o.NodeCount {
		if victim == fmt.Sprintf("node-%d", i+1) {
			return nil
		}
	}
	return fmt.Errorf("--victim %s is not one of the %d machines; use node-1 to node-%d", victim, o.NodeCount, o.NodeCount)
}

// onTerminal reports whether somebody is there who can press Ctrl-C.
func onTerminal() bool {
	return term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
}

// showStatus ends the story with what the plugin reports of the same cluster. Without the plugin there is nothing to show, and no error.
func (a *app) showStatus(ctx context.Context, out io.Writer, layout blueprint.Layout) {
	executable, err := a.Executable()
	if err != nil {
		return
	}
	variables, err := a.environment(layout)
	if err != nil {
		return
	}
	command := exec.CommandContext(ctx, "sh", "-c", exports(variables)+"exec "+quoted(filepath.Join(filepath.Dir(executable), pageProgram))+" status") //nolint:gosec // our own words
	text, err := command.Output()
	if exit := (*exec.ExitError)(nil); len(text) == 0 || err != nil && !errors.As(err, &exit) {
		return
	}
	fmt.Fprintf(out, "\nkubectl mooring status\n")
	const columns, indent = 80, "  "
	for line := range strings.Lines(screen.Fold(string(text), columns-len(indent))) {
		fmt.Fprint(out, indent+line)
	}
}

// stay keeps the lab up until the user leaves. When the lab ends by itself its error is put back for the caller.
func stay(ctx context.Context, command *cobra.Command, layout blueprint.Layout, ended chan error) {
	fmt.Fprintf(command.OutOrStdout(), `
The lab stays up. In another terminal, in this folder:

  eval "$(bin/lab env --dir %s)"

Three commands to try:

  kubectl-mooring explain node node-2     what each side reports of a machine
  lab droplet delete node-2               and then: kubectl-mooring status -w
  kubectl-mooring plan nodes              what calico-node-sync would remove now

With kubectl (yours, or make bin/kubectl) it is also kubectl mooring. Leave with Ctrl-C; it stops everything.
`, quoted(layout.Dir))
	select {
	case <-ctx.Done():
	case err := <-ended:
		ended <- err
	}
}
