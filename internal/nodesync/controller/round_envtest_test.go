// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// interrupted is the real datastore with something happening at the n-th write.
type interrupted struct {
	Datastore
	mu     sync.Mutex
	writes int
	before func(n int) error
	after  func(n int) error
}

func (d *interrupted) around(write func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	n := d.writes
	if d.before != nil {
		if err := d.before(n); err != nil {
			return err
		}
	}
	if err := write(); err != nil {
		return err
	}
	if d.after != nil {
		return d.after(n)
	}
	return nil
}

func (d *interrupted) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (written int64, err error) {
	err = d.around(func() error {
		written, err = d.Datastore.AnnotateNode(ctx, name, revision, annotation, value)
		return err
	})
	return written, err
}

func (d *interrupted) DeleteHandles(ctx context.Context, handles []calico.Handle) error {
	return d.around(func() error { return d.Datastore.DeleteHandles(ctx, handles) })
}

func (d *interrupted) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	return d.around(func() error { return d.Datastore.DeleteEndpoints(ctx, guard, endpoints) })
}

func (d *interrupted) ReleaseAddresses(ctx context.Context, guard calico.Guard, block netip.Prefix, assignments []calico.Assignment) error {
	return d.around(func() error { return d.Datastore.ReleaseAddresses(ctx, guard, block, assignments) })
}

func (d *interrupted) DeleteAffinity(ctx context.Context, guard calico.Guard, block netip.Prefix, revision int64, deleteBlock bool) error {
	return d.around(func() error { return d.Datastore.DeleteAffinity(ctx, guard, block, revision, deleteBlock) })
}

func (d *interrupted) DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error {
	return d.around(func() error { return d.Datastore.DeleteResource(ctx, guard, kind, name, revision) })
}

func (d *interrupted) DeleteNode(ctx context.Context, guard calico.Guard) error {
	return d.around(func() error { return d.Datastore.DeleteNode(ctx, guard) })
}

// writesOfOneMachine is how many writes cleaning up one machine of a stage takes: fence, endpoints, addresses, affinity, Felix, Node.
const writesOfOneMachine = 6

func TestDyingBeforeOrAfterAnyWriteEndsAlike(t *testing.T) {
	s := newStage(t, 3)
	want := s.etcd.Dump(t)
	errDied := errors.New("the process was killed")
	for _, d := range cases.Sample(t, 4, deathsAt(writesOfOneMachine)...) {
		t.Run(d.String(), func(t *testing.T) {
			s.join("9")
			first := s.reconciler()
			s.settle(first)
			store := &interrupted{Datastore: s.store}
			// A process that is killed writes nothing more: the rest of the plan is refused as well.
			died := false
			die := func(write int) error {
				if write >= d.write {
					died = true
					return errDied
				}
				return nil
			}
			if d.after {
				store.after = die
			} else {
				store.before = die
			}
			first.Datastore = store
			s.leave("9")
			for range 3 {
				if died {
					break
				}
				must.Get(first.pass(t.Context())).Or(t)
				s.clock.Step(s.config.Grace)
			}
			if !died {
				t.Fatalf("write %d was never reached: only %d writes were made", d.write, store.writes)
			}
			s.settle(s.reconciler())
			s.expectUnchanged(want)
		})
	}
}

// death is where a process is killed: before or after one of its writes.
type death struct {
	write int
	after bool
}

// String is such as "before write 1".
func (d death) String() string {
	if d.after {
		return fmt.Sprintf("after write %d", d.write)
	}
	return fmt.Sprintf("before write %d", d.write)
}

// deathsAt are all deaths of a process that makes so many writes.
func deathsAt(writes int) (out []death) {
	for write := range writes {
		out = append(out, death{write + 1, false}, death{write + 1, true})
	}
	return out
}
