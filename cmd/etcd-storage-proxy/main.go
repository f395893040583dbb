// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command etcd-storage-proxy gives one tenant its own slice of an etcd.
package main

import (
	"os"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxyapp"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

func main() { os.Exit(command.Main(proxyapp.NewCommand())) }
