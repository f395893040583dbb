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
		Short: "Export, import and measure one tenant of etcd storage; reclaim space in the core",
	}
	cmd.AddCommand(newExport(env), newImport(env), newCapacity(env), newDefragment(), newRetained(), newPurge())
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

// oneName takes one name and nothing else. what says which.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("give the name of one %s; see '%s --help'", what, cmd.CommandPath())
		}
		return nil
	}
}
