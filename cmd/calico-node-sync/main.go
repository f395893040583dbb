// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command calico-node-sync removes from Calico's datastore what is left of machines that are gone.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/nodesync/app"
	"github.com/mooring-dev/mooring/internal/platform/command"
	_ "github.com/mooring-dev/mooring/internal/platform/publicroots" // the image has no store of certificates
)

func main() { os.Exit(command.Main(app.NewCommand(), command.WithSingleDash())) }
