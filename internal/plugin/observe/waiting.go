// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/waiting"
)

// Waiting reads what waits: what the command, status and the page show. Nothing is called settled that was not read.
func (c *Cluster) Waiting(ctx context.Context, now time.Time) waiting.List {
	is := waiting.List{Waits: []finding.Verdict{}}
	states, unread := c.NodeStates(ctx)
	is.Unread = unread
	for _, s := range states {
		if s.Waits.Hash != "" {
			is.Waits = append(is.Waits, s.Awaiting(now))
		}
	}
	if off, err := c.MachinesOff(ctx); err != nil {
		is.Unread = append(is.Unread, SideOf(err).Problem)
	} else if off.Record.Awaiting.Hash != "" {
		is.Waits = append(is.Waits, waiting.MachinesOff(off.Record, off.confirmation, now))
	}
	topologies, _, err := c.Topologies(ctx)
	if err != nil {
		is.Unread = append(is.Unread, SideOf(err).Problem)
	}
	for i := range topologies {
		if a, waits := routereflector.Awaits(&topologies[i]); waits {
			is.Waits = append(is.Waits, waiting.Topology(topologies[i].Name, a))
		}
	}
	return is
}

// NodeState is what a calico-node-sync has saved in one of Mooring's namespaces.
type NodeState struct {
	// Object is where it is saved.
	Object       *corev1.ConfigMap
	confirmation string
	Waits        nodesync.Awaiting
	SavedAt      time.Time
	// Absences are the Nodes that it misses.
	Absences []nodesync.Absence
}

// NodeStates reads what each calico-node-sync has saved in Mooring's namespaces. A ConfigMap of that name elsewhere is anybody's (ADR 16).
func (c *Cluster) NodeStates(ctx context.Context) (states []NodeState, unread []string) {
	objects, unread := c.stateObjects(ctx)
	for _, object := range objects {
		memory, confirmation, err := nodesynccontroller.Recorded(object)
		if err != nil {
			unread = append(unread, err.Error())
			continue
		}
		// What is left of machines that are gone and what pods have left on existing machines wait each by themselves.
		for _, waits := range []nodesync.Awaiting{memory.Awaiting, memory.AwaitingLeftovers} {
			states = append(states, NodeState{object, confirmation, waits, memory.SavedAt, memory.Absences})
		}
	}
	return states, unread
}

// stateObjects are the ConfigMaps in which each calico-node-sync keeps its memory, in the order of Mooring's namespaces. One
// request lists them by their name; who may not list in all namespaces reads each by itself.
func (c *Cluster) stateObjects(ctx context.Context) (objects []*corev1.ConfigMap, unread []string) {
	const name = nodesynccontroller.StateName
	if ctx.Value(memoKey{}) == nil {
		ctx = Once(ctx)
	}
	_, _ = c.Typed.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	for _, namespace := range c.Namespaces { // of what was listed nothing is asked again
		object, err := c.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			objects = append(objects, object)
		case !apierrors.IsNotFound(err):
			unread = append(unread, SideOf(fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, name, err)).Problem)
		}
	}
	return objects, unread
}

// Awaiting is what it waits for, with the confirmation that somebody has given.
func (s NodeState) Awaiting(now time.Time) finding.Verdict {
	return waiting.Nodes(s.Object.Namespace, s.Waits, s.SavedAt, s.confirmation, now)
}

// OffRecord is what digitalocean-cloud-controller-manager has recorded of machines that are off. Lease is nil if there is no record.
type OffRecord struct {
	Lease        *coordinationv1.Lease
	Record       outofservice.Record
	confirmation string
}

// MachinesOff reads the record.
func (c *Cluster) MachinesOff(ctx context.Context) (OffRecord, error) {
	const name = outofservice.RecordNamespace + "/" + outofservice.RecordName
	lease, err := c.Typed.CoordinationV1().Leases(outofservice.RecordNamespace).Get(ctx, outofservice.RecordName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return OffRecord{}, nil
	case err != nil:
		return OffRecord{}, fmt.Errorf("reading Lease %s: %w", name, err)
	}
	out := OffRecord{Lease: lease}
	out.Record, out.confirmation, err = outofservice.Recorded(lease)
	return out, err
}
