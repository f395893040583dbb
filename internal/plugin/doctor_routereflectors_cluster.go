// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/doctor"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
)

// clusterTime bounds the reading of the cluster.
const clusterTime = time.Minute

// fromCluster reads the cluster of the kubeconfig, and Calico's data from the datastore that flag and environment name.
func (d *doctorRouteReflectors) fromCluster(ctx context.Context) (doctor.Evidence, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	where, err := calico.ResolveOrKubernetes(d.datastore, os.LookupEnv)
	if err != nil {
		return doctor.Evidence{}, err
	}
	config, err := d.env.Kube.RESTConfig()
	if err != nil {
		return doctor.Evidence{}, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return doctor.Evidence{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	var e doctor.Evidence
	if where.Kind == calico.EtcdV3 {
		e, err = fromEtcd(ctx, where.Etcd, client)
	} else {
		e, err = fromKubernetes(ctx, config, client)
	}
	if err != nil {
		return doctor.Evidence{}, err
	}
	return withTopologies(ctx, config, e)
}

// withTopologies adds the RouteReflectorTopologies. Anyone who may not list them learns what is not judged without.
func withTopologies(ctx context.Context, config *rest.Config, e doctor.Evidence) (doctor.Evidence, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return doctor.Evidence{}, fmt.Errorf("connecting to the API server: %w", err)
	}
	e.Topologies, _, err = (&cluster{dynamic: client}).topologies(ctx)
	if apierrors.IsForbidden(err) {
		e.NoTopologies, err = err.Error(), nil
	}
	return e, err
}

// fromKubernetes reads Calico's kubernetes datastore.
func fromKubernetes(ctx context.Context, config *rest.Config, client kubernetes.Interface) (doctor.Evidence, error) {
	bgp, err := calico.OpenBGP(ctx, config)
	if errors.Is(err, calico.ErrNoBGPKinds) {
		return doctor.Evidence{}, fmt.Errorf("%w; if Calico keeps its data in etcd, set ETCD_ENDPOINTS", err)
	}
	if err != nil {
		return doctor.Evidence{}, err
	}
	configurations, err := bgp.Configurations(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	configuration := byDefault(configurations)
	e := doctor.Evidence{Mesh: routereflector.MeshFrom(configuration)}
	peers, err := bgp.Peers(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	if e.Peers, err = files.Peers(peers); err != nil {
		return doctor.Evidence{}, err
	}
	nodes, err := kubernetesNodes(ctx, client)
	if err != nil {
		return doctor.Evidence{}, err
	}
	as := routereflector.ASNumberFrom(configuration)
	for i := range nodes {
		e.Nodes = append(e.Nodes, routereflector.NodeFrom(&nodes[i], 0, as))
	}
	return e, nil
}

// fromEtcd reads Calico's etcdv3 datastore, all of it at one revision. Whether nodes are Ready is known to Kubernetes alone, so that a datastore of
// another cluster than the kubeconfig's is refused.
func fromEtcd(ctx context.Context, where calico.EtcdConfig, client kubernetes.Interface) (doctor.Evidence, error) {
	logrus.SetOutput(io.Discard) // libcalico-go's; what cannot be read is among the findings
	etcd, err := calico.OpenEtcd(where)
	if err != nil {
		return doctor.Evidence{}, err
	}
	defer func() { _ = etcd.Close() }()
	if err := etcd.Ping(ctx); err != nil {
		return doctor.Evidence{}, err
	}
	namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return doctor.Evidence{}, fmt.Errorf("reading the namespace kube-system, whose UID says which cluster Calico's etcd belongs to: %w", err)
	}
	nodes, err := kubernetesNodes(ctx, client)
	if err != nil {
		return doctor.Evidence{}, err
	}
	view, err := calico.NewBGPEtcd(etcd, string(namespace.UID), clock.RealClock{}).Look(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	configuration := byDefault(view.Configurations)
	e := doctor.Evidence{Mesh: routereflector.MeshFrom(configuration), Etcd: true, InvalidIDs: map[string]string{}, Unread: view.Unread}
	if e.Peers, err = files.Peers(view.Peers); err != nil {
		return doctor.Evidence{}, err
	}
	for i := range view.Nodes {
		if id := view.Nodes[i].InvalidID; id != "" {
			e.InvalidIDs[view.Nodes[i].Name] = id
		}
	}
	binding := routereflector.Binding{Cluster: string(namespace.UID), Recorded: view.Recorded()}
	e.Nodes, binding.Present, binding.Referenced = routereflector.NodesFrom(view.Nodes, nodes, nil, routereflector.ASNumberFrom(configuration))
	if refusal := binding.Refusal(); refusal != nil && (binding.Recorded != "" || binding.Referenced > 0) {
		return doctor.Evidence{}, errors.New(refusal.Message)
	}
	return e, nil
}

func byDefault(all []calicov3.BGPConfiguration) *calicov3.BGPConfiguration {
	if at := slices.IndexFunc(all, func(c calicov3.BGPConfiguration) bool { return c.Name == "default" }); at >= 0 {
		return &all[at]
	}
	return nil
}

func kubernetesNodes(ctx context.Context, client kubernetes.Interface) ([]corev1.Node, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	return nodes.Items, nil
}
