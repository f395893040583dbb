// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// kubectl-mooring is the kubectl plugin for people who run Mooring's components.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
)

func main() { os.Exit(command.Main(plugin.NewCommand(plugin.Builtin()...))) }
