// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd is the group of commands about the data of etcd storage: export, import, defragment, purge.
package etcd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// New is the group of commands about the data of a tenant of etcd storage.
func New(env *observe.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Export and import the data of one tenant of etcd storage; reclaim space in the core",
	}
	cmd.AddCommand(newExport(env), newImport(env), newDefragment(), newRetained(), newPurge())
	return cmd
}

// connectionHelp is the part of both commands' help about how the tenant is reached.
const connectionHelp = `How to connect to the tenant:
  - By default through its proxies: endpoint, CA bundle and client certificate
    are read from EtcdStorage NAME and from the ConfigMap and the Secret that it
    names first. Outside of the cluster run
    kubectl -n NAMESPACE port-forward service/etcd-NAME 2379
    alongside, and give --endpoint https://localhost:2379
  - With --endpoint, --cacert, --cert and --key through any proxy, without a
    cluster.
  - With --core-endpoint and the other --core flags in the core etcd itself, for
    its administrator: while there are no proxies.`

// exactlyOneName takes the name of an EtcdStorage and nothing else.
func exactlyOneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("give the name of one EtcdStorage; see '%s --help'", cmd.CommandPath())
	}
	return nil
}

// size writes a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
