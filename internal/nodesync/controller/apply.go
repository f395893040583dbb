// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

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
	// fenced is the revision that a Fence step made.
	fenced int64
}

// machinesAtOnce is how many machines are read and cleaned up side by side: most of a step is waiting for a server.
const machinesAtOnce = 16

// machine is the steps about one machine, which one goroutine applies in their order.
type machine struct {
	host  string
	steps []int // indices into Plan.Steps
	// revision is that of its Calico Node, as the plan saw it or as a Fence left it.
	revision int64
	// unwritten are the entries that are not in the journal yet.
	unwritten map[nodesync.Subject]Entry
}

// work is a plan that is being applied. Goroutines share it: each sets what it has tried, of its own steps alone.
type work struct {
	by    *Reconciler
	plan  nodesync.Plan
	tried []applied
	// blocks are held by the step that changes a block, so that two machines with addresses in it are not a conflict.
	blocks map[netip.Prefix]chan struct{}
}

// apply writes the steps, those of several machines side by side and those of one machine in their order. When one
// fails, the rest of the same machine's steps are left out and the other machines' are tried: one broken machine must
// not hold up the others. It stops when ctx ends, as it does when leadership is lost, and when a step about no machine
// fails, which comes before all others: if the datastore could not be bound to this cluster, it may be another's by now.
func (r *Reconciler) apply(ctx context.Context, s *scene) outcome {
	plan := s.plan
	all := work{by: r, plan: plan, tried: make([]applied, len(plan.Steps)), blocks: map[netip.Prefix]chan struct{}{}}
	for _, step := range plan.Steps {
		if block := blockOf(step); block.IsValid() {
			all.blocks[block] = make(chan struct{}, 1)
		}
	}
	group, _ := workers(ctx, r.Workers)
	for _, m := range machinesOf(s.World, plan, entries(s)) {
		if m.host != "" {
			group.Go(func() error { all.apply(ctx, m); return nil })
		} else if all.apply(ctx, m); all.failed(m) {
			return all.outcome()
		}
	}
	_ = group.Wait()
	return all.outcome()
}

// machinesOf sorts the steps by what they are about: those about no machine, which are the first, and then in the
// order of the first of each.
func machinesOf(
	w nodesync.World, plan nodesync.Plan, unwritten map[nodesync.Subject]Entry,
) (machines []*machine) {
	byHost := map[string]*machine{}
	for i, step := range plan.Steps {
		host := step.Subject().Host
		if byHost[host] == nil {
			byHost[host] = &machine{host: host, unwritten: map[nodesync.Subject]Entry{}}
			machines = append(machines, byHost[host])
		}
		byHost[host].steps = append(byHost[host].steps, i)
	}
	for _, n := range w.Calico.Nodes {
		if m := byHost[n.Name]; m != nil {
			m.revision = n.Revision
		}
	}
	for of, entry := range unwritten {
		if m := byHost[of.Host]; m != nil {
			m.unwritten[of] = entry
		}
	}
	return machines
}

// apply writes the steps about one machine up to the first that fails. What the end of ctx has cut short is not
// a failure of the machine: the next process finds out what became of the write.
func (all *work) apply(ctx context.Context, m *machine) {
	for _, i := range m.steps {
		if ctx.Err() != nil {
			return
		}
		step := all.plan.Steps[i]
		unlock := all.lock(step)
		revision, err := all.by.tryStep(ctx, all.plan, step, m)
		unlock()
		if err != nil && ctx.Err() != nil {
			return
		}
		if all.tried[i] = (applied{step: step, err: err, fenced: revision}); err != nil {
			return
		}
		if revision != 0 {
			m.revision = revision
		}
	}
}

// lock waits until no other step changes the block that the step changes.
func (all *work) lock(step nodesync.Step) (unlock func()) {
	block := all.blocks[blockOf(step)]
	if block == nil {
		return func() {}
	}
	block <- struct{}{}
	return func() { <-block }
}

// failed reports whether a step about a machine failed or was not tried.
func (all *work) failed(m *machine) bool {
	return slices.ContainsFunc(m.steps, func(i int) bool { return all.tried[i].step == nil || all.tried[i].err != nil })
}

// outcome is what was tried, in the order of the plan.
func (all *work) outcome() outcome {
	out := outcome{fences: map[string]int64{}}
	for _, tried := range all.tried {
		if tried.step == nil {
			continue
		}
		out.applied = append(out.applied, tried)
		if tried.fenced != 0 {
			out.fences[tried.step.Subject().Host] = tried.fenced
		}
	}
	return out
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

// tryStep writes, after all that is to be removed of a machine was journaled before the first step that touches it.
// Whether the machine is still gone is asked right after that, by the step.
func (r *Reconciler) tryStep(ctx context.Context, plan nodesync.Plan, step nodesync.Step, m *machine) (int64, error) {
	if s, ok := step.(nodesync.RemoveLeftovers); ok {
		return 0, r.removeLeftovers(ctx, plan, s, m.unwritten)
	}
	if entry, due := m.unwritten[step.Subject()]; r.Journal != nil && due && !harmless(step) {
		delete(m.unwritten, step.Subject())
		if err := r.keep(ctx, entry); err != nil {
			return 0, err
		}
	}
	return r.write(ctx, step, m.revision)
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
