// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
)

// errNotShown keeps apply from writing anything about a machine that was not in the plan it has shown: it went missing since.
var errNotShown = errors.New("it was not part of what was shown: run apply again")

// attendedDatastore is the datastore as apply writes to it: only about machines that were shown, and no write that has begun is cut short by
// a signal, so that what is told afterwards is what happened. Each write is bounded in time by the datastore itself.
type attendedDatastore struct {
	controller.Datastore
	shown map[string]bool // as errand has it
}

func (d attendedDatastore) guarded(ctx context.Context, host string, write func(context.Context) error) error {
	if !d.shown[host] {
		return errNotShown
	}
	return write(context.WithoutCancel(ctx))
}

// AnnotateNode implements controller.Datastore.
func (d attendedDatastore) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (written int64, err error) {
	if _, shown := d.shown[name]; shown && value == "" {
		return d.Datastore.AnnotateNode(context.WithoutCancel(ctx), name, revision, annotation, value) // a fence is withdrawn
	}
	err = d.guarded(ctx, name, func(ctx context.Context) error {
		written, err = d.Datastore.AnnotateNode(ctx, name, revision, annotation, value)
		return err
	})
	return written, err
}

// DeleteEndpoints implements controller.Datastore.
func (d attendedDatastore) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	return d.guarded(ctx, guard.Host, func(ctx context.Context) error { return d.Datastore.DeleteEndpoints(ctx, guard, endpoints) })
}

// ReleaseAddresses implements controller.Datastore.
func (d attendedDatastore) ReleaseAddresses(ctx context.Context, guard calico.Guard, block netip.Prefix, assignments []calico.Assignment) error {
	return d.guarded(ctx, guard.Host, func(ctx context.Context) error { return d.Datastore.ReleaseAddresses(ctx, guard, block, assignments) })
}

// DeleteAffinity implements controller.Datastore.
func (d attendedDatastore) DeleteAffinity(ctx context.Context, guard calico.Guard, block netip.Prefix, revision int64, deleteBlock bool) error {
	return d.guarded(ctx, guard.Host, func(ctx context.Context) error {
		return d.Datastore.DeleteAffinity(ctx, guard, block, revision, deleteBlock)
	})
}

// DeleteResource implements controller.Datastore.
func (d attendedDatastore) DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error {
	return d.guarded(ctx, guard.Host, func(ctx context.Context) error { return d.Datastore.DeleteResource(ctx, guard, kind, name, revision) })
}

// AnnotateClusterInformation implements controller.Datastore.
func (d attendedDatastore) AnnotateClusterInformation(ctx context.Context, revision int64, annotation, value string) error {
	return d.guarded(ctx, nodesync.BindCluster{}.Subject().Host, func(ctx context.Context) error {
		return d.Datastore.AnnotateClusterInformation(ctx, revision, annotation, value)
	})
}

// DeleteHandles implements controller.Datastore.
func (d attendedDatastore) DeleteHandles(ctx context.Context, handles []calico.Handle) error {
	return d.guarded(ctx, nodesync.RemoveHandles{}.Subject().Host, func(ctx context.Context) error { return d.Datastore.DeleteHandles(ctx, handles) })
}

// DeleteNode implements controller.Datastore.
func (d attendedDatastore) DeleteNode(ctx context.Context, guard calico.Guard) error {
	return d.guarded(ctx, guard.Host, func(ctx context.Context) error { return d.Datastore.DeleteNode(ctx, guard) })
}

// attendedCluster does not cut short the last look before a write either: without a response the step would look as if it had failed.
type attendedCluster struct{ controller.Cluster }

// LookUp implements controller.Cluster.
func (c attendedCluster) LookUp(ctx context.Context, name string) nodesync.Lookup {
	return c.Cluster.LookUp(context.WithoutCancel(ctx), name)
}

// attendedJournal keeps nothing of machines that are not touched.
type attendedJournal struct {
	controller.Journal
	shown map[string]bool
}

// Record implements controller.Journal.
func (j attendedJournal) Record(ctx context.Context, entry controller.Entry) error {
	if !j.shown[entry.Host] {
		return errNotShown
	}
	return j.Journal.Record(context.WithoutCancel(ctx), entry)
}

// notebook is what an apply knows from one look to the next. It is the controller's State: what a controller keeps in Kubernetes is read once
// and written on, if a namespace is known. The confirmation is that of --confirm alone: one on the ConfigMap names the time of absence that a
// controller remembers, and none is at work while apply is.
type notebook struct {
	kept         controller.State // nil without a namespace
	confirmation string
	clock        clock.PassiveClock

	memory nodesync.Memory
	begun  bool
}

// confirmedFor is how long --confirm holds: for the apply that it was given to, which ends before.
const confirmedFor = 12 * time.Hour

// Read implements controller.State.
func (n *notebook) Read(ctx context.Context) (nodesync.Memory, string, error) {
	confirmation := n.confirmation
	if confirmation != "" {
		confirmation += "/" + n.clock.Now().Add(confirmedFor).UTC().Format(time.RFC3339)
	}
	if n.kept == nil {
		return n.memory, confirmation, nil
	}
	// Each time, since a save holds only for the version that was read last.
	kept, _, err := n.kept.Read(ctx)
	if err != nil {
		return nodesync.Memory{}, "", err
	}
	if !n.begun {
		n.memory = kept
	}
	return n.memory, confirmation, nil
}

// Save implements controller.State.
func (n *notebook) Save(ctx context.Context, memory nodesync.Memory) error {
	n.memory, n.begun = memory, true
	if n.kept == nil {
		return nil
	}
	return n.kept.Save(ctx, memory)
}

// learn takes over what a plan that was not applied asks to remember, but for the removals that it did not make.
func (n *notebook) learn(memory nodesync.Memory) {
	removals := n.memory.Removals
	n.memory, n.begun = memory, true
	n.memory.Removals, n.memory.SavedAt = removals, n.clock.Now()
}
