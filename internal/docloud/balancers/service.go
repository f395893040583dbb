// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// patch writes annotations on the Service if it is as it was read.
func (p *pass) patch(ctx context.Context, values map[string]string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.world.Service.UID, "resourceVersion": p.world.Service.ResourceVersion, "annotations": values,
	}})
	if err != nil {
		return fmt.Errorf("encoding annotations: %w", err)
	}
	patched, err := p.c.client.CoreV1().Services(p.world.Service.Namespace).Patch(ctx, p.world.Service.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	p.world.Service = patched
	return nil
}

// read returns a Service as it is now. It lists, since the upstream project's ClusterRole, which operators keep, lacks the verb get for Services.
// One that is gone, or another one of the same name, is an error.
func (c *Controller) read(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	list, err := c.client.CoreV1().Services(service.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, service.Name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("reading service %s: %w", keyOf(service), err)
	}
	for i := range list.Items {
		if list.Items[i].UID == service.UID {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("service %s does not exist any more", keyOf(service))
}

// reread takes the Service as the API server has it.
func (p *pass) reread(ctx context.Context) error {
	live, err := p.c.read(ctx, p.world.Service)
	if err == nil {
		p.world.Service = live
	}
	return err
}

// annotate writes annotations on the pass's Service, and nothing else: only if it still is the one, and, if it has changed since it was read,
// only those that nobody else has changed meanwhile.
func (p *pass) annotate(ctx context.Context, values map[string]string) error {
	const attempts = 4
	values = maps.Clone(values)
	based := p.world.Service
	for attempt := 1; ; attempt++ {
		maps.DeleteFunc(values, func(name, value string) bool {
			now, ok := p.world.Service.Annotations[name]
			return ok && now == value || now != based.Annotations[name]
		})
		if len(values) == 0 {
			return nil
		}
		err := p.patch(ctx, values)
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err) || attempt == attempts:
			return err
		}
		if err := p.reread(ctx); err != nil {
			return err
		}
	}
}

// show writes the status of the pass's Service: only if it still is the one and as it was read. One that is being deleted keeps what it has.
func (p *pass) show(ctx context.Context, status corev1.LoadBalancerStatus) error {
	const attempts = 4
	for attempt := 1; ; attempt++ {
		s := p.world.Service
		if s.DeletionTimestamp != nil {
			return nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": s.UID, "resourceVersion": s.ResourceVersion},
			"status":   map[string]any{"loadBalancer": status},
		})
		if err != nil {
			return fmt.Errorf("encoding the status: %w", err)
		}
		patched, err := p.c.client.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		switch {
		case err == nil:
			p.world.Service = patched
			return nil
		case !apierrors.IsConflict(err) || attempt == attempts:
			return err
		}
		if err := p.reread(ctx); err != nil {
			return err
		}
	}
}

// patchConditions writes conditions of the pass's Service, or takes some away, and leaves the others alone: only if it still is the one and, with
// a resource version, as it was read.
func (p *pass) patchConditions(ctx context.Context, resourceVersion string, conditions ...any) error {
	s := p.world.Service
	metadata := map[string]any{"uid": s.UID}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata, "status": map[string]any{"conditions": conditions}})
	if err != nil {
		return fmt.Errorf("encoding conditions: %w", err)
	}
	patched, err := p.c.client.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		p.c.log.Error(err, "Conditions of a Service could not be written", "service", keyOf(s))
		return err
	}
	p.world.Service = patched
	return nil
}

// allow reads what a namespace lets its Services take over, and for which domains they may have certificates. The upstream
// project's ClusterRole, which operators keep, may not read Namespaces: then it is nothing, and says so.
func (p *pass) allow(ctx context.Context) {
	takeOver, domains := loadbalancer.TakeOver{}, loadbalancer.Domains{}
	ns, err := p.c.client.CoreV1().Namespaces().Get(ctx, p.world.Service.Namespace, metav1.GetOptions{})
	if err == nil {
		takeOver = loadbalancer.ParseTakeOver(ns.Annotations[loadbalancer.TakeOverAnnotation])
		domains.Allowed = loadbalancer.ParseDomains(ns.Annotations[loadbalancer.DomainsAnnotation])
	} else {
		takeOver.Problem = "the namespace could not be read: " + err.Error()
		domains.Problem = takeOver.Problem
	}
	takeOver.Any, takeOver.Since = takeOver.Any || p.c.o.TakeOverAny, p.c.o.Fleet.Since()
	domains.Allowed = append(domains.Allowed, p.c.o.Domains...)
	p.world.TakeOver, p.world.Domains = &takeOver, &domains
}
