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
	"github.com/mooring-dev/mooring/lab/internal/enclave"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

type upFlags struct {
	options       blueprint.Options
	dryRun        bool
	foreground    bool
	stopWithStdin bool
	reportFD      int
	inside        string
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
	flags.StringVar(&f.inside, enclave.Flag, "", "with real machines: descriptors of the ports that are relayed, in namespaces of the lab's own")
	_ = flags.MarkHidden("report-fd") // the flag exists
	_ = flags.MarkHidden(enclave.Flag)
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
	flags.StringVar(&o.Cloud, "cloud", "", "what the machines stand on: digitalocean (simulated, with digitalocean-cloud-controller-manager) or none "+
		"(default digitalocean, or none if that is not built or --components is given)")
	flags.StringVar(&o.Network, "network", blueprint.NetworkLoopback, "what pods' packets travel on: loopback (there are none), or bgp for a network "+
		"namespace with Debian's bird and Calico's confd for each of up to 50 machines, which needs and implies --calico-datastore kubernetes")
	flags.StringVar(&o.IPFamilies, "ip-families", blueprint.FamilyIPv4, "with --network bgp, the families in which machines and pods have addresses: "+
		"ipv4, ipv6, or ipv4,ipv6 for dual stack")
	flags.StringVar(&o.BIRDTemplates, "bird-templates", blueprint.TemplatesOfCalico, "with --network bgp, the templates of BIRD's configuration at this start: "+
		"calico, or mooring for Calico's as kubectl mooring bird-templates patches them")
	flags.IntVar(&o.RealNodes, "real-nodes", 0, "how many of the machines are real, with kubelet, containerd and kube-proxy each; needs root, `make real-nodes` "+
		"and Debian's runc and nftables")
	flags.StringArrayVar(&o.Images, "image", nil, "with --real-nodes, NAME:TAG=/PATH/OF/PROGRAM for an image of one static program, NAME=/PATH.tar for an archive of "+
		"`make images`, or NAME:TAG alone for the program alongside the lab's own with the last part of the name; may be repeated")
	flags.StringArrayVar(&o.ImageArchives, "image-archive", nil, "with --real-nodes, a .tar of `make images` for all of them to have; may be repeated")
	flags.StringSliceVar(&o.With, "with", nil, "run these as well: calico-node-sync, and, with --real-nodes, digitalocean-csi-driver")
	flags.StringSliceVar(&o.Without, "without", nil, "do not run these, so that pods can do their work: digitalocean-cloud-controller-manager")
	flags.DurationVar(&o.NodeMonitorGracePeriod, "node-monitor-grace-period", 20*time.Second, "time after which a silent node is NotReady")
	flags.IntVar(&o.APIServerPort, "apiserver-port", 0, "port of kube-apiserver on 127.0.0.1 (0: any free port)")
	flags.StringVar(&o.APIServerProgram, "kube-apiserver", "", "path of a kube-apiserver to run in place of the lab's own, of another version for instance")
	addPageFlag(command, o)
	flags.DurationVar(&o.CalicoNodeSyncGrace, "calico-node-sync-grace-period", 10*time.Second, "grace period of calico-node-sync")
}

// given returns which options the user chose.
func given(command *cobra.Command) runner.Given {
	changed := command.Flags().Changed
	return runner.Given{
		Datastore: changed("calico-datastore"), Nodes: changed("nodes"), Zones: changed("zones"), Cloud: changed("cloud"), Network: changed("network"),
		IPFamilies: changed("ip-families"),
		RealNodes:  changed("real-nodes"),
	}
}

func (a *app) up(command *cobra.Command, f upFlags) error {
	options, err := a.completeOptions(command, f.options)
	if err != nil {
		return err
	}
	if f.stopWithStdin && !f.foreground {
		return fmt.Errorf("--stop-with-stdin works with --foreground only; add --foreground or leave it out")
	}
	if f.dryRun {
		return dryRun(command, options)
	}
	inside := command.Flags().Changed(enclave.Flag)
	if f.reportFD == 0 && !inside { // else this is the detached supervisor of a command that has done it
		if err := a.lookAround(command, f, options); err != nil {
			return err
		}
	}
	if !f.foreground {
		return a.upDetached(command, options)
	}
	ctx, cancel := untilSignal(command)
	defer cancel()
	if options.Enclosed() && !inside {
		return a.enclose(ctx, command, f, options)
	}
	return a.upHere(ctx, command, f, options)
}

// upHere runs the lab in this process.
func (a *app) upHere(ctx context.Context, command *cobra.Command, f upFlags, options blueprint.Options) error {
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
	if command.Flags().Changed(enclave.Flag) {
		leave, err := furnish(ctx, f.inside, &request)
		if err != nil {
			return tell(f.reportFD, err)
		}
		defer leave()
	}
	if f.reportFD > 0 {
		return runReporting(ctx, request, os.NewFile(uintptr(f.reportFD), "report"))
	}
	request.Progress = func(line string) { fmt.Fprintln(command.ErrOrStderr(), line) }
	request.Ready = func(folder.Lab) {
		fmt.Fprintln(command.OutOrStdout(), readyLine)
		go a.showPage(ctx, command.OutOrStdout(), options) // the supervisor goes on meanwhile
	}
	return runner.Run(ctx, request)
}

// lookAround says what is missing on this machine for a lab, before anything is started: as an error if it is needed.
func (a *app) lookAround(command *cobra.Command, f upFlags, o blueprint.Options) error {
	if o.Network == blueprint.NetworkBGP {
		if err := a.tryNetwork(command); err != nil {
			return err
		}
	}
	if o.RealNodes > 0 {
		if err := a.checkRealNodes(o); err != nil {
			return err
		}
	}
	if o.Cloud == blueprint.CloudNone && f.options.Cloud == "" && o.CloudProgram == "" && len(o.Components) == 0 {
		fmt.Fprintf(command.ErrOrStderr(), "  without a cloud: %s is not built, `make build` does it\n", blueprint.CloudControllerManager)
	}
	return nil
}

// readyLine is a contract with internal/testkit.
const readyLine = "lab ready"

// completeOptions fills in what is not a flag.
func (a *app) completeOptions(command *cobra.Command, o blueprint.Options) (blueprint.Options, error) {
	layout, err := a.layout()
	if err != nil {
		return o, err
	}
	o.Dir = layout.Dir
	if o, err = findAPIServer(o); err != nil {
		return o, err
	}
	if o, err = a.findCalicoNodeSync(o); err != nil {
		return o, err
	}
	if o, err = a.findCloud(o); err != nil {
		return o, err
	}
	if o, err = a.findVolumes(o); err != nil {
		return o, err
	}
	if o, err = a.findNetwork(command, o); err != nil {
		return o, err
	}
	if o, err = a.findRealNodes(command, o); err != nil {
		return o, err
	}
	return a.findPage(command, o)
}

func (a *app) request(o blueprint.Options, given runner.Given) (runner.Request, error) {
	executable, err := a.Executable()
	if err != nil {
		return runner.Request{}, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	return runner.Request{
		Options: o, Given: given, MinFreeBytes: a.MinFreeBytes, Executable: executable, Patience: patience(o),
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

// patience is how long one process may take to come up: seconds as a rule, minutes on a machine that does much else, and longer where many
// machines are to join. One that cannot come up ends by itself long before.
func patience(o blueprint.Options) time.Duration {
	return 10*time.Minute + time.Duration(o.NodeCount)*300*time.Millisecond
}
