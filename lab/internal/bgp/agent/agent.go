// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent is what runs alongside BIRD on a node of the BGP lab: Calico's own confd, which writes BIRD's configuration, and Calico's node
// status reporter, which fills in CalicoNodeStatus. Both are the code of the Calico module that go.mod pins; calico-node runs them as two
// processes, the lab as one, which halves their memory. When one of them gives up, the process ends and the lab starts it again.
package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/projectcalico/calico/confd/pkg/config"
	"github.com/projectcalico/calico/confd/pkg/run"
	"github.com/projectcalico/calico/node/pkg/status"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Name is the hidden subcommand.
const Name = "bgp-agent"

// NewCommand returns the hidden subcommand that the BGP network runs for each node. It must be started in a mount namespace of its own.
// NODENAME and how to reach the datastore are in its environment, as in calico-node's.
func NewCommand() *cobra.Command {
	var confDir, runDir string
	command := &cobra.Command{
		Use:    Name,
		Short:  "Run Calico's confd and node status reporter for one node (used by the lab)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return runAgent(confDir, runDir) },
	}
	command.Flags().StringVar(&confDir, "confd-dir", "", "folder with confd's templates")
	command.Flags().StringVar(&runDir, "run-dir", "", "folder to take for /var/run: BIRD's sockets are in its folder calico")
	return command
}

func runAgent(confDir, runDir string) error {
	if os.Getenv("NODENAME") == "" {
		return errors.New("NODENAME is not set")
	}
	if err := hide(runDir); err != nil {
		return err
	}
	c, err := config.InitConfig(true)
	if err != nil {
		return fmt.Errorf("configuring confd: %w", err)
	}
	c.ConfDir = confDir
	go status.Run()
	run.Run(c)
	return nil
}

// hide puts a folder in the place of /var/run, for this process alone: the status reporter has the path of BIRD's sockets built in.
func hide(runDir string) error {
	target, err := filepath.EvalSymlinks("/var/run")
	if err != nil {
		return fmt.Errorf("finding /var/run: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount namespace private: %w", err)
	}
	if err := unix.Mount(runDir, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", runDir, target, err)
	}
	return nil
}
