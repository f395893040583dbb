// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// askedServer counts what is asked of the API server.
type askedServer struct {
	Cluster
	client.Client
	calls atomic.Int64
}

func (c *askedServer) LookUp(ctx context.Context, name string) nodesync.Lookup {
	c.calls.Add(1)
	return c.Cluster.LookUp(ctx, name)
}

func (c *askedServer) RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error) {
	c.calls.Add(1)
	return c.Cluster.RunningPods(ctx, name)
}

func (c *askedServer) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	c.calls.Add(1)
	return c.Client.Create(ctx, object, options...)
}

func (c *askedServer) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.calls.Add(1)
	return c.Client.List(ctx, list, options...)
}

// etcdCalls is how many requests about keys the stage's etcd has answered.
func (s *stage) etcdCalls() (calls int) {
	s.t.Helper()
	request := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.etcd.Endpoint+"/metrics", nil)).Or(s.t)
	answer, err := http.DefaultClient.Do(request)
	must.Do(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	text := must.Get(io.ReadAll(answer.Body)).Or(s.t)
	found := false
	for line := range strings.Lines(string(text)) {
		if labels, value, _ := strings.Cut(line, "} "); strings.HasPrefix(labels, "grpc_server_handled_total{") && strings.Contains(labels, "etcdserverpb.KV") {
			var n float64
			must.Get(fmt.Sscan(value, &n)).Or(s.t)
			calls, found = calls+int(n), true
		}
	}
	if !found {
		s.t.Fatal("etcd does not count its requests")
	}
	return calls
}

// costOf lets machines leave, and returns how many requests to etcd and to the API server their clean-up takes, in one round.
func (s *stage) costOf(machines ...string) (etcd, api int) {
	s.t.Helper()
	r := s.reconciler()
	journal := must.Get(NewConfigMapJournal(s.guarded(), newNamespace(s.t, s.api.Client))).Or(s.t)
	c := &askedServer{Cluster: s.cluster, Client: journal.Client}
	journal.Client, r.Journal, r.Cluster = c, journal, c
	for _, machine := range machines {
		s.leave(machine)
	}
	must.Get(r.pass(s.t.Context())).Or(s.t)
	s.clock.Step(r.Config.Grace)
	c.calls.Store(0)
	etcd = s.etcdCalls()
	must.Get(r.pass(s.t.Context())).Or(s.t)
	etcd = s.etcdCalls() - etcd
	left := s.etcd.Dump(s.t)
	for _, machine := range machines {
		if _, there := left["/calico/resources/v3/projectcalico.org/nodes/"+s.name(machine)]; there {
			s.t.Errorf("%s is not removed", s.name(machine))
		}
	}
	return etcd, int(c.calls.Load())
}

// What one more machine of a backlog costs is its own live reads and writes: what is read of the datastore is read together. Counts do not depend on
// how busy the machine is that runs the test.
func TestRequestsOfAMachineThatLeaves(t *testing.T) {
	s := newStage(t, 9)
	fewEtcd, fewAPI := s.costOf("0", "1")
	manyEtcd, manyAPI := s.costOf("2", "3", "4", "5", "6", "7")
	// Fence 2, endpoints 1, addresses 2, affinity and block 2, Calico Node 1; a Felix configuration would be one more.
	if each := float64(manyEtcd-fewEtcd) / 4; each > 9 {
		t.Errorf("%.2f requests to etcd for each further machine, want at most 9 (%d for two, %d for six)", each, fewEtcd, manyEtcd)
	}
	// Is it gone, do pods run, the journal, and before each write once more: is it gone.
	if each := float64(manyAPI-fewAPI) / 4; each > 9 {
		t.Errorf("%.2f requests to the API server for each further machine, want at most 9 (%d for two, %d for six)", each, fewAPI, manyAPI)
	}
	t.Logf("two machines: %d requests to etcd and %d to the API server; six: %d and %d", fewEtcd, fewAPI, manyEtcd, manyAPI)
}
