// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// AttemptAnnotation on a Service while its load balancer is being made: the name that the load balancer was to have when DigitalOcean
// was last asked to make it: it is found by that name if whoever asked died before an answer came and the Service is to have another name by now.
// It MUST not be changed: a Service may carry it while another version takes over.
const AttemptAnnotation = "cloud.mooring.dev/load-balancer-attempted"

// noteAttempt notes on the Service that a load balancer of that name is about to be made. If the Service has changed since it was read it may not
// want what was decided any more: that is an error, and the next pass decides anew.
func (p *pass) noteAttempt(ctx context.Context, name string) error {
	if p.service.Annotations[AttemptAnnotation] == name {
		return nil
	}
	if err := p.patch(ctx, map[string]any{AttemptAnnotation: name}); err != nil {
		return fmt.Errorf("noting that load balancer %q is about to be made: %w", name, err)
	}
	return nil
}

// recall learns from the Service of an attempt that another process made, and of which nobody knows what became of it.
func (p *pass) recall() {
	name := p.service.Annotations[AttemptAnnotation]
	if name != "" && !slices.Contains(p.memory.answered, name) && !slices.Contains(p.memory.attempted, name) {
		p.memory.unsureOf(name, p.b.clock.Now())
	}
}

// patch writes annotations, nil for one that is to go, on the Service if it is as it was read.
func (p *pass) patch(ctx context.Context, values map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.service.UID, "resourceVersion": p.service.ResourceVersion, "annotations": values,
	}})
	if err != nil {
		return fmt.Errorf("encoding annotations: %w", err)
	}
	patched, err := p.b.client.CoreV1().Services(p.service.Namespace).Patch(ctx, p.service.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	p.service = patched
	return nil
}

// read returns a Service as it is now. It lists, since the predecessor's ClusterRole, which operators keep, lacks the verb get for Services.
// One that is gone, or another one of the same name, is an error.
func (b *Balancers) read(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	list, err := b.client.CoreV1().Services(service.Namespace).List(ctx, metav1.ListOptions{
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

// annotate writes annotations on the pass's Service, and nothing else: only if it still is the one, and, if it has changed since it was read,
// only those that nobody else has changed meanwhile. With them goes the note of an attempt, since it was for the load balancer that there is now.
func (p *pass) annotate(ctx context.Context, values map[string]string) error {
	const attempts = 4
	values = maps.Clone(values)
	based := p.service
	for attempt := 1; ; attempt++ {
		maps.DeleteFunc(values, func(name, value string) bool {
			now, ok := p.service.Annotations[name]
			return ok && now == value || now != based.Annotations[name]
		})
		write := map[string]any{}
		for name, value := range values {
			write[name] = value
		}
		if _, ok := p.service.Annotations[AttemptAnnotation]; ok {
			write[AttemptAnnotation] = nil
		}
		if len(write) == 0 {
			return nil
		}
		err := p.patch(ctx, write)
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err) || attempt == attempts:
			return fmt.Errorf("writing annotations: %w", err)
		}
		if p.service, err = p.b.read(ctx, p.service); err != nil {
			return err
		}
	}
}
