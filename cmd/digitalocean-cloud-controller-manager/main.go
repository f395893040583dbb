// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command digitalocean-cloud-controller-manager keeps a cluster's Nodes and load balancers as they are at DigitalOcean.
package main

import (
	"fmt"
	"os"

	"github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/platform/command"
	_ "github.com/mooring-dev/mooring/internal/platform/publicroots" // the image has no store of certificates
)

func main() {
	root, err := app.NewCommand()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error: "+command.OneLine(err.Error()))
		os.Exit(command.ExitError)
	}
	os.Exit(command.Main(root))
}
