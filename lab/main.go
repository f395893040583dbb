// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command lab runs a real Kubernetes control plane with simulated nodes and Calico's datastore on this machine.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/lab/internal/bgp/agent"
	bgp "github.com/mooring-dev/mooring/lab/internal/bgp/command"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/cli"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/controlplane"
	"github.com/mooring-dev/mooring/lab/internal/enclave"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/podagent"
	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/image"
	"github.com/mooring-dev/mooring/lab/internal/podagent/sample"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/realnode/inside"
	"github.com/mooring-dev/mooring/lab/internal/realnode/loadbalancer"
	"github.com/mooring-dev/mooring/lab/internal/services"
	"github.com/mooring-dev/mooring/lab/internal/setup"
)

func main() {
	hidden := append(controlplane.Commands(), setup.NewCommand(), fleet.NewCommand(), cloud.NewCommand(), network.NewCommand(), agent.NewCommand())
	hidden = append(hidden, services.NewCommand(), enclave.NewTryCommand(), podagent.NewCommand(), container.NewCommand(), sample.NewCommand())
	hidden = append(hidden, realnode.NewCommand(), inside.NewCommand(), loadbalancer.NewCommand())
	hidden = append(hidden, bgp.Commands(cli.DirVariable, cli.DefaultDir)...)
	os.Exit(cli.Main(image.Arguments(os.Args), hidden...))
}
