// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// errAlive stops the steps of a machine that came back between the plan and the write.
var errAlive = errors.New("its Kubernetes Node exists again")

// outcome is what became of a plan's steps.
type outcome struct {
	applied []applied
	// fences are the revisions at which Fence steps left their Calico Nodes.
	fences map[string]int64
}

// applied is one step that was tried. A nil error means that it was written.
type applied struct {
	step nodesync.Step
	err  error
}

// apply writes the steps in order. When one fails, the rest of the same machine's steps are left out and the next machine's are tried:
// one broken machine must not hold up the others. It stops at once when ctx ends, as it does when leadership is lost, and when a step about
// no machine fails: if the datastore could not be bound to this cluster, it may be another's by now.
func (r *Reconciler) apply(ctx context.Context, w nodesync.World, plan nodesync.Plan) outcome {
	out := outcome{fences: map[string]int64{}}
	revisions := make(map[string]int64, len(plan.Decisions))
	for _, n := range w.Calico.Nodes {
		revisions[n.Name] = n.Revision
	}
	failed := map[string]bool{}
	unwritten := entries(w, plan, r.objects, r.addresses)
	for _, step := range plan.Steps {
		host := step.Subject().Host
		if failed[host] || ctx.Err() != nil {
			continue
		}
		revision, err := r.tryStep(ctx, plan, step, unwritten, revisions[host])
		if err != nil && ctx.Err() != nil {
			return out // the end has cut it short: that is no failure of the machine, and the next process finds out what became of the write
		}
		failed[host] = err != nil
		if revision != 0 && err == nil {
			revisions[host], out.fences[host] = revision, revision
		}
		out.applied = append(out.applied, applied{step: step, err: err})
		if err != nil && step.Subject() == (nodesync.Subject{}) {
			return out
		}
	}
	return out
}

// tryStep journals what is to be journaled, and writes.
func (r *Reconciler) tryStep(
	ctx context.Context, plan nodesync.Plan, step nodesync.Step, unwritten map[nodesync.Subject]Entry, nodeRevision int64,
) (int64, error) {
	if s, ok := step.(nodesync.RemoveLeftovers); ok {
		return 0, r.removeLeftovers(ctx, plan, s, unwritten)
	}
	if err := r.journalOnce(ctx, step, unwritten); err != nil {
		return 0, err
	}
	return r.write(ctx, step, nodeRevision)
}

// journalOnce keeps all that is to be removed of a machine before the first step that touches it. Whether the machine is still gone is asked right after
// that, by the step.
func (r *Reconciler) journalOnce(ctx context.Context, step nodesync.Step, unwritten map[nodesync.Subject]Entry) error {
	entry, due := unwritten[step.Subject()]
	if r.Journal == nil || !due || harmless(step) {
		return nil
	}
	delete(unwritten, step.Subject())
	return r.keep(ctx, entry)
}

// write is one step. nodeRevision is what the Calico Node must still be at. A Fence returns the revision that it made.
func (r *Reconciler) write(ctx context.Context, step nodesync.Step, nodeRevision int64) (int64, error) {
	if !harmless(step) {
		if err := r.stillGone(ctx, step.Subject()); err != nil {
			return 0, err
		}
	}
	guard := calico.Guard{Host: step.Subject().Host, Revision: nodeRevision}
	switch s := step.(type) {
	case nodesync.BindCluster:
		return 0, r.Datastore.AnnotateClusterInformation(ctx, s.Revision, nodesync.BindingAnnotation, s.ClusterUID)
	case nodesync.Unfence:
		_, err := r.Datastore.AnnotateNode(ctx, s.Of.Host, s.Revision, nodesync.FenceAnnotation, "")
		return 0, err
	case nodesync.Fence:
		return r.Datastore.AnnotateNode(ctx, s.Of.Host, s.Revision, nodesync.FenceAnnotation, s.Of.KubernetesNode)
	case nodesync.RemoveEndpoints:
		return 0, r.Datastore.DeleteEndpoints(ctx, guard, endpointRefs(s.Endpoints))
	case nodesync.ReleaseAddresses:
		assignments := make([]calico.Assignment, 0, len(s.Addresses))
		for _, a := range s.Addresses {
			assignments = append(assignments, calico.Assignment(a))
		}
		return 0, r.Datastore.ReleaseAddresses(ctx, guard, s.Block, assignments)
	case nodesync.RemoveAffinity:
		return 0, r.Datastore.DeleteAffinity(ctx, guard, s.CIDR, s.Revision, s.DeleteBlock)
	case nodesync.RemoveResource:
		return 0, r.Datastore.DeleteResource(ctx, guard, string(s.Kind), s.Name, s.Revision)
	case nodesync.RemoveHandles:
		handles := make([]calico.Handle, 0, len(s.Handles))
		for _, h := range s.Handles {
			handles = append(handles, calico.Handle(h))
		}
		return 0, r.Datastore.DeleteHandles(ctx, handles)
	case nodesync.RemoveNode:
		return 0, r.Datastore.DeleteNode(ctx, guard)
	case nodesync.RemoveLeftovers: // tryStep has seen to it: its machine lives
	}
	return 0, fmt.Errorf("step %T is unknown", step)
}

func endpointRefs(of []nodesync.EndpointRef) []calico.EndpointRef {
	refs := make([]calico.EndpointRef, 0, len(of))
	for _, e := range of {
		refs = append(refs, calico.EndpointRef(e))
	}
	return refs
}

// harmless reports that a step removes nothing of a machine, so that no machine needs to be gone for it and there is nothing to be kept.
func harmless(step nodesync.Step) bool {
	switch step.(type) {
	case nodesync.BindCluster, nodesync.Unfence, nodesync.RemoveHandles:
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

// settled reports that a step failed in a way that the next round decides again without waiting: the world has moved on.
func settled(err error) bool {
	return errors.Is(err, calico.ErrConflict) || errors.Is(err, errAlive) || errors.Is(err, errNotLeftover)
}
