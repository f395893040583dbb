// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// errAlive stops the steps of a machine that came back between the plan and the write.
var errAlive = errors.New("its Kubernetes Node exists again")

// applied is one step that was tried. A nil error means that it was written.
type applied = reconcile.Applied[nodesync.Step]

// machinesAtOnce is how many machines are read and cleaned up side by side: most of a step is waiting for a server.
const machinesAtOnce = 16

// work is what the steps of a plan share while they are made side by side.
type work struct {
	once     sync.Once // makes all below
	machines map[string]*machine
	// blocks are held by the step that changes a block, so that two machines with addresses in it are not a conflict.
	blocks map[netip.Prefix]chan struct{}
}

// machine is what is known of one while its steps are made, one after the other.
type machine struct {
	// revision is that of its Calico Node, as the plan saw it or as a Fence left it, which is fenced.
	revision, fenced int64
	// unwritten are the entries that are not in the journal yet.
	unwritten map[nodesync.Subject]Entry
}

// prepare fills in the work of a scene.
func (s *scene) prepare() {
	s.machines, s.blocks = map[string]*machine{}, map[netip.Prefix]chan struct{}{}
	for _, step := range s.plan.Steps {
		if block := blockOf(step); block.IsValid() {
			s.blocks[block] = make(chan struct{}, 1)
		}
		s.machines[step.Subject().Host] = &machine{unwritten: map[nodesync.Subject]Entry{}}
	}
	for _, n := range s.Calico.Nodes {
		if m := s.machines[n.Name]; m != nil {
			m.revision = n.Revision
		}
	}
	for of, entry := range entries(s) {
		if m := s.machines[of.Host]; m != nil {
			m.unwritten[of] = entry
		}
	}
}

// applyStep makes one step. A machine of which one fails is tried again later, and the others' are tried: one broken
// machine must not hold up the others.
func (r *Reconciler) applyStep(ctx context.Context, s *scene, step nodesync.Step) error {
	s.once.Do(s.prepare)
	if block := s.blocks[blockOf(step)]; block != nil {
		block <- struct{}{}
		defer func() { <-block }()
	}
	m := s.machines[step.Subject().Host]
	revision, err := int64(0), r.mayWrite(ctx, step, m)
	if err == nil {
		revision, err = r.write(ctx, s.plan, step, m)
	}
	switch {
	case errors.Is(err, calico.ErrConflict), errors.Is(err, errAlive), errors.Is(err, errNotLeftover):
		return reconcile.As(reconcile.Conflict, err) // the world has moved on
	case err != nil:
		return reconcile.As(reconcile.Held, err)
	case revision != 0:
		m.revision, m.fenced = revision, revision
	}
	return nil
}

// blockOf is the block that a step changes, the zero Prefix for none.
func blockOf(step nodesync.Step) netip.Prefix {
	switch s := step.(type) {
	case nodesync.ReleaseAddresses:
		return s.Block
	case nodesync.RemoveAffinity:
		return s.CIDR
	case nodesync.RemoveLeftovers:
		return s.Leftovers[0].Block
	default:
		return netip.Prefix{}
	}
}

// workers are for up to so many goroutines at a time, 0 for machinesAtOnce, whose context ends when one fails.
func workers(ctx context.Context, most int) (*errgroup.Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(most, machinesAtOnce))
	return group, ctx
}

// mayWrite journals all that is to be removed of a machine before the first step that touches it, and asks right after that whether it is still gone.
func (r *Reconciler) mayWrite(ctx context.Context, step nodesync.Step, m *machine) error {
	if harmless(step) {
		return nil
	}
	if entry, due := m.unwritten[step.Subject()]; r.Journal != nil && due {
		delete(m.unwritten, step.Subject())
		if err := r.keep(ctx, entry); err != nil {
			return err
		}
	}
	return r.stillGone(ctx, step.Subject())
}

// write is one step. A Fence returns the revision that it made.
func (r *Reconciler) write(ctx context.Context, plan nodesync.Plan, step nodesync.Step, m *machine) (int64, error) {
	guard := calico.Guard{Host: step.Subject().Host, Revision: m.revision}
	switch s := step.(type) {
	case nodesync.BindCluster:
		return 0, r.Datastore.AnnotateClusterInformation(ctx, s.Revision, nodesync.BindingAnnotation, s.ClusterUID)
	case nodesync.Unfence:
		_, err := r.Datastore.AnnotateNode(ctx, s.Of.Host, s.Revision, nodesync.FenceAnnotation, "")
		return 0, err
	case nodesync.Fence:
		return r.Datastore.AnnotateNode(ctx, s.Of.Host, s.Revision, nodesync.FenceAnnotation, s.Of.KubernetesNode)
	case nodesync.RemoveEndpoints:
		return 0, r.Datastore.DeleteEndpoints(ctx, guard, s.Endpoints)
	case nodesync.ReleaseAddresses:
		return 0, r.Datastore.ReleaseAddresses(ctx, guard, s.Block, s.Addresses)
	case nodesync.RemoveAffinity:
		return 0, r.Datastore.DeleteAffinity(ctx, guard, s.CIDR, s.Revision, s.DeleteBlock)
	case nodesync.RemoveResource:
		return 0, r.Datastore.DeleteResource(ctx, guard, string(s.Kind), s.Name, s.Revision)
	case nodesync.RemoveHandles:
		return 0, r.Datastore.DeleteHandles(ctx, s.Handles)
	case nodesync.RemoveNode:
		return 0, r.Datastore.DeleteNode(ctx, guard)
	case nodesync.RemoveLeftovers:
		return 0, r.removeLeftovers(ctx, plan, s, m.unwritten)
	}
	return 0, fmt.Errorf("step %T is unknown", step)
}

// harmless reports that a step removes nothing of a machine that is gone: no machine needs to be, and what is to be kept of it is seen to elsewhere.
func harmless(step nodesync.Step) bool {
	switch step.(type) {
	case nodesync.BindCluster, nodesync.Unfence, nodesync.RemoveHandles, nodesync.RemoveLeftovers:
		return true
	default:
		return false
	}
}

// stillGone is the last look before each destructive write. Kubernetes and Calico's etcd share no transaction, so it cannot be part of
// the write; the guard closes the gap, because a machine that is back starts calico-node, which rewrites its Calico Node.
func (r *Reconciler) stillGone(ctx context.Context, of nodesync.Subject) error {
	for _, name := range r.Config.NamesOf(of) {
		switch lookup := r.Cluster.LookUp(ctx, name); lookup.Verdict {
		case nodesync.VerdictGone:
		case nodesync.VerdictAlive:
			return errAlive
		default:
			return fmt.Errorf("it is unknown whether Kubernetes Node %s is gone: %s", name, lookup.Detail)
		}
	}
	return nil
}
