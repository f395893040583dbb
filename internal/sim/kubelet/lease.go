// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// renewLease is one heartbeat: in the steady state a single update of the Lease, on the revision written last.
func (f *Fleet) renewLease(ctx context.Context, m *machine) (time.Duration, error) {
	if !m.isRegistered() {
		return never, nil
	}
	m.mu.Lock()
	lease := m.lease
	m.mu.Unlock()

	lease, err := f.writeLease(ctx, m, lease)
	m.mu.Lock()
	m.lease = lease
	m.mu.Unlock()
	// Up to 4 % later each time, as kubelet's lease controller: machines that start together drift apart.
	return f.cfg.LeaseInterval + f.jitter(f.cfg.LeaseInterval/25), err
}

// writeLease renews the Lease that is known, or else the one that exists, or else makes a new one. It returns the Lease
// as written, nil if there is none. A Lease is only made for a Node that exists, since the Node must own it: so the
// Lease of a deleted Node stays away once the garbage collector has taken it.
func (f *Fleet) writeLease(ctx context.Context, m *machine, known *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := f.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	var err error
	if known == nil {
		known, err = leases.Get(ctx, m.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return f.createLease(ctx, m)
		}
		if err != nil {
			return nil, fmt.Errorf("reading lease of node %q: %w", m.Name, err)
		}
	}
	renewed := known.DeepCopy()
	f.fillLease(renewed)
	if len(renewed.OwnerReferences) == 0 {
		if err := f.ownLease(ctx, m, renewed); err != nil {
			return known, err
		}
	}
	written, err := leases.Update(ctx, renewed, metav1.UpdateOptions{})
	if err != nil {
		// The next attempt starts from what is there.
		return nil, fmt.Errorf("renewing lease of node %q: %w", m.Name, err)
	}
	return written, nil
}

func (f *Fleet) createLease(ctx context.Context, m *machine) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &m.Name},
	}
	f.fillLease(lease)
	if err := f.ownLease(ctx, m, lease); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // no Node, no Lease, and nothing to be done about it but to look again
		}
		return nil, err
	}
	created, err := f.cfg.Client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating lease of node %q: %w", m.Name, err)
	}
	return created, nil
}

func (f *Fleet) fillLease(lease *coordinationv1.Lease) {
	duration := int32(max(1, (4*f.cfg.LeaseInterval+time.Second-1)/time.Second)) //nolint:gosec // hours at most
	lease.Spec.LeaseDurationSeconds = &duration
	lease.Spec.RenewTime = &metav1.MicroTime{Time: f.cfg.Clock.Now()}
}

// ownLease makes the Node the Lease's owner, by a live read because the UID matters.
func (f *Fleet) ownLease(ctx context.Context, m *machine, lease *coordinationv1.Lease) error {
	node, err := f.cfg.Client.CoreV1().Nodes().Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %q to own its lease: %w", m.Name, err)
	}
	lease.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID,
	}}
	return nil
}
