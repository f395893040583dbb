// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// sweptWorld is a quiet world in which sweeps find hosts, and in which the watch may not be filled yet.
type sweptWorld struct {
	quietWorld
	hosts  []string
	sweeps int
	synced bool
}

func (s *sweptWorld) Sweep(context.Context, int64) (calico.Sweep, error) {
	s.sweeps++
	return calico.Sweep{Hosts: s.hosts, NamesPods: true}, nil
}

func (s *sweptWorld) Synced() bool { return s.synced }

func (s *sweptWorld) ListNodes(context.Context) ([]nodesync.KubernetesNode, error) {
	return []nodesync.KubernetesNode{{Name: "n1"}, {Name: "n2"}, {Name: "short.example.com"}}, nil
}

// LookUp and RunningPods say that a machine is gone, and Hosts that nothing is left of it.
func (s *sweptWorld) LookUp(_ context.Context, name string) nodesync.Lookup {
	return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictGone}
}

func (s *sweptWorld) RunningPods(_ context.Context, name string) (nodesync.RunningPods, error) {
	return nodesync.RunningPods{Node: name}, nil
}

func (s *sweptWorld) Hosts(_ context.Context, _ int64, names []string) (out []calico.Host, err error) {
	for _, name := range names {
		out = append(out, calico.Host{Host: nodesync.Host{Name: name}})
	}
	return out, nil
}

// A stray of which somebody else removes the rest, as kube-controllers does, is not a machine that is gone any more: it would count for the
// mass guard until the next sweep.
func TestAStrayThatSomebodyElseCleansUp(t *testing.T) {
	t.Parallel()
	w := &sweptWorld{hosts: []string{"gone"}, synced: true}
	r := &Reconciler{
		Datastore: w, Cluster: w, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	r.Config.MinOverlapPercent, r.Config.Grace = 0, 0
	for range 2 {
		must.Get(r.pass(t.Context())).Or(t)
	}
	if len(r.strays)+len(r.memory.Absences) > 0 || w.sweeps != 1 {
		t.Errorf("got strays %v and absences %v after %d sweeps, want none after one", r.strays, r.memory.Absences, w.sweeps)
	}
}

// What a sweep finds is in sight until it is cleaned up, found alive, or looked for again: also what is held back, and also if the sweep was made in
// a round in which nothing could be judged, as the first of a process often is.
func TestWhatASweepFoundStaysInSight(t *testing.T) {
	t.Parallel()
	w := &sweptWorld{hosts: []string{"gone", "n2", "short"}}
	r := &Reconciler{
		Datastore: w, Cluster: w, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	r.Config.MinOverlapPercent = 0
	round := func() {
		t.Helper()
		must.Get(r.pass(t.Context())).Or(t)
	}
	round()
	if len(r.strays) != 3 {
		t.Errorf("before the watch is filled: got strays %v, want all that were found", r.strays)
	}
	w.synced = true
	for range 3 {
		round()
		if diff := cmp.Diff(map[string]bool{"gone": true, "short": true}, r.strays); diff != "" {
			t.Errorf("strays (-want +got):\n%s", diff)
		}
		if ambiguous := (nodesync.Refusal{Of: nodesync.Subject{Host: "short", KubernetesNode: "short"}, Gate: nodesync.GateAmbiguousName}); !r.refused[ambiguous] {
			t.Errorf("a host with an ambiguous name is not told any more: %v", r.refused)
		}
	}
	if len(r.memory.Absences) != 1 || w.sweeps != 1 {
		t.Errorf("got absences %v after %d sweeps, want that of gone after one", r.memory.Absences, w.sweeps)
	}
}

// deniedPods is a cluster whose pods cannot be listed until they can.
type deniedPods struct {
	LeftoverCluster
	LeftoverStore
	err   error
	lists int
}

func (d *deniedPods) EachPod(context.Context, func(namespace, name string)) error {
	d.lists++
	return d.err
}

func (d *deniedPods) PodHoldings(context.Context, int64, func(namespace, name string) bool) (calico.PodHoldings, error) {
	return calico.PodHoldings{}, nil
}

// Pods that cannot be listed hold up neither the round nor what the sweep found, are said, and are asked for again in the next round.
func TestASweepWithoutPods(t *testing.T) {
	t.Parallel()
	w := &sweptWorld{hosts: []string{"gone"}, synced: true}
	pods := &deniedPods{err: errors.New("pods is forbidden")}
	r := &Reconciler{
		Datastore: w, Cluster: w, LeftoverStore: pods, LeftoverCluster: pods, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	r.Config.MinOverlapPercent = 0
	preview := func() string {
		t.Helper()
		plan := must.Get(r.Preview(t.Context())).Or(t)
		return plan.String()
	}
	const said = "leftovers of pods were not looked for: listing pods: pods is forbidden"
	for range 2 {
		if text := preview(); !strings.Contains(text, said) || !r.strays["gone"] {
			t.Fatalf("got\n%s%v", text, r.strays)
		}
	}
	pods.err = nil
	for range 2 {
		if text := preview(); strings.Contains(text, "not looked for") {
			t.Errorf("got\n%s", text)
		}
	}
	if pods.lists != 3 || w.sweeps != 1 {
		t.Errorf("%d lists of pods and %d sweeps, want 3 and 1", pods.lists, w.sweeps)
	}
}
