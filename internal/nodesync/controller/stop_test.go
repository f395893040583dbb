// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// stoppedWorld has a machine to clean up, and ends the process in the middle of something.
type stoppedWorld struct {
	sweptWorld
	LeftoverStore
	LeftoverCluster
	stop func()
	// at is what it is in the middle of: keeping an entry, a write, listing pods, or planning what a person asks for.
	at string
}

func (s *stoppedWorld) end(ctx context.Context, at string) error {
	if at == s.at {
		s.stop()
	}
	return ctx.Err()
}

func (s *stoppedWorld) Hosts(_ context.Context, _ int64, names []string) (out []calico.Host, err error) {
	for _, name := range names {
		out = append(out, calico.Host{Host: nodesync.Host{Name: name, Affinities: []calico.Affinity{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Revision: 1}}}})
	}
	return out, nil
}

func (s *stoppedWorld) Record(ctx context.Context, _ Entry) error {
	if err := s.end(ctx, "journal"); err != nil {
		return fmt.Errorf("%w: %w", errJournal, err)
	}
	return nil
}

func (s *stoppedWorld) DeleteAffinity(ctx context.Context, _ calico.Guard, _ netip.Prefix, _ int64, _ bool) error {
	_ = s.end(ctx, "write") // it is written all the same
	return nil
}

func (s *stoppedWorld) EachPod(ctx context.Context, _ func(namespace, name string)) error {
	return s.end(ctx, "pods")
}

func (s *stoppedWorld) Heartbeat(context.Context, string) nodesync.Heartbeat {
	return nodesync.Heartbeat{}
}

func (s *stoppedWorld) PodHoldings(context.Context, int64, func(namespace, name string) bool) (calico.PodHoldings, error) {
	return calico.PodHoldings{}, nil
}

func (s *stoppedWorld) Snapshot(ctx context.Context) (calico.Snapshot, error) {
	snapshot, err := s.sweptWorld.Snapshot(ctx)
	if s.rounds.Load() > 1 { // the second is for the request
		err = s.end(ctx, "request")
	}
	return snapshot, err
}

// An end in the middle of a round, at whatever, is no failure of a machine: nothing is logged as an error, no machine is held back, and a request goes on.
// What was written before is reported.
func TestAnEndInTheMiddleIsNoError(t *testing.T) {
	t.Parallel()
	const asked = "journal of a request"
	for _, name := range []string{"journal", "write", "pods", "request", asked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			at, _, _ := strings.Cut(name, " ")
			w := &stoppedWorld{sweptWorld: sweptWorld{hosts: []string{"gone"}, synced: true}, stop: stop, at: at}
			request := &givenRequest{}
			if at == "request" || name == asked {
				text := must.Get(json.Marshal(Request{ID: "1", Verb: VerbForget, Names: []string{"gone"}, Until: time.Now().Add(time.Hour)})).Or(t)
				request.text = string(text)
			}
			var lines []string
			r := &Reconciler{
				Datastore: w, Cluster: w, LeftoverStore: w, LeftoverCluster: w, Journal: w, Requests: request, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{},
				Log: funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}), Metrics: NewMetrics(prometheus.NewRegistry()),
			}
			r.Config.MinOverlapPercent = 0
			switch name {
			case "request":
				w.hosts = nil
			case asked: // the grace period leaves the machine to the request
			default:
				r.Config.Grace = 0
			}
			if err := r.Start(ctx); err != nil || ctx.Err() == nil {
				t.Fatalf("Start() = %v, and the context ended with %v", err, ctx.Err())
			}
			for _, line := range lines {
				if strings.Contains(line, `"error"=`) {
					t.Errorf("logged as an error: %s", line)
				}
			}
			for _, a := range r.memory.Absences {
				if a.HeldBy == nodesync.GateStepFailed {
					t.Errorf("%s is held back: %s", a.CalicoNode, a.Held)
				}
			}
			done := testutil.ToFloat64(r.Metrics.steps.WithLabelValues(nodesync.Kind(nodesync.RemoveAffinity{}), "done"))
			if (done > 0) != (at == "write") {
				t.Errorf("%v writes are reported", done)
			}
			if request.last.Final() {
				t.Errorf("the request ends with %+v", request.last)
			}
		})
	}
}
