// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"fmt"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/storage"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

// patience is how long the whole preparation may take.
const patience = 2 * time.Minute

type options struct {
	kubeconfig              string
	podCIDRs                []string
	datastore               string
	network                 string
	calicoNodeSyncManifests string
	cloudManagerManifests   string
	realNodes               bool
	foreignRemoval          bool
	volumes                 storage.Site
}

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	var o options
	command := subcommand.Hidden(blueprint.Setup, "Prepare a new cluster", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return o.run(ctx)
	})
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the administrator's kubeconfig")
	flags.StringSliceVar(&o.podCIDRs, "pod-cidr", nil, "Calico's address pools")
	flags.StringVar(&o.datastore, "calico-datastore", "", "where Calico keeps its data; etcd's address is in the environment")
	flags.StringVar(&o.network, "network", blueprint.NetworkLoopback, "what pods' packets travel on; the BGP network has no tunnels between machines")
	flags.StringVar(&o.calicoNodeSyncManifests, "calico-node-sync-manifests", "", "folder with the manifests of calico-node-sync")
	flags.StringVar(&o.cloudManagerManifests, "cloud-controller-manager-manifests", "", "folder with the manifests of the cloud controller manager")
	flags.BoolVar(&o.foreignRemoval, "foreign-node-removal", false, "a component that is not a process of the lab removes the Nodes of machines that are gone")
	flags.BoolVar(&o.realNodes, "real-nodes", false, "machines are real, and run CoreDNS")
	flags.StringVar(&o.volumes.Manifest, "volumes-manifest", "", "manifest of the volume driver; there are no volumes if it is empty")
	flags.StringVar(&o.volumes.Kinds, "volumes-kinds", "", "folder with the custom resources of snapshots")
	flags.StringVar(&o.volumes.Sysfs, "volumes-sysfs", "", "folder that describes disks")
	flags.StringVar(&o.volumes.APIURL, "cloud-url", "", "where pods reach the cloud's API")
	flags.StringVar(&o.volumes.CAFile, "cloud-ca-file", "", "what proves the cloud's API")
	flags.StringVar(&o.volumes.TokenFile, "cloud-token-file", "", "token of the cloud's account")
	return command
}

func (o options) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.kubeconfig, err)
	}
	config.QPS, config.Burst = 200, 400
	api, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if o.datastore == blueprint.DatastoreKubernetes {
		if err := installCalicoResources(ctx, api); err != nil {
			return err
		}
	}
	if err := o.applyManifests(ctx, api); err != nil {
		return err
	}
	if o.volumes.Manifest != "" {
		if err := applyVolumes(ctx, api, o.volumes); err != nil {
			return err
		}
	}
	if o.datastore == blueprint.DatastoreNone {
		return nil
	}
	var pools []caliconode.Pool
	for _, cidr := range o.podCIDRs {
		pool := caliconode.Pool{CIDR: cidr, Encapsulation: caliconode.IPIP}
		if o.network == blueprint.NetworkBGP {
			// The kernel at hand may have no tunnels, and Debian's bird does not know Calico's.
			pool.Encapsulation = caliconode.Unencapsulated
		}
		pools = append(pools, pool)
	}
	return initializeCalico(ctx, pools)
}

func initializeCalico(ctx context.Context, pools []caliconode.Pool) error {
	config, err := apiconfig.LoadClientConfigFromEnvironment()
	if err != nil {
		return fmt.Errorf("reading the address of Calico's datastore: %w", err)
	}
	datastore, err := caliconode.Connect(*config)
	if err != nil {
		return err
	}
	if err := datastore.InitializeWith(ctx, pools...); err != nil {
		return err
	}
	return datastore.Close()
}
