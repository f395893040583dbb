// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// publish says what the Service's status is to show. A pass that nobody asked for writes it: the framework does so only when it has asked, and it
// does not ask about a load balancer that was being made when it did. Both write the same.
func (p *pass) publish(ctx context.Context) (loadbalancer.Published, error) {
	published := loadbalancer.Publish(p.service, *p.lb)
	switch {
	case published.Ready:
		p.memory.newSince = time.Time{}
	case !published.Failed:
		if p.memory.newSince.IsZero() {
			p.memory.newSince = p.b.clock.Now()
		}
		p.notes = append(p.notes, note{corev1.EventTypeNormal, reasonPending, published.Message + "; its address is shown here as soon as it has one"})
	}
	if !p.looked || !published.Ready || equality.Semantic.DeepEqual(p.service.Status.LoadBalancer, published.Status) {
		return published, nil
	}
	if err := p.show(ctx, published.Status); err != nil {
		return published, err
	}
	p.b.recorder.Event(p.service, corev1.EventTypeNormal, reasonEnsured, fmt.Sprintf("Ensured load balancer: %s answers at %s", p.lb, addresses(published.Status)))
	return published, nil
}

// show writes the status of the pass's Service: only if it still is the one and as it was read. One that is being deleted keeps what it has.
func (p *pass) show(ctx context.Context, status corev1.LoadBalancerStatus) error {
	const attempts = 4
	for attempt := 1; ; attempt++ {
		if p.service.DeletionTimestamp != nil {
			return nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": p.service.UID, "resourceVersion": p.service.ResourceVersion},
			"status":   map[string]any{"loadBalancer": status},
		})
		if err != nil {
			return fmt.Errorf("encoding the status: %w", err)
		}
		services := p.b.client.CoreV1().Services(p.service.Namespace)
		patched, err := services.Patch(ctx, p.service.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		switch {
		case err == nil:
			p.service = patched
			return nil
		case !apierrors.IsConflict(err) || attempt == attempts:
			return fmt.Errorf("writing the status: %w", err)
		}
		if p.service, err = p.b.read(ctx, p.service); err != nil {
			return err
		}
	}
}

// addresses are those of a status, for people.
func addresses(status corev1.LoadBalancerStatus) string {
	var all []string
	for _, in := range status.Ingress {
		if in.IP != "" {
			all = append(all, in.IP)
		}
		if in.Hostname != "" {
			all = append(all, in.Hostname)
		}
	}
	return strings.Join(all, " and ")
}
