// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// vanished is a World of so many machines of which some are gone, and nobody watched.
func vanished(machines, gone int) World {
	w := World{Now: start, Kubernetes: Kubernetes{Synced: true}, Calico: Calico{Ready: true, Binding: Binding{Implied: true}}}
	for i := range machines {
		name := fmt.Sprintf("node-%02d", i)
		w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: name, Revision: 1, OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}})
		if i >= gone {
			w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: name})
			continue
		}
		w.look(name, false)
		w.Calico.Hosts = append(w.Calico.Hosts, Host{Name: name})
	}
	return w
}

// What waits for a person is noted for those who have neither the log nor the datastore, and nothing is noted that no confirmation would let pass.
func TestAwaiting(t *testing.T) {
	t.Parallel()
	adopted := func(w World) World {
		w.Calico.Nodes[0].OrchRefs = nil
		return w
	}
	change := func(w World, how func(*World)) World {
		how(&w)
		return w
	}
	for name, test := range map[string]struct {
		w       World
		oneShot bool
		gate    Gate
		count   int
		why     string
	}{
		"nothing is gone":                  {w: vanished(40, 0)},
		"few enough":                       {w: vanished(40, 4)},
		"one too many":                     {w: vanished(40, 5), gate: GateMass, count: 5, why: "5 nodes are gone whose deletion was not watched, including removals of the last 1h0m0s; the mass guard allows 4 of 40"},
		"more than are named":              {w: vanished(40, 15), gate: GateMass, count: 15, why: "15 nodes are gone"},
		"most of them":                     {w: vanished(40, 30), gate: GateOverlap, count: 30, why: "only 10 of 40 Calico Nodes have their Kubernetes Node, less than 50 % (--min-overlap-percent)"},
		"nothing but a name":               {w: adopted(vanished(40, 1)), gate: GateMass, count: 1, why: "node-00: nothing but its name shows that it was ever a Kubernetes Node"},
		"the command brings the word":      {w: vanished(40, 5), oneShot: true},
		"one that is to be kept":           {w: change(vanished(40, 5), func(w *World) { w.Calico.Nodes[0].Keep = true })},
		"one was watched":                  {w: change(vanished(40, 5), func(w *World) { w.Sightings = []Sighting{{Node: "node-03"}} })},
		"Kubernetes lists nothing":         {w: change(vanished(40, 5), func(w *World) { w.Kubernetes.Nodes = nil })},
		"Kubernetes' list is not read":     {w: change(vanished(40, 5), func(w *World) { w.Kubernetes.Synced = false })},
		"the datastore is locked":          {w: change(vanished(40, 5), func(w *World) { w.Calico.Ready = false })},
		"the datastore is another's":       {w: change(vanished(40, 5), func(w *World) { w.Calico.Binding = Binding{ClusterUID: "b"}; w.Kubernetes.ClusterUID = "a" })},
		"what waited before has been read": {w: change(vanished(40, 0), func(w *World) { w.Memory.Awaiting = Awaiting{Hash: "0123456789ab", Count: 3} })},
		"what waited is not known any more": {w: change(vanished(40, 5), func(w *World) {
			w.Memory.Awaiting, w.Kubernetes.Nodes = Awaiting{Hash: "0123456789ab", Count: 3}, nil
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.AdoptUnreferenced, c.OneShot = true, test.oneShot
			p := MakePlan(test.w, c)
			got := p.Memory.Awaiting
			if got.Gate != test.gate || got.Count != test.count || !strings.HasPrefix(got.Why, test.why) || (got.Hash == "") != (test.gate == "") {
				t.Fatalf("got %+v, want %d held back by %q: %s", got, test.count, test.gate, test.why)
			}
			if want := min(test.count, 10); len(got.Machines) != want || !slices.IsSorted(got.Machines) {
				t.Errorf("named are %q, want the first %d", got.Machines, want)
			}
			if text, err := json.Marshal(p.Memory); err != nil || strings.Contains(string(text), "awaiting") != (test.gate != "") {
				t.Errorf("kept is %s (%v)", text, err)
			}
			if test.gate != "" && !strings.Contains(p.String(), "`kubectl mooring confirm nodes "+got.Hash+"`, or annotate ConfigMap calico-node-sync-state") {
				t.Errorf("the plan does not say how to confirm %s:\n%s", got.Hash, p)
			}
		})
	}
}

// The time alone changes nothing of what waits, so that it is not saved again and again.
func TestWhatWaitsStaysTheSame(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := vanished(40, 5)
	first := MakePlan(w, c)
	w.Memory, w.Now = first.Memory, start.Add(26*time.Hour)
	if diff := cmp.Diff(first.Memory.Awaiting, MakePlan(w, c).Memory.Awaiting); diff != "" {
		t.Errorf("after a day (-first +then):\n%s", diff)
	}
	w.Memory.SavedAt = start
	if got := w.Memory.Recalled(w.Now, c).Awaiting; got.Hash != "" {
		t.Errorf("a memory that is not believed any more says %+v", got)
	}
}

// In any World: what waits is what a gate that a confirmation opens holds back, whatever the order, and once it is confirmed it waits no more.
func TestAwaitingIsWhatAConfirmationOpens(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.MaxUnwitnessed, c.MaxUnwitnessedPercent, c.MinOverlapPercent = 0, 0, rapid.SampledFrom([]int{0, 50}).Draw(t, "overlap")
		_, w := due(t, c)
		p := MakePlan(w, c)
		waits := p.Memory.Awaiting
		held := false
		for _, r := range p.Refusals {
			if _, hash, asks := strings.Cut(r.Message, "kubectl mooring confirm nodes "); asks {
				held = true
				if waits.Hash == "" || !strings.HasPrefix(hash, waits.Hash+"`") {
					t.Fatalf("%+v waits, and %s is refused: %s", waits, r.Of.Host, r.Message)
				}
			}
		}
		if !held && waits.Hash != "" {
			t.Fatalf("%+v waits, and no refusal says so: %+v", waits, p.Refusals)
		}
		if diff := cmp.Diff(waits, MakePlan(shuffled(w, rapid.Uint64().Draw(t, "seed")), c).Memory.Awaiting); diff != "" {
			t.Fatalf("in another order (-first +then):\n%s", diff)
		}
		w.Memory, w.Confirmation = p.Memory, waits.Confirmation(w.Now.Add(time.Hour))
		if then := MakePlan(w, c); held && (then.Memory.Awaiting.Hash != "" || slices.ContainsFunc(then.Refusals, func(r Refusal) bool { return r.Gate == GateMass })) {
			t.Fatalf("%s is confirmed, and %+v waits: %+v", waits.Hash, then.Memory.Awaiting, then.Refusals)
		}
	})
}
