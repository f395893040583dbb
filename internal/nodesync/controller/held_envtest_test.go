// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func (s *stage) nodeKey(machine string) string {
	return "/calico/resources/v3/projectcalico.org/nodes/" + s.name(machine)
}

// gone returns which of the machines have no Calico Node any more.
func (s *stage) gone(machines ...string) string {
	dump := s.etcd.Dump(s.t)
	out := ""
	for _, machine := range machines {
		if dump[s.nodeKey(machine)] == "" {
			out += machine
		}
	}
	return out
}

// passTime runs rounds with the time they ask for in between.
func (s *stage) passTime(r *Reconciler, rounds int) {
	s.t.Helper()
	for range rounds {
		next := must.Get(r.pass(s.t.Context())).Or(s.t)
		s.clock.Step(next)
	}
}

// failing is a datastore in which some machines' endpoints can never be deleted.
type failing struct {
	Datastore
	hosts map[string]bool
}

func (d failing) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	if d.hosts[guard.Host] {
		return errors.New("etcdserver: permission denied")
	}
	return d.Datastore.DeleteEndpoints(ctx, guard, endpoints)
}

// As many broken machines as one round may clean do not keep a healthy one from its turn, and are asked about less and less.
func TestBrokenMachinesDoNotStarveOthers(t *testing.T) {
	s := newStage(t, 6)
	s.config.NodesPerRound = 2
	for _, machine := range []string{"0", "1", "2"} {
		s.leave(machine)
	}
	r := s.reconciler()
	r.Datastore = failing{Datastore: s.store, hosts: map[string]bool{s.name("0"): true, s.name("1"): true}}
	s.passTime(r, 12)
	if got := s.gone("0", "1", "2"); got != "2" {
		t.Errorf("gone are the machines %q, want the healthy one, 2", got)
	}
	rounds := 0
	for end := s.clock.Now().Add(time.Hour); s.clock.Now().Before(end); rounds++ {
		s.passTime(r, 1)
	}
	if rounds > 60 {
		t.Errorf("%d rounds in an hour for machines that always fail, want at most one a minute", rounds)
	}
}

// unbindable is a datastore that another cluster binds at the very moment at which we do.
type unbindable struct{ *interrupted }

func (unbindable) AnnotateClusterInformation(context.Context, int64, string, string) error {
	return &calico.ConflictError{Key: "ClusterInformation", Detail: "it is another cluster's by now"}
}

// A datastore that could not be bound may be another cluster's: nothing else of the plan is written.
func TestNothingIsWrittenIntoADatastoreThatCouldNotBeBound(t *testing.T) {
	s := newStage(t, 0)
	for _, machine := range []string{"0", "1", "2"} {
		s.join(machine)
	}
	r := s.reconciler()
	s.leave("0")
	store := &interrupted{Datastore: s.store}
	r.Datastore = unbindable{store}
	s.passTime(r, 8)
	if store.writes != 0 || s.gone("0") != "" {
		t.Errorf("%d writes were made, want none", store.writes)
	}
	r.Datastore = s.store
	s.passTime(r, 8)
	if s.gone("0") != "0" {
		t.Error("the machine was not cleaned up once the datastore was bound")
	}
}

// When leadership is lost in the middle of a plan, nothing more is written.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	s := newStage(t, 3)
	s.leave("0")
	ctx, stop := context.WithCancel(t.Context())
	store := &interrupted{Datastore: s.store, after: func(n int) error {
		if n == 1 {
			stop()
		}
		return nil
	}}
	r := s.reconciler()
	s.passTime(r, 1)
	s.clock.Step(s.config.Grace)
	r.Datastore = store
	_, _ = r.pass(ctx)
	if store.writes != 1 {
		t.Errorf("%d writes were tried, want the one during which the end came", store.writes)
	}
	if resp, err := s.etcd.Client.Get(t.Context(), s.nodeKey("0"), clientv3.WithCountOnly()); err != nil || resp.Count != 1 {
		t.Errorf("the Node is gone (%v)", err)
	}
}
