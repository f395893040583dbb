// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/routereflector/reachability"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// compared leaves out what does not compare.
func compared() cmp.Options {
	return cmp.Options{cmpopts.EquateComparable(rr.PeerSpec{}), cmpopts.IgnoreFields(rr.Peer{}, "NodeMatcher", "PeerMatcher", "PeerIP"), cmpopts.EquateEmpty()}
}

// churn changes the cluster at random.
func churn(t *rapid.T, w rr.World) rr.World {
	w.Nodes = slices.Clone(w.Nodes)
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		switch at := rapid.IntRange(0, len(w.Nodes)-1).Draw(t, "node"); rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			if len(w.Nodes) > 2 {
				w.Nodes = slices.Delete(w.Nodes, at, at+1)
			}
		case 1:
			fresh := machine(1000+rapid.IntRange(0, 1_000_000).Draw(t, "new"), 4)
			if _, exists := w.Node(fresh.Name); !exists {
				w.Nodes = append(w.Nodes, fresh)
			}
		case 2:
			n := &w.Nodes[at]
			n.Labels = maps.Clone(n.Labels)
			trouble(t, n)
		case 3:
			w.Nodes[at].Workloads = rapid.IntRange(0, 2).Draw(t, "workloads")
		}
	}
	return w
}

// safe: no pair without a change of role loses its path, for a moment or for good, and clients keep their sessions.
func safe(t tester) func(before, after rr.World, p rr.Plan) {
	return func(before, after rr.World, p rr.Plan) {
		step := p.Steps[0]
		if honest := before.Honest(); len(honest.Nodes) < len(before.Nodes) { // as the plan does
			before, after = honest, After(honest, step)
		}
		b, a := model.Judge(&before, model.StateOf(before)), model.Judge(&after, model.StateOf(after))
		transit := model.Surviving(&before, b, a, step)
		for _, moment := range []struct {
			when     string
			was, is  rr.Checks
			networks []*reachability.Network
		}{
			{"for a moment", verdict(&before, b.State, b.Networks, rr.Exempt(step)), verdict(&before, a.State, transit, rr.Exempt(step)), transit},
			{"for good", verdict(&before, b.State, b.Networks, step.Node()), verdict(&after, a.State, a.Networks, step.Node()), a.Networks},
		} {
			if moment.is.UnreachablePairs > moment.was.UnreachablePairs {
				t.Fatalf("%s: %d pairs lose their path %s: %v", step, moment.is.UnreachablePairs-moment.was.UnreachablePairs, moment.when, moment.is.Examples)
			}
			k := len(slices.DeleteFunc(slices.Clone(p.Reflectors), func(r rr.Reflector) bool { return r.Role == rr.RoleLeaving }))
			if least := min(k-1, moment.was.MinSessionsPerClient); !after.Mesh.On && model.LiveClients(&after, a.State, rr.Exempt(step)) && moment.is.MinSessionsPerClient < least &&
				!model.KeepsSessions(&before, b, a, moment.networks, step.Node(), least) {
				t.Fatalf("%s: a client has %d sessions %s, %d are the least", step, moment.is.MinSessionsPerClient, moment.when, least)
			}
		}
	}
}

// rest are the steps of a plan after the first, nil if others may follow: without the mesh a lost reflector has a spare.
func rest(p rr.Plan) []rr.Step {
	if rr.Is[rr.MeshOff](p.Steps[0]) {
		return nil
	}
	return p.Steps[1:]
}

// Whatever happens to a cluster, the plan converges, is idempotent, is safe at every prefix, and a process that dies after any write goes on
// with the same steps.
func TestAnyCluster(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) { lives(t, anyWorld(t, 14), 4, nil) })
}

// lives lets things happen to a cluster up to so many times, each of which its plan must come to terms with; modest
// checks each step.
func lives(t *rapid.T, w rr.World, most int, modest func(before, after rr.World, p rr.Plan)) {
	for range rapid.IntRange(1, most).Draw(t, "rounds") {
		var expected []rr.Step
		var at time.Time
		w, _ = carryOut(t, w, func(before, after rr.World, p rr.Plan) {
			safe(t)(before, after, p)
			if modest != nil {
				modest(before, after, p)
			}
			if expected != nil && at.Equal(before.Now) { // else time has passed for which the mesh stays on
				if diff := cmp.Diff(expected, p.Steps, compared(), cmpopts.IgnoreFields(rr.About{}, "Reason")); diff != "" {
					t.Fatalf("a new process has another plan: %s", diff)
				}
			}
			expected, at = rest(p), before.Now
		})
		if again := settledPlan(w); len(again.Steps) != 0 {
			t.Fatalf("not idempotent: %v", again.Steps)
		}
		w = churn(t, w)
	}
}

// The order in which the world is listed decides nothing.
func TestOrderBlind(t *testing.T) {
	t.Parallel()
	for name, draw := range map[string]func(*rapid.T) rr.World{
		"flat": func(t *rapid.T) rr.World { return anyWorld(t, 20) }, "hierarchy": anyHierarchy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases.Check(t, func(t *rapid.T) {
				w := draw(t)
				for left := rapid.IntRange(0, 25).Draw(t, "steps done"); left > 0; {
					var p rr.Plan
					w, p = planned(w)
					if len(p.Steps) == 0 {
						break
					}
					for _, step := range p.Steps[:min(left, len(p.Steps))] {
						w, left = After(w, step), left-1
					}
				}
				orderBlind(t, w)
				orderBlind(t, settled(w))
			})
		})
	}
}

// orderBlind checks that a world listed in another order has the same plan.
func orderBlind(t *rapid.T, w rr.World) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	other := w
	other.Nodes, other.Peers, other.Sightings = shuffled(random, w.Nodes), shuffled(random, w.Peers), shuffled(random, w.Sightings)
	if diff := cmp.Diff(MakePlan(w), MakePlan(other), compared()); diff != "" {
		t.Fatal(diff)
	}
}

func shuffled[T any](random *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// What is not the topology's is never in a step.
func TestModest(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyWorld(t, 14)
		w.Peers = append(w.Peers, rr.Peer{Name: "rack", PeerSpec: rr.PeerSpec{Filters: "x"}}, rr.Peer{Name: "other-clients", Topology: "other"})
		for i := range w.Nodes {
			if rapid.IntRange(0, 5).Draw(t, "foreign") == 0 {
				w.Nodes[i].ClusterID = "9.9.9.9"
			}
		}
		foreign := map[string]string{}
		for _, n := range w.Nodes {
			foreign[n.Name] = n.ClusterID
		}
		w, done := carryOut(t, w, safe(t))
		for _, s := range done {
			object := s.What().Object
			if object == "BGPPeer/rack" || object == "BGPPeer/other-clients" || foreign[s.Node()] != "" {
				t.Fatalf("%s", s)
			}
		}
		_ = w
	})
}
