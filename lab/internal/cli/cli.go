// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/enclave"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
)

// DirVariable names the folder of the lab when --dir is not given.
const DirVariable = "MOORING_LAB_DIR"

// DefaultDir is below the working directory, easy to find and to delete; git ignores it.
const DefaultDir = ".lab"

// Main runs the command line and returns the exit code. The hidden commands are those which the lab's binary runs in the processes that it starts.
func Main(args []string, hidden ...*cobra.Command) int {
	root := NewCommand(DefaultSettings())
	root.AddCommand(hidden...)
	if len(args) == 0 || !slices.ContainsFunc(hidden, func(c *cobra.Command) bool { return c.Name() == args[0] }) {
		// Cobra adds the process-wide flags to every command, and Kubernetes' packages, linked for the hidden commands, register
		// some there: one of them, --version, is not what cobra expects.
		pflag.CommandLine = pflag.NewFlagSet("lab", pflag.ContinueOnError)
	}
	root.SetArgs(args)
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if !errors.Is(err, enclave.ErrSaid) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command.CommandPath(), err)
	}
	return 1
}

// Settings are what tests replace.
type Settings struct {
	// MinFreeBytes is the disk space that a lab asks for before it starts.
	MinFreeBytes uint64
	// Executable finds the lab's own binary.
	Executable func() (string, error)
	// FindTools finds what a BGP network needs, and TryNetwork sees whether this machine allows one, given the lab's own binary.
	FindTools  func(context.Context) (network.Tools, error)
	TryNetwork func(ctx context.Context, executable string) error
	// TryRealNodes sees whether this machine allows real machines, with their programs in the folder bin.
	TryRealNodes func(bin string) error
	// OnTerminal reports whether somebody sits at the keyboard and sees what is printed.
	OnTerminal func() bool
	// Browse opens an address in the browser of the desktop.
	Browse func(ctx context.Context, url string) error
}

// DefaultSettings are those of the real command.
func DefaultSettings() Settings {
	return Settings{
		MinFreeBytes: folder.MinFreeBytes, Executable: os.Executable, FindTools: network.FindTools, TryNetwork: network.Try,
		TryRealNodes: func(bin string) error { return realnode.Judge(realnode.Examine(bin)) },
		OnTerminal:   onTerminal, Browse: browse,
	}
}

// NewCommand returns the whole command line, without hidden commands.
func NewCommand(settings Settings) *cobra.Command {
	app := &app{Settings: settings}
	root := &cobra.Command{
		Use:   "lab",
		Short: "A real Kubernetes control plane with simulated nodes, a simulated cloud and Calico's datastore, on this machine",
		Long: `lab runs etcd, kube-apiserver and kube-controller-manager, with nodes that behave as kubelets do towards the API server and with
what calico-node and the CNI plugin write. The nodes are droplets of a simulated DigitalOcean, with which digitalocean-cloud-controller-manager
works. Everything listens on 127.0.0.1 only and is kept in one folder.

Start with:  lab up        and then  eval "$(lab env)"
See it work: lab demo`,
		SilenceUsage: true, SilenceErrors: true,
		Version: version(),
		Args:    noArguments,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, command.CommandPath())
	})
	root.PersistentFlags().StringVar(&app.dir, "dir", "", "folder of the lab (default $"+DirVariable+" or "+DefaultDir+")")
	root.AddCommand(
		app.upCommand(), app.downCommand(), app.cleanCommand(), app.statusCommand(), app.kubeconfigCommand(), app.envCommand(), app.logsCommand(),
		app.nodeCommand(), app.dropletCommand(), app.loadBalancerCommand(), app.killCommand(), app.demoCommand(), app.doctorCommand(),
	)
	return root
}

// app is what commands share.
type app struct {
	Settings
	dir string
}

// layout finds the lab's folder.
func (a *app) layout() (blueprint.Layout, error) {
	dir := a.dir
	if dir == "" {
		dir = os.Getenv(DirVariable)
	}
	if dir == "" {
		dir = DefaultDir
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return blueprint.Layout{}, fmt.Errorf("finding the folder %s: %w", dir, err)
	}
	return blueprint.Layout{Dir: absolute}, nil
}

// noArguments is cobra.NoArgs with a next step.
func noArguments(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if command.HasParent() {
		return fmt.Errorf("argument %q is not expected; see `%s --help`", args[0], command.CommandPath())
	}
	return fmt.Errorf("command %q is unknown; see `lab --help`", args[0])
}

// oneArgument requires exactly one argument, called what.
func oneArgument(what string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("give exactly one %s; see `%s --help`", what, command.CommandPath())
		}
		return nil
	}
}

// untilSignal returns a context that ends when the user or the system asks the program to stop. It is not set up for all commands, because the
// hidden ones have handlers of their own.
func untilSignal(command *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := command.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}
