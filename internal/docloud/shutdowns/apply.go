// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// errChanged means that a Node is not any more as the plan saw it. The next reconcile decides again.
var errChanged = reconcile.As(reconcile.Conflict, errors.New("it has changed since the plan was made"))

// removes reports that a step removes a taint, which needs neither a record nor a certain account.
func removes(s outofservice.Step) bool {
	_, remove := s.(outofservice.RemoveTaint)
	return remove
}

// apply makes one step, on the Node as it is now and if it still is as the plan has it.
func (c *Controller) apply(ctx context.Context, _ *scene, step outofservice.Step) error {
	name, uid := step.On()
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("node %s is gone: %w", name, errChanged)
	case err != nil:
		return fmt.Errorf("reading node %s: %w", name, err)
	case string(node.UID) != uid:
		return fmt.Errorf("node %s is another one: %w", name, errChanged)
	}
	var taints []corev1.Taint
	switch s := step.(type) {
	case outofservice.SetTaint:
		taints, err = c.withTaint(ctx, node, s)
	case outofservice.RemoveTaint:
		taints, err = withoutTaint(node, s)
	default:
		return fmt.Errorf("unknown step %T", step)
	}
	if err == nil {
		err = c.patch(ctx, node, taints)
	}
	if err == nil {
		c.done(node, step)
	}
	return err
}

// withTaint returns the taints of a Node with ours, if nothing speaks against it now.
func (c *Controller) withTaint(ctx context.Context, node *corev1.Node, step outofservice.SetTaint) ([]corev1.Taint, error) {
	id, err := providerid.Parse(node.Spec.ProviderID)
	ours, foreign := outofservice.Taints(node.Spec.Taints)
	switch {
	case err != nil || id != step.Droplet:
		return nil, fmt.Errorf("node %s has another droplet: %w", node.Name, errChanged)
	case ready(node):
		return nil, fmt.Errorf("node %s is ready: %w", node.Name, errChanged)
	case ours || foreign:
		return nil, fmt.Errorf("node %s has the taint already: %w", node.Name, errChanged)
	}
	s := c.seen[node.UID]
	if s == nil {
		return nil, fmt.Errorf("node %s has not been seen: %w", node.Name, errChanged)
	}
	silent := s.Lease.SilentSince
	if c.readLease(ctx, s); s.Lease.Problem != "" || !s.Lease.SilentSince.Equal(silent) {
		return nil, fmt.Errorf("the kubelet of node %s renews its Lease, or the Lease cannot be read (%s): %w", node.Name, s.Lease.Problem, errChanged)
	}
	if err := c.readAgain(ctx, s, step); err != nil {
		return nil, err
	}
	taint, at := outofservice.Taint(), metav1.NewTime(c.Clock.Now())
	taint.TimeAdded = &at
	return append(slices.Clone(node.Spec.Taints), taint), nil
}

// moment is how old a GET by ID may be when the taint is set: it was made in the same reconcile.
const moment = 2 * time.Second

// readAgain reads a droplet by ID right before the taint is set, if that was not done just now.
func (c *Controller) readAgain(ctx context.Context, s *sighting, step outofservice.SetTaint) error {
	if c.Clock.Since(s.Proof.Last) > moment {
		learn := c.get(ctx, step.Droplet)
		if learn == nil {
			return fmt.Errorf("droplet %d of node %s cannot be read: %w", step.Droplet, s.Node, errChanged)
		}
		learn()
	}
	if s.State != step.State {
		return fmt.Errorf("droplet %d of node %s is not %s any more: %w", step.Droplet, s.Node, step.State, errChanged)
	}
	return nil
}

// withoutTaint returns the taints of a Node without ours.
func withoutTaint(node *corev1.Node, step outofservice.RemoveTaint) ([]corev1.Taint, error) {
	back := ready(node) || step.NotReady && reporting(node) && len(node.Status.VolumesAttached) == 0
	if ours, _ := outofservice.Taints(node.Spec.Taints); !ours || !back {
		return nil, fmt.Errorf("node %s is not ready, or does not have the taint: %w", node.Name, errChanged)
	}
	return slices.DeleteFunc(slices.Clone(node.Spec.Taints), outofservice.IsOurs), nil
}

// patch writes the taints of a Node, if it is just as it was read.
func (c *Controller) patch(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("encoding taints: %w", err)
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return fmt.Errorf("node %s: %w", node.Name, errChanged)
	case err != nil:
		return fmt.Errorf("patching node %s: %w", node.Name, err)
	}
	return nil
}
