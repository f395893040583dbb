// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// Claim reads what Kubernetes and DigitalOcean say of a PersistentVolumeClaim and its volume.
func Claim(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, namespace, name string) (evidence explain.ClaimEvidence, err error) {
	claim, err := c.Typed.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return evidence, fmt.Errorf("there is no PersistentVolumeClaim %q in namespace %s; -n names another namespace", name, namespace)
	case err != nil:
		return evidence, fmt.Errorf("reading PersistentVolumeClaim %s/%s: %w", namespace, name, err)
	}
	w, err := observe.Volumes(ctx, c, now)
	if err != nil {
		return evidence, err
	}
	report := volumes.Compare(w)
	evidence = explain.ClaimEvidence{Namespace: namespace, Name: name, NotRead: report.NotRead}
	if claim.Spec.StorageClassName != nil {
		evidence.Class = *claim.Spec.StorageClassName
	}
	if evidence.Row = volumes.RowOf(report.Volumes, namespace+"/"+name, claim.Spec.VolumeName); evidence.Row != nil {
		evidence.Machine = evidence.Row.Machine
	} else {
		evidence.Driver = claim.Annotations[observe.ProvisionerAnnotation]
	}
	if evidence.Machine != "" {
		evidence.OutOfService = outOfService(ctx, c, evidence.Machine)
	}
	evidence.Events, evidence.EventsRead = eventsAbout(ctx, c, "PersistentVolumeClaim", namespace, name)
	if evidence.Row != nil {
		for _, pod := range evidence.Row.Pods {
			more, side := eventsAbout(ctx, c, "Pod", namespace, pod[len(namespace)+1:])
			evidence.Events = append(evidence.Events, more...)
			if side != (finding.Side{}) {
				evidence.EventsRead = side
			}
		}
	}
	evidence.Now = c.ServerTime(now.Now())
	return evidence, nil
}

// ClaimNames completes names.
func ClaimNames(ctx context.Context, env *observe.Env) []string {
	return observe.NamesOf(observe.Completing(ctx, env, func(ctx context.Context, c *observe.Cluster, namespace string) ([]*corev1.PersistentVolumeClaim, error) {
		return observe.All[corev1.PersistentVolumeClaim](ctx, "", c.Typed.CoreV1().PersistentVolumeClaims(namespace).List)
	}))
}
