// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command calico-route-reflector-operator keeps Calico's BGP route reflectors as a RouteReflectorTopology wants them.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/platform/command"
	_ "github.com/mooring-dev/mooring/internal/platform/publicroots" // the image has no store of certificates
	"github.com/mooring-dev/mooring/internal/routereflector/app"
)

func main() { os.Exit(command.Main(app.NewCommand())) }
