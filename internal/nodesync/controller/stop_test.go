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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

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
			w := listing("gone")
			w.held.Affinities = []calico.Affinity{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), Revision: 1}}
			w.before = func(ctx context.Context, call, _ string) error {
				switch {
				case call == "Record" && at == "journal":
					stop()
					return fmt.Errorf("%w: %w", errJournal, ctx.Err())
				case call == "DeleteAffinity" && at == "write":
					stop() // it is written all the same
				case call == "EachPod" && at == "pods", call == "Snapshot" && at == "request" && w.count("Snapshot") > 1: // the second is for the request
					stop()
					return ctx.Err()
				}
				return nil
			}
			if at == "request" || name == asked {
				text := must.Get(json.Marshal(Request{ID: "1", Verb: VerbForget, Names: []string{"gone"}, Until: time.Now().Add(time.Hour)})).Or(t)
				w.asked = string(text)
			}
			var lines []string
			r := w.reconciler()
			r.Leftovers, r.Journal, r.Requests = true, w, w
			r.Log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
			r.Config.MinOverlapPercent = 0
			switch name {
			case "request":
				w.swept.Hosts = nil
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
			if w.last.Final() {
				t.Errorf("the request ends with %+v", w.last)
			}
		})
	}
}
