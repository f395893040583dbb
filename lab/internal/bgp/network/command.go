// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

// Name is the hidden subcommand.
const Name = blueprint.BGPNetwork

// insideVariable marks a process that has been given a user namespace already.
const insideVariable = "MOORING_LAB_BGP_INSIDE"

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	o := Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	var try bool
	command := subcommand.Hidden(Name, "Run the BGP network of a lab", func(ctx context.Context) error {
		if os.Geteuid() != 0 && os.Getenv(insideVariable) == "" {
			return again(ctx)
		}
		if try {
			return build()
		}
		return Run(ctx, o)
	})
	flags := command.Flags()
	flags.StringVar(&o.Dir, "network-dir", "", "folder of the network")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of the administrator")
	flags.StringVar(&o.Machines, "machines", "", "file with the list of machines")
	flags.StringVar(&o.Datastore, "calico-datastore", blueprint.DatastoreKubernetes, "where Calico keeps its data; etcd's address is in the environment")
	flags.StringVar(&o.Templates, "templates", "", "folder of confd's templates")
	flags.BoolVar(&o.PatchTemplates, "patch-templates", false, "patch the templates as kubectl mooring bird-templates does")
	flags.StringVar(&o.Bird, "bird", "", "path of bird")
	flags.StringVar(&o.Bird6, "bird6", "", "path of bird6")
	flags.StringVar(&o.ReadyFile, "ready-file", "", "file to write once the speakers run")
	flags.BoolVar(&try, tryFlag, false, "only see whether a network can be made here")
	return command
}

// again runs this command again as the root of a user namespace. The network namespace stays the one we are in: the API server is there.
func again(ctx context.Context) error {
	// The child dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the lab's own binary: %w", err)
	}
	command := exec.CommandContext(ctx, executable, os.Args[1:]...)
	command.Env = append(os.Environ(), insideVariable+"=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err = command.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w (%w)", netns.ErrNotAllowed, err)
	}
	if err != nil {
		return fmt.Errorf("starting in a user namespace: %w", err)
	}
	return command.Wait()
}
