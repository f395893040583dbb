// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
)

// RepairStore is what repairs need of Calico's datastore.
type RepairStore interface {
	Snapshot(ctx context.Context) (calico.Snapshot, error)
	PlanRepair(ctx context.Context, x ipamcheck.Disagreement) (calico.Repair, error)
	ApplyRepair(ctx context.Context, r calico.Repair) error
}

// RepairHost stands in an entry of the journal instead of a machine's name, for repairs of IPAM's data. No machine
// can be called so.
const RepairHost = "ipam repair"

const (
	// repairsPerEntry bounds how many repairs are journaled together, right before they are made.
	repairsPerEntry = 50
	// repairAttempts bounds how often a repair is prepared, while others write the same objects.
	repairAttempts = 5
)

// Repairer makes repairs of IPAM's data: each is journaled, and is one write that depends on all that it was decided
// on.
type Repairer struct {
	Store RepairStore
	// Journal is where the changes are kept first, nil for nowhere.
	Journal    Journal
	ClusterUID string
	Clock      clock.PassiveClock
	// Say reports what became of each repair. The error is nil for one that is made, and a conflict
	// (calico.ErrConflict) for one that no longer applies.
	Say func(r ipamcheck.Repair, err error) error
}

// prepared is a repair and its write.
type prepared struct {
	ipamcheck.Repair
	write calico.Repair
}

// Run makes the repairs of a plan in their order, one kind after the other. The error is one after which nothing more
// was tried.
func (r *Repairer) Run(ctx context.Context, plan ipamcheck.Plan) error {
	snapshot, err := r.Store.Snapshot(ctx)
	if err != nil {
		return err
	}
	if bound := snapshot.ClusterInformation.Annotations[nodesync.BindingAnnotation]; bound != "" && r.ClusterUID != "" && bound != r.ClusterUID {
		return fmt.Errorf("this datastore belongs to the cluster whose kube-system has UID %s, not to %s: check ETCD_ENDPOINTS and --kubeconfig", bound, r.ClusterUID)
	}
	for rest := plan.Repairs; len(rest) > 0; {
		n := 1
		for n < len(rest) && n < repairsPerEntry && rest[n].Kind == rest[0].Kind {
			n++
		}
		if err := r.some(ctx, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// some makes repairs of one kind. What conflicts with a write of somebody else's, or with another repair of these, is
// prepared again.
func (r *Repairer) some(ctx context.Context, repairs []ipamcheck.Repair) error {
	for attempt := 1; len(repairs) > 0; attempt++ {
		ready, later, err := r.prepare(ctx, repairs)
		if err != nil {
			return err
		}
		if err := r.keep(ctx, ready); err != nil {
			return err
		}
		for _, p := range ready {
			err := r.Store.ApplyRepair(ctx, p.write)
			if errors.Is(err, calico.ErrConflict) && attempt < repairAttempts {
				later = append(later, p.Repair)
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := r.Say(p.Repair, err); err != nil {
				return err
			}
		}
		repairs = later
	}
	return nil
}

// prepare returns the writes of repairs, at most one for each key; the others come later.
func (r *Repairer) prepare(ctx context.Context, repairs []ipamcheck.Repair) (ready []prepared, later []ipamcheck.Repair, err error) {
	for _, repair := range repairs {
		write, err := r.Store.PlanRepair(ctx, repair.Of)
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case err != nil:
			if err := r.Say(repair, err); err != nil {
				return nil, nil, err
			}
		case slices.ContainsFunc(ready, func(p prepared) bool { return p.write.Change.Key == write.Change.Key }):
			later = append(later, repair)
		default:
			ready = append(ready, prepared{repair, write})
		}
	}
	return ready, later, nil
}

// keep journals the changes before they are written.
func (r *Repairer) keep(ctx context.Context, ready []prepared) error {
	if r.Journal == nil || len(ready) == 0 {
		return nil
	}
	entry := Entry{
		Time: r.Clock.Now(), ClusterUID: r.ClusterUID, Host: RepairHost, Because: fmt.Sprintf("%s: %s", ready[0].Kind, ready[0].What),
	}
	for _, p := range ready {
		entry.Steps = append(entry.Steps, fmt.Sprintf("%s: %s: %s", p.Kind, p.What, p.Do))
		entry.Repairs = append(entry.Repairs, p.write.Change)
	}
	return r.Journal.Record(ctx, entry)
}

// revert undoes the repairs of an entry, the last one first. It returns false when something was refused.
func (r *restorer) revert(ctx context.Context, entry Entry) (bool, error) {
	all := true
	for _, change := range slices.Backward(entry.Repairs) {
		placed, err := r.came("restored "+change.Key+" as it was before the repair", r.store.Revert(ctx, change, r.dryRun))
		if err != nil {
			return false, err
		}
		all = all && placed
	}
	return all, nil
}
