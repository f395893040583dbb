// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command digitalocean-csi-driver makes, moves and mounts DigitalOcean's volumes for Kubernetes.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/docloud/csiapp"
	"github.com/mooring-dev/mooring/internal/platform/command"
	_ "github.com/mooring-dev/mooring/internal/platform/publicroots" // the image has no store of certificates
)

// Flags with one dash are those of csi-digitalocean, which used Go's own flag package.
func main() { os.Exit(command.Main(csiapp.NewCommand(), command.WithSingleDash())) }
