// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

const (
	// pruneInterval is the time between two prunings, firstPrune that before the first one of a new leader.
	pruneInterval = time.Hour
	firstPrune    = 10 * time.Minute
	// untouched is how long an entry is left alone whatever the cap says, and an incomplete one too: its clean-up may be under way. It is longer than
	// sameEntryLife, in which an entry may be relied on again.
	untouched = 2 * time.Hour
)

// keepJournal prunes the journal every now and then, until ctx ends, alongside the rounds: it delays none.
func (r *Reconciler) keepJournal(ctx context.Context) {
	pruner, ok := r.Journal.(Pruner)
	if !ok || r.DryRun {
		return
	}
	loop := reconcile.NewLoop(reconcile.LoopOptions{
		Name: "calico-node-sync-journal", Clock: r.Clock, Pass: func(ctx context.Context, _ string) reconcile.Result {
			pruned, err := pruner.Prune(ctx, r.Clock.Now())
			if err != nil && ctx.Err() == nil {
				r.Log.Error(err, "Failed to prune the journal, will try again", "nextIn", pruneInterval.String())
			}
			if pruned > 0 {
				r.Log.Info("Pruned the journal", "entries", pruned)
			}
			return reconcile.Result{Next: pruneInterval}
		},
	})
	loop.AddAfter(reconcile.Only, firstPrune)
	loop.Run(ctx)
}

// Prune implements Pruner. It drops, oldest first, entries older than the retention, those beyond the cap, and incomplete ones; nothing that
// is younger than two hours.
func (j *ConfigMapJournal) Prune(ctx context.Context, now time.Time) (int, error) {
	kept, err := j.List(ctx)
	if err != nil {
		return 0, err
	}
	pruned := 0
	var problems []error
	for _, entry := range j.outlived(kept, now) {
		if err := j.drop(ctx, entry); err != nil {
			problems = append(problems, fmt.Errorf("pruning entry %s of the journal: %w", entry.Name, err))
			if len(problems) > 2 || ctx.Err() != nil {
				break // the rest would fail in the same way
			}
			continue
		}
		pruned++
	}
	return pruned, errors.Join(problems...)
}

// outlived returns the entries that are not to be kept. Leftovers of pods, which may be many a day, are counted apart: they push out no machine's entry, which
// is the one that somebody will need.
func (j *ConfigMapJournal) outlived(kept []KeptEntry, now time.Time) []KeptEntry {
	var out []KeptEntry
	complete := map[bool]int{}
	for _, entry := range slices.Backward(kept) {
		age := now.Sub(entry.Time)
		beyond := !entry.Complete()
		if entry.Complete() {
			complete[entry.Leftovers]++
			beyond = j.MaxEntries > 0 && complete[entry.Leftovers] > j.MaxEntries || j.Retention > 0 && age > j.Retention
		}
		if beyond && age > untouched {
			out = append(out, entry)
		}
	}
	slices.Reverse(out)
	return out
}

// drop deletes the parts of an entry, and of ConfigMaps that somebody made again under the same names, none.
func (j *ConfigMapJournal) drop(ctx context.Context, entry KeptEntry) error {
	for number := 1; number <= entry.Parts; number++ {
		part, there := entry.found[number]
		if !there {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: part.name}}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		err := j.Client.Delete(bounded, object, client.Preconditions{UID: &part.uid})
		if cancel(); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
