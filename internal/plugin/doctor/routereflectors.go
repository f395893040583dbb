// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
	"github.com/mooring-dev/mooring/internal/routereflector/doctor"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
)

const routeReflectorsLong = `Find hazards in the BGP route reflectors of a cluster with Calico, no matter who created them: a
RouteReflectorTopology, another operator, or people by hand.

A model of Calico's BGP shows which nodes have no route to each other, and how many paths a prefix has. The command also finds a mesh
that was left on, patched BIRD templates that are not in force on every node, single reflectors, reflectors of one zone, BGPPeers that contradict each other, and selectors on labels that an upgrade
of Kubernetes may remove.

It reads the cluster of the kubeconfig (Nodes, BGPPeers, BGPConfiguration; it writes nothing), or, with --nodes, files that hold
what kubectl prints.

If Calico keeps its data in etcd, name that etcd as for calicoctl: DATASTORE_TYPE=etcdv3 (or --datastore-type), ETCD_ENDPOINTS, and
if needed ETCD_USERNAME, ETCD_PASSWORD, ETCD_CA_CERT_FILE, ETCD_CERT_FILE and ETCD_KEY_FILE; each variable may begin with
CALICO_ as well. Kubernetes' Nodes and RouteReflectorTopologies are then read from the cluster of the kubeconfig.`

const routeReflectorsExample = `  kubectl mooring doctor routereflectors
  ETCD_ENDPOINTS=https://10.0.0.1:2379 ETCD_CA_CERT_FILE=ca.pem kubectl mooring doctor routereflectors
  kubectl get nodes -o json > nodes.json; kubectl get bgppeers -o json > peers.json
  kubectl mooring doctor routereflectors --nodes nodes.json --bgppeers peers.json -o json`

type routeReflectors struct {
	env   *observe.Env
	names files.Names
	// datastore is Calico's, as the flag says it.
	datastore string
}

func newRouteReflectors(env *observe.Env) *cobra.Command {
	d := &routeReflectors{env: env}
	cmd := &cobra.Command{
		Use:     "routereflectors",
		Aliases: []string{"routereflector", "rr"},
		Short:   "Find black holes, multiplying paths and other hazards of route reflectors",
		Long:    routeReflectorsLong,
		Example: routeReflectorsExample,
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&d.names.Nodes, "nodes", "", "File with the Nodes, a List as `kubectl get nodes -o json` prints it, or YAML; - is standard input. Without it the cluster is read.")
	flags.StringVar(&d.names.Peers, "bgppeers", "", "File with the existing BGPPeers. Without it, and with --nodes: none.")
	flags.StringVar(&d.names.Configuration, "bgpconfiguration", "", "File with BGPConfiguration default. Without it, and with --nodes: none, so that the mesh is on.")
	flags.StringVar(&d.datastore, "datastore-type", "", "Calico's datastore, kubernetes or etcdv3. Also DATASTORE_TYPE; endpoints in ETCD_ENDPOINTS mean etcdv3. Without any of these: kubernetes.")
	return screen.Finds(cmd, func(cmd *cobra.Command) ([]finding.Finding, error) {
		evidence, err := d.evidence(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		return doctor.Findings(evidence), nil
	})
}

func (d *routeReflectors) evidence(ctx context.Context, in io.Reader, notes io.Writer) (doctor.Evidence, error) {
	if d.names.Nodes == "" {
		if d.names.Peers != "" || d.names.Configuration != "" {
			return doctor.Evidence{}, errors.New("--bgppeers and --bgpconfiguration need --nodes: give all as files, or none, to read the cluster")
		}
		where, err := calico.ResolveOrKubernetes(d.datastore, os.LookupEnv)
		if err != nil {
			return doctor.Evidence{}, err
		}
		return observe.Read(ctx, d.env, func(ctx context.Context, c *observe.Cluster) (doctor.Evidence, error) {
			return checks.ReflectorEvidence(ctx, c, where)
		})
	}
	if d.datastore != "" {
		return doctor.Evidence{}, errors.New("--datastore-type and --nodes: give one of them, since files are read without a datastore")
	}
	w, told, err := (files.Reader{Stdin: in}).Cluster(d.names)
	if err != nil {
		return doctor.Evidence{}, err
	}
	for _, note := range told {
		fmt.Fprintln(notes, "note: "+note)
	}
	return doctor.Evidence{Nodes: w.Nodes, Peers: w.Peers, Mesh: w.Mesh}, nil
}
