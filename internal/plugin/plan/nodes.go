// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const nodesWhere = `It reads the cluster of the kubeconfig; where Calico keeps its data in etcd, the environment names that as for calicoctl
(ETCD_ENDPOINTS and what goes with it).`

const nodesExample = `  kubectl mooring plan nodes
  kubectl mooring plan nodes worker-1 --grace-period=0s
  ETCD_ENDPOINTS=https://10.0.0.1:2379 kubectl mooring plan nodes -o json`

func newNodes(env *observe.Env) *cobra.Command {
	cmd := commands.NewPlan(env.NodeSync(), nodesWhere)
	cmd.Use, cmd.Aliases, cmd.Example = "nodes [MACHINE...]", []string{"node", "no"}, nodesExample
	cmd.ValidArgsFunction = observe.Unnamed(env, observe.NodeNames)
	return observe.Bounded(cmd)
}
