// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// Timeline reads what there is of the past of a machine, with or without a Node. What cannot be read is in its side.
func Timeline(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, name string) explain.TimelineEvidence {
	e := explain.TimelineEvidence{Name: name}
	node, err := c.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		e.Node = node
	} else if !apierrors.IsNotFound(err) {
		e.NodeRead = observe.SideOf(fmt.Errorf("reading Node %s: %w", name, err))
	}
	if lease, err := c.Typed.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{}); err == nil && lease.Spec.RenewTime != nil {
		e.Renewed = lease.Spec.RenewTime.Time
	}
	off, err := c.MachinesOff(ctx)
	e.Intents, e.CloudRead = off.Record.Memory.Intents, observe.SideOf(err)
	states, unread := c.NodeStates(ctx)
	for _, s := range states {
		e.Absences = append(e.Absences, s.Absences...)
	}
	if len(unread) > 0 {
		e.CalicoRead = finding.Side{Problem: unread[0]}
	}
	e.Topologies, _, err = c.Topologies(ctx)
	e.RoutesRead = observe.SideOf(err)
	e.Attachments, err = observe.All[storagev1.VolumeAttachment](ctx, "VolumeAttachments", c.Typed.StorageV1().VolumeAttachments().List)
	if err == nil {
		e.Volumes, err = observe.All[corev1.PersistentVolume](ctx, "PersistentVolumes", c.Typed.CoreV1().PersistentVolumes().List)
	}
	e.VolumesRead = observe.SideOf(err)
	readEvents(ctx, c, &e)
	e.Now = c.ServerTime(now.Now())
	return e
}

// readEvents reads the Events that may be believed: the components' own, and those about Services that a component has
// signed. Each counts when it was first recorded.
func readEvents(ctx context.Context, c *observe.Cluster, e *explain.TimelineEvidence) {
	list, _, err := c.MooringEvents(ctx, math.MaxInt)
	if e.EventsRead = observe.SideOf(err); err != nil {
		return
	}
	keys := c.EventKeys(ctx)
	chosen := fields.Set{"involvedObject.kind": "Service", "reason": "LoadBalancerNodesLeftOut"}
	services, _, err := c.Events(ctx, metav1.NamespaceAll, chosen, math.MaxInt)
	e.EventsRead = observe.SideOf(err)
	list = append(list, services...)
	for i := range list {
		if c.TrustIn(&list[i], keys) != observe.Verified {
			continue
		}
		first := observe.FirstSeen(&list[i])
		if e.Oldest.IsZero() || first.Before(e.Oldest) {
			e.Oldest = first
		}
		if concerns(&list[i], e.Names()) {
			event := EventOf(c, &list[i], keys)
			event.At = first
			e.Events = append(e.Events, event)
		}
	}
}
