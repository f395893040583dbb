// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// errNotLeftover stops a step whose pods or machine are not as they were.
var errNotLeftover = errors.New("it is no longer a leftover")

// sweepPods compares what names a pod with the pods that there are. Of each pod it keeps eight bytes; two of one hash make a leftover look
// alive, which does no harm.
func (r *Reconciler) sweepPods(ctx context.Context, w *nodesync.World) error {
	seed, pods := maphash.MakeSeed(), map[uint64]struct{}{}
	var text []byte
	hash := func(namespace, name string) uint64 {
		text = append(append(append(text[:0], namespace...), '/'), name...)
		return maphash.Bytes(seed, text)
	}
	err := r.Cluster.EachPod(ctx, func(namespace, name string) { pods[hash(namespace, name)] = struct{}{} })
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	found, err := r.Datastore.PodHoldings(ctx, w.Calico.Revision, func(namespace, name string) bool {
		_, alive := pods[hash(namespace, name)]
		return alive
	})
	if err != nil {
		return fmt.Errorf("comparing Calico's datastore with the pods: %w", err)
	}
	w.Calico.PodsSwept, w.Calico.AlivePods, w.Calico.Holdings = true, len(pods), found.Count
	w.Calico.Leftovers = append(w.Calico.Leftovers, found.Leftovers...)
	if len(found.Doubled) == 0 {
		return nil
	}
	leftovers := make([]nodesync.Leftover, len(found.Doubled))
	for i, h := range found.Doubled {
		leftovers[i] = h.Leftover
	}
	old := nodesync.OldSandboxes(w.Calico.Nodes, found.Doubled, r.lookUpPods(ctx, podsOf(leftovers)))
	w.Calico.Leftovers = append(w.Calico.Leftovers, old...)
	return nil
}

// podsOf are the pods of leftovers, each once.
func podsOf(leftovers []nodesync.Leftover) (pods [][2]string) {
	read := map[[2]string]bool{}
	for _, l := range leftovers {
		if pod := [2]string{l.Namespace, l.Pod}; !read[pod] {
			read[pod] = true
			pods = append(pods, pod)
		}
	}
	return pods
}

// lookUpPods reads each of the pods.
func (r *Reconciler) lookUpPods(ctx context.Context, pods [][2]string) []nodesync.PodLookup {
	out := make([]nodesync.PodLookup, len(pods))
	group, _ := workers(ctx, r.Workers)
	for i, pod := range pods {
		group.Go(func() error {
			out[i] = r.Cluster.LookUpPod(ctx, pod[0], pod[1])
			return nil
		})
	}
	_ = group.Wait()
	return out
}

// stillLeft is the last look before a write about leftovers: none of the pods is there, or in a later sandbox, and the
// machine is the one that it was, Ready for long, and not to be kept.
func (r *Reconciler) stillLeft(ctx context.Context, step nodesync.RemoveLeftovers) error {
	for _, pod := range r.lookUpPods(ctx, podsOf(step.Leftovers)) {
		if pod.Verdict == nodesync.VerdictUnknown {
			return fmt.Errorf("it is unknown whether pod %s/%s is gone: %s", pod.Namespace, pod.Name, pod.Detail)
		}
		for _, l := range step.Leftovers {
			if l.Namespace == pod.Namespace && l.Pod == pod.Name && !l.GoneFrom(step.Of.KubernetesNode, pod) {
				return fmt.Errorf("%w: pod %s/%s exists", errNotLeftover, pod.Namespace, pod.Name)
			}
		}
	}
	switch h := r.Cluster.Heartbeat(ctx, step.Of.KubernetesNode); {
	case h.Detail != "":
		return fmt.Errorf("it is unknown whether the kubelet of %s is running: %s", step.Of.KubernetesNode, h.Detail)
	case h.UID != step.NodeUID || !h.ReadyLongEnough(r.Clock.Now(), r.Config) || h.Keep:
		return fmt.Errorf("%w: Kubernetes Node %s is not Ready or has been Ready only for a short time, is to be kept, or was replaced", errNotLeftover, step.Of.KubernetesNode)
	}
	return nil
}

// removeLeftovers is one step about leftovers, after a last look. Before a machine's first, what all of the plan's steps are about is journaled in one entry,
// so that a machine has one each round.
func (r *Reconciler) removeLeftovers(ctx context.Context, plan nodesync.Plan, step nodesync.RemoveLeftovers, unwritten map[nodesync.Subject]Entry) error {
	if err := r.stillLeft(ctx, step); err != nil {
		return err
	}
	if entry, due := unwritten[step.Of]; r.Journal != nil && due {
		entry, err := r.describeLeftovers(ctx, plan, entry)
		if err != nil {
			return err
		}
		if err := r.keep(ctx, entry); err != nil {
			return err
		}
		delete(unwritten, step.Of)
		if err := r.stillLeft(ctx, step); err != nil { // the journal may have taken its time
			return err
		}
	}
	return r.Datastore.RemoveLeftovers(ctx, calico.Guard{Host: step.Of.Host, Revision: step.Revision}, step.Leftovers)
}

// describeLeftovers adds to the entry of a machine that lives what the plan removes of it, as it stands now.
func (r *Reconciler) describeLeftovers(ctx context.Context, plan nodesync.Plan, entry Entry) (Entry, error) {
	var stored []calico.Leftover
	for _, step := range plan.Steps {
		if s, ok := step.(nodesync.RemoveLeftovers); ok && s.Of.Host == entry.Host {
			stored = append(stored, s.Leftovers...)
		}
	}
	var err, uidErr error
	entry.Objects, entry.Addresses, err = r.Datastore.DescribeLeftovers(ctx, stored)
	if entry.MachineUID, uidErr = r.Datastore.MachineUID(ctx, entry.Host); err != nil || uidErr != nil {
		return Entry{}, fmt.Errorf("reading what is to be journaled: %w", cmp.Or(err, uidErr))
	}
	return entry, nil
}

// leftoversTried notes what became of the steps about leftovers, and returns when to try again what failed.
func (r *Reconciler) leftoversTried(w nodesync.World, plan nodesync.Plan, tried []applied) (next time.Duration) {
	next = r.Config.Resync
	if r.DryRun {
		// Nothing is removed, so nothing counts for the mass guard.
		r.memory.LeftoverRemovals = slices.DeleteFunc(slices.Clone(r.memory.LeftoverRemovals), func(x nodesync.LeftoverRemoval) bool { return x.At.Equal(w.Now) })
		return next
	}
	for _, step := range plan.Steps {
		s, ok := step.(nodesync.RemoveLeftovers)
		if !ok {
			continue
		}
		failed := "it was not tried, because another step about the machine failed or the program was stopping"
		if i := slices.IndexFunc(tried, func(a applied) bool { return sameLeftovers(a.Step, s) }); i >= 0 {
			if failed = ""; tried[i].Err != nil {
				failed = cmp.Or(tried[i].Err.Error(), "it failed")
			}
		}
		var wait time.Duration
		r.memory, wait = r.memory.LeftoversTried(s, failed, w.Now, r.Clock.Now(), r.Config)
		next = min(next, wait)
	}
	return next
}

func sameLeftovers(step nodesync.Step, s nodesync.RemoveLeftovers) bool {
	other, ok := step.(nodesync.RemoveLeftovers)
	return ok && slices.Equal(other.Leftovers, s.Leftovers)
}
