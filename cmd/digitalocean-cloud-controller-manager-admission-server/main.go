// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command digitalocean-cloud-controller-manager-admission-server tells the API server which Services can have a load balancer at DigitalOcean.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	"github.com/mooring-dev/mooring/internal/platform/command"
	_ "github.com/mooring-dev/mooring/internal/platform/publicroots" // the image has no store of certificates
)

// Flags with one dash are those of the upstream project, which used Go's own flag package.
func main() { os.Exit(command.Main(admissionapp.NewCommand(), command.WithSingleDash())) }
