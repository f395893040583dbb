// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"fmt"
	"io"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
	"github.com/mooring-dev/mooring/internal/routereflector/doctor"
	"github.com/mooring-dev/mooring/internal/routereflector/files"
)

// ReflectorEvidence reads the cluster, and Calico's data from a datastore. Anyone who may not list RouteReflectorTopologies learns what is not judged without.
func ReflectorEvidence(ctx context.Context, c *observe.Cluster, where calico.Config) (e doctor.Evidence, err error) {
	if where.Kind == calico.EtcdV3 {
		e, err = fromEtcd(ctx, c, where.Etcd)
	} else {
		e, err = fromKubernetes(ctx, c)
	}
	if err != nil {
		return doctor.Evidence{}, err
	}
	switch found, err := c.BIRDTemplates(ctx); {
	case err == nil:
		e.Templates = &found
	case !errors.Is(err, observe.ErrNoCalicoNode):
		e.NoTemplates = observe.OneLine(err)
	}
	e.Topologies, _, err = c.Topologies(ctx)
	if apierrors.IsForbidden(err) {
		e.NoTopologies, err = err.Error(), nil
	}
	return e, err
}

// fromKubernetes reads Calico's kubernetes datastore.
func fromKubernetes(ctx context.Context, c *observe.Cluster) (doctor.Evidence, error) {
	bgp, err := calico.OpenBGP(ctx, c.Config)
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
	configuration := calico.DefaultOf(configurations)
	e := doctor.Evidence{Mesh: routereflector.MeshFrom(configuration)}
	alongside(ctx, &e, bgp)
	peers, err := bgp.Peers(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	if e.Peers, err = files.Peers(peers); err != nil {
		return doctor.Evidence{}, err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	as := routereflector.ASNumberFrom(configuration)
	for _, n := range nodes {
		e.Nodes = append(e.Nodes, routereflector.NodeFrom(n, 0, as))
	}
	return e, nil
}

// fromEtcd reads Calico's etcdv3 datastore, all of it at one revision. Whether nodes are Ready is known to Kubernetes alone, so that a datastore of
// another cluster than the kubeconfig's is refused.
func fromEtcd(ctx context.Context, c *observe.Cluster, where calico.EtcdConfig) (doctor.Evidence, error) {
	logrus.SetOutput(io.Discard) // libcalico-go's; what cannot be read is among the findings
	etcd, err := calico.OpenEtcd(where)
	if err != nil {
		return doctor.Evidence{}, err
	}
	defer func() { _ = etcd.Close() }()
	if err := etcd.Ping(ctx); err != nil {
		return doctor.Evidence{}, err
	}
	namespace, err := c.Typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return doctor.Evidence{}, fmt.Errorf("reading the namespace kube-system, whose UID says which cluster Calico's etcd belongs to: %w", err)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	view, err := calico.NewBGPEtcd(etcd, string(namespace.UID), clock.RealClock{}).Look(ctx)
	if err != nil {
		return doctor.Evidence{}, err
	}
	configuration := calico.DefaultOf(view.Configurations)
	e := doctor.Evidence{Mesh: routereflector.MeshFrom(configuration), Etcd: true, InvalidIDs: map[string]string{}, Unread: view.Unread}
	alongside(ctx, &e, etcd)
	if e.Peers, err = files.Peers(view.Peers); err != nil {
		return doctor.Evidence{}, err
	}
	for i := range view.Nodes {
		if id := view.Nodes[i].InvalidID; id != "" {
			e.InvalidIDs[view.Nodes[i].Name] = id
		}
	}
	binding := routereflector.Binding{Cluster: string(namespace.UID), Recorded: view.Recorded()}
	e.Nodes, binding.Present, binding.Referenced = routereflector.NodesFrom(view.Nodes, observe.Values(nodes), nil, routereflector.ASNumberFrom(configuration))
	if refusal := binding.Refusal(); refusal != nil && (binding.Recorded != "" || binding.Referenced > 0) {
		return doctor.Evidence{}, errors.New(refusal.Message)
	}
	return e, nil
}

// alongside reads what decides about routes and the BGP port, or why it cannot be read.
func alongside(ctx context.Context, e *doctor.Evidence, from interface {
	ClusterRoutes(ctx context.Context) (clusterroutes.Settings, error)
	Policies(ctx context.Context) ([]calicov3.GlobalNetworkPolicy, error)
},
) {
	routes, err := from.ClusterRoutes(ctx)
	if e.NoRoutes = observe.OneLine(err); err == nil {
		e.Routes = &routes
	}
	policies, err := from.Policies(ctx)
	if e.NoPolicies = observe.OneLine(err); err == nil {
		e.Policies = append([]calicov3.GlobalNetworkPolicy{}, policies...) // not nil once it was read
	}
}
