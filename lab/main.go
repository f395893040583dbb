// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command lab runs a real Kubernetes control plane with simulated nodes and Calico's datastore on this machine.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/lab/internal/cli"
	"github.com/mooring-dev/mooring/lab/internal/controlplane"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/setup"
)

func main() {
	hidden := append(controlplane.Commands(), setup.NewCommand(), fleet.NewCommand())
	os.Exit(cli.Main(os.Args[1:], hidden...))
}
