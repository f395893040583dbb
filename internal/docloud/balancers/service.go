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

// patch writes the Service, if it still is the one and has what the metadata demand, and takes it as it is then.
func (p *scene) patch(ctx context.Context, kind types.PatchType, metadata, status map[string]any) error {
	s, subresources := p.world.Service, []string(nil)
	metadata["uid"] = s.UID
	change := map[string]any{"metadata": metadata}
	if status != nil {
		change["status"], subresources = status, []string{"status"}
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding a change of service %s: %w", keyOf(s), err)
	}
	services := p.c.client.CoreV1().Services(s.Namespace)
	patched, err := services.Patch(ctx, s.Name, kind, body, metav1.PatchOptions{}, subresources...)
	if err == nil {
		p.world.Service = patched
	}
	return err
}

// insist makes a write that depends on how the Service was read, again on the Service as it is now if it has changed since.
func (p *scene) insist(ctx context.Context, write func(asRead map[string]any) error) error {
	const attempts = 4
	for attempt := 1; ; attempt++ {
		err := write(map[string]any{"resourceVersion": p.world.Service.ResourceVersion})
		if !apierrors.IsConflict(err) || attempt == attempts {
			return err
		}
		live, err := p.c.read(ctx, p.world.Service)
		if err != nil {
			return err
		}
		p.world.Service = live
	}
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
			return c.rehearsed(&list.Items[i]), nil
		}
	}
	return nil, fmt.Errorf("service %s does not exist any more", keyOf(service))
}

// annotate writes annotations on the Service, and nothing else: if it has changed since it was read, only those that nobody else
// has changed meanwhile.
func (p *scene) annotate(ctx context.Context, values map[string]string) error {
	values = maps.Clone(values)
	based := p.world.Service
	return p.insist(ctx, func(metadata map[string]any) error {
		maps.DeleteFunc(values, func(name, value string) bool {
			now, ok := p.world.Service.Annotations[name]
			return ok && now == value || now != based.Annotations[name]
		})
		if len(values) == 0 {
			return nil
		}
		metadata["annotations"] = values
		return p.patch(ctx, types.MergePatchType, metadata, nil)
	})
}

// show writes the status of the Service. One that is being deleted keeps what it has.
func (p *scene) show(ctx context.Context, status corev1.LoadBalancerStatus) error {
	return p.insist(ctx, func(metadata map[string]any) error {
		if p.world.Service.DeletionTimestamp != nil {
			return nil
		}
		return p.patch(ctx, types.MergePatchType, metadata, map[string]any{"loadBalancer": status})
	})
}

// patchConditions writes conditions of the Service, or takes some away, and leaves the others alone.
func (p *scene) patchConditions(ctx context.Context, metadata map[string]any, conditions ...any) error {
	err := p.patch(ctx, types.StrategicMergePatchType, metadata, map[string]any{"conditions": conditions})
	if err != nil {
		p.c.log.Error(err, "Conditions of a Service could not be written", "service", keyOf(p.world.Service))
	}
	return err
}

// allow reads what a namespace lets its Services take over, and for which domains they may have certificates. The upstream
// project's ClusterRole, which operators keep, may not read Namespaces: then it is nothing, and says so.
func (p *scene) allow(ctx context.Context) {
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
