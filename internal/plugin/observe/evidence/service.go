// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
)

// Service reads what there is of a Service, with the cloud component's settings.
func Service(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, namespace, name string, settings loadbalancer.Cluster) (evidence explain.ServiceEvidence, err error) {
	evidence.Input.Cluster = settings
	cloud, notAsked, err := observe.CloudClient(now)
	if err != nil {
		return evidence, err
	}
	service, err := c.Typed.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return evidence, fmt.Errorf("there is no Service %q in namespace %s; -n names another namespace", name, namespace)
	case err != nil:
		return evidence, fmt.Errorf("reading Service %s/%s: %w", namespace, name, err)
	}
	evidence.Input.Service = service
	if evidence.Input.Nodes, err = c.Nodes(ctx); err != nil {
		return evidence, err
	}
	if loadbalancer.NeedsOf(evidence.Input).Endpoints {
		if evidence.Input.EndpointNodes, err = endpointNodes(ctx, c, service); err != nil {
			return evidence, err
		}
	}
	if evidence.Cloud.NotAsked = notAsked; cloud != nil && loadbalancer.Asks(service) == nil {
		evidence.Cloud = observe.SideOf(askAboutService(ctx, c, cloud, &evidence))
	}
	evidence.Events, evidence.EventsRead = eventsAbout(ctx, c, "Service", namespace, name)
	if loadbalancer.Asks(service) == nil {
		evidence.Unkept = checks.Unkept(ctx, c, now, doctor.Cloud)
	}
	evidence.Now = c.ServerTime(now.Now())
	return evidence, nil
}

// endpointNodes are the names of the Nodes where endpoints of a Service are.
func endpointNodes(ctx context.Context, c *observe.Cluster, service *corev1.Service) (map[string]bool, error) {
	list, err := c.Typed.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
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
func askAboutService(ctx context.Context, c *observe.Cluster, cloud *doapi.Client, evidence *explain.ServiceEvidence) error {
	if _, err := c.SameAccount(ctx, cloud); err != nil {
		return err
	}
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

// ServiceNames completes the names of Services of type LoadBalancer.
func ServiceNames(ctx context.Context, env *observe.Env) []string {
	list := observe.Completing(ctx, env, func(ctx context.Context, c *observe.Cluster, namespace string) ([]*corev1.Service, error) {
		return observe.All[corev1.Service](ctx, "", c.Typed.CoreV1().Services(namespace).List)
	})
	list = slices.DeleteFunc(list, func(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeLoadBalancer })
	return observe.NamesOf(list)
}
