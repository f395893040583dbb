// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/explain"
)

// service explains a Service of the namespace that flag or context name.
func (e *explainCommand) service(ctx context.Context, name string) (explain.Explanation, error) {
	evidence := explain.ServiceEvidence{}
	if err := checkDefaultType("--default-type", e.defaultType); err != nil {
		return explain.Explanation{}, err
	}
	defaults, err := readDefaults(e.defaultsFile)
	if err != nil {
		return explain.Explanation{}, err
	}
	evidence.Input.Cluster = loadbalancer.Cluster{DefaultType: e.defaultType, Defaults: defaults}
	cloud, notAsked, err := cloudClient(e.clock)
	if err != nil {
		return explain.Explanation{}, err
	}
	c, namespace, err := e.env.inNamespace()
	if err != nil {
		return explain.Explanation{}, err
	}
	service, err := c.typed.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return explain.Explanation{}, fmt.Errorf("there is no Service %q in namespace %s; -n names another namespace", name, namespace)
	case err != nil:
		return explain.Explanation{}, fmt.Errorf("reading Service %s/%s: %w", namespace, name, err)
	}
	evidence.Input.Service = service
	nodes, err := c.nodes(ctx)
	if err != nil {
		return explain.Explanation{}, err
	}
	for i := range nodes {
		evidence.Input.Nodes = append(evidence.Input.Nodes, &nodes[i])
	}
	if loadbalancer.NeedsOf(evidence.Input).Endpoints {
		if evidence.Input.EndpointNodes, err = c.endpointNodes(ctx, service); err != nil {
			return explain.Explanation{}, err
		}
	}
	if evidence.Cloud.NotAsked = notAsked; cloud != nil && loadbalancer.Asks(service) == nil {
		evidence.Cloud = sideOf(askAboutService(ctx, cloud, &evidence))
	}
	evidence.Events, evidence.EventsRead = c.eventsAbout(ctx, "Service", namespace, name)
	evidence.Now = e.clock.Now()
	return explain.Service(evidence), nil
}

// endpointNodes are the names of the Nodes where endpoints of a Service are.
func (c *cluster) endpointNodes(ctx context.Context, service *corev1.Service) (map[string]bool, error) {
	list, err := c.typed.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return nil, fmt.Errorf("reading where the pods of Service %s/%s are: %w", service.Namespace, service.Name, err)
	}
	all := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return loadbalancer.EndpointNodes(all), nil
}

// askAboutService reads at DigitalOcean what decides about the load balancer. Nothing of it counts if something of it fails.
func askAboutService(ctx context.Context, cloud *doapi.Client, evidence *explain.ServiceEvidence) error {
	in := evidence.Input
	if id := in.Service.Annotations[annotation.LoadBalancerID]; id != "" {
		o, err := cloud.LoadBalancer(ctx, id)
		switch {
		case err == nil:
			in.Observed = &o
		case errors.Is(err, doapi.ErrNotFound):
			evidence.Lost = true
		default:
			return fmt.Errorf("reading load balancer %s: %w", id, err)
		}
	}
	var err error
	needs := loadbalancer.NeedsOf(in)
	if needs.Droplets {
		if in.Droplets, err = cloud.Droplets(ctx); err != nil {
			return fmt.Errorf("listing droplets: %w", err)
		}
	}
	if needs.Certificates {
		if in.Certificates, err = cloud.Certificates(ctx); err != nil {
			return fmt.Errorf("listing certificates: %w", err)
		}
	}
	evidence.Input = in
	return nil
}

// inNamespace is the cluster with the namespace that flag or context name.
func (e *Env) inNamespace() (*cluster, string, error) {
	c, err := e.cluster()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := e.Kube.Namespace()
	return c, namespace, err
}

// serviceNames completes the names of Services of type LoadBalancer; whatever goes wrong completes to nothing.
func serviceNames(ctx context.Context, env *Env) []string {
	c, namespace, err := env.inNamespace()
	if err != nil {
		return nil
	}
	list, err := c.typed.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{Limit: listPage})
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range list.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			names = append(names, s.Name)
		}
	}
	return names
}
