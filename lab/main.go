// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command lab runs a real Kubernetes control plane with simulated nodes and Calico's datastore on this machine.
package main

import (
	"os"
	"path"

	"github.com/mooring-dev/mooring/lab/internal/bgp/agent"
	bgp "github.com/mooring-dev/mooring/lab/internal/bgp/command"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/cli"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/controlplane"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/realnode/inside"
	"github.com/mooring-dev/mooring/lab/internal/realnode/loadbalancer"
	"github.com/mooring-dev/mooring/lab/internal/setup"
)

func main() {
	hidden := append(controlplane.Commands(), setup.NewCommand(), fleet.NewCommand(), cloud.NewCommand(), network.NewCommand(), agent.NewCommand())
	hidden = append(hidden, realnode.NewCommand(), inside.NewCommand(), loadbalancer.NewCommand())
	hidden = append(hidden, bgp.Commands(cli.DirVariable, cli.DefaultDir)...)
	os.Exit(cli.Main(arguments(os.Args), hidden...))
}

// arguments are those of this program when it is called with argv: called as kube-apiserver, as in a container of an image that is made of it, it is that.
func arguments(argv []string) []string {
	const apiServer = "kube-apiserver"
	if len(argv) > 0 && path.Base(argv[0]) == apiServer {
		return append([]string{apiServer}, argv[1:]...)
	}
	return argv[min(1, len(argv)):]
}
