// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command etcd-storage-operator gives each tenant its own slice of one etcd.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operatorapp"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

func main() { os.Exit(command.Main(operatorapp.NewCommand())) }
