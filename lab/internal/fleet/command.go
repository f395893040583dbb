// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

type options struct {
	kubeconfig, machines, datastore, cloud, network, families, readyFile string
	podsPerNode                                                          int
	leaseInterval                                                        time.Duration
	taint, uninitialized                                                 bool
}

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	var o options
	command := subcommand.Hidden(blueprint.Nodes, "Simulate machines", func(ctx context.Context) error { return o.run(ctx) })
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the machines")
	flags.StringVar(&o.machines, "machines", "", "file with the list of machines")
	flags.StringVar(&o.datastore, "calico-datastore", "", "where Calico keeps its data; etcd's address is in the environment")
	flags.StringVar(&o.readyFile, "ready-file", "", "file to write once all machines are up")
	flags.StringVar(&o.cloud, "cloud", blueprint.CloudNone, "what the machines stand on; without a cloud this process deletes the Nodes of machines that are gone")
	flags.StringVar(&o.network, "network", blueprint.NetworkLoopback, "what pods' packets travel on; the BGP network has no tunnels between machines")
	flags.StringVar(&o.families, "ip-families", blueprint.FamilyIPv4, "families of the addresses of machines and pods in a BGP network: ipv4, ipv6, or ipv4,ipv6")
	flags.DurationVar(&o.leaseInterval, "lease-interval", 0, "time between two heartbeats of a machine (default that of kubelets)")
	flags.IntVar(&o.podsPerNode, "pods-per-node", 0, "number of pods to create for each machine")
	flags.BoolVar(&o.uninitialized, "uninitialized", false, "count machines as up before a cloud controller manager has initialized their Nodes")
	flags.BoolVar(&o.taint, "taint-simulated", false, "keep pods away that do not tolerate simulated machines, as there are real ones")
	return command
}

// The fleet of a large lab renews hundreds of Leases a second.
const (
	clientQPS   = 500
	clientBurst = 1000
)

func (o options) run(ctx context.Context) error {
	logger := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	logrus.SetLevel(logrus.WarnLevel) // libcalico-go logs every call otherwise
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.kubeconfig, err)
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	datastore, err := o.connectCalico()
	if err != nil {
		return err
	}
	if datastore != nil {
		defer func() { _ = datastore.Close() }()
	}
	kubelets := kubelet.NewFleet(kubelet.Config{Client: api, LeaseInterval: o.leaseInterval, Logger: logger.WithName("kubelet")})
	f := &fleet{
		api: api, kubelets: kubelets, datastore: datastore, tunnels: o.network != blueprint.NetworkBGP, families: o.families, path: o.machines, podsPerNode: o.podsPerNode,
		removesNodes: o.cloud == blueprint.CloudNone, uninitialized: o.uninitialized, logger: logger, members: map[string]*member{}, starting: make(chan struct{}, calicoStarts),
	}
	if o.taint {
		f.taints = []corev1.Taint{{Key: SimulatedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	return f.run(ctx, func() error { return os.WriteFile(o.readyFile, []byte("ready\n"), 0o600) })
}

// connectCalico returns nil when the lab has no Calico.
func (o options) connectCalico() (*caliconode.Datastore, error) {
	if o.datastore == blueprint.DatastoreNone {
		return nil, nil
	}
	config, err := apiconfig.LoadClientConfigFromEnvironment()
	if err != nil {
		return nil, fmt.Errorf("reading the address of Calico's datastore: %w", err)
	}
	if string(config.Spec.DatastoreType) != o.datastore {
		return nil, errors.New("the environment names another datastore than --calico-datastore")
	}
	config.Spec.K8sClientQPS = clientQPS // libcalico-go's own limit is 5 a second, with which ten machines take minutes
	return caliconode.Connect(*config)
}
