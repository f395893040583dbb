// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.MkdirAll("testdata", 0o755))
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(file)).Or(t)
	if got != string(want) {
		t.Errorf("%s differs, run with -update if that is meant:\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// exampleWorld holds one machine for each thing that a plan can say.
func exampleWorld() World {
	k8s := func(name string) []OrchRef { return []OrchRef{{OrchestratorKubernetes, name}} }
	w := World{
		Now:        start,
		Kubernetes: Kubernetes{Synced: true, ClusterUID: "uid-of-kube-system"},
		Calico: Calico{
			Ready:      true,
			Binding:    Binding{Revision: 70},
			Unreadable: []string{"/calico/resources/v3/projectcalico.org/nodes/broken"},
			Nodes: []CalicoNode{
				{Name: "alive", Revision: 1, OrchRefs: k8s("alive")},
				{Name: "back", Revision: 2, OrchRefs: k8s("back"), FencedFor: "back"},
				{Name: "gone", Revision: 3, OrchRefs: k8s("gone.example.com")},
				{Name: "keep", Revision: 4, OrchRefs: k8s("keep"), Keep: true},
				{Name: "reflector", Revision: 5},
				{Name: "openstack", Revision: 6, OrchRefs: []OrchRef{{"openstack", "openstack"}}},
				{Name: "twice", Revision: 7, OrchRefs: []OrchRef{{OrchestratorKubernetes, "one"}, {OrchestratorKubernetes, "two"}}},
				{Name: "renamed", Revision: 8, OrchRefs: k8s("old-name")},
				{Name: "busy", Revision: 9, OrchRefs: k8s("busy")},
				{Name: "lender", Revision: 10, OrchRefs: k8s("lender")},
			},
			Hosts: []Host{goneHost(), {Name: "busy"}, lenderHost()},
		},
	}
	for _, name := range []string{"alive", "back", "renamed", "a", "b", "c"} {
		w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: "uid-" + name})
	}
	for _, name := range []string{"gone.example.com", "busy", "lender"} {
		w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, Lookup{Node: name, Verdict: VerdictGone})
		w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, RunningPods{Node: name})
	}
	w.Kubernetes.RunningPods[1] = RunningPods{Node: "busy", Count: 2, Example: "shop/cart-1"}
	w.Sightings = []Sighting{{Node: "gone.example.com", UID: "uid-gone"}, {Node: "busy"}, {Node: "lender"}}
	return w
}

func goneHost() Host {
	cidr := netip.MustParsePrefix("10.244.1.0/26")
	return Host{
		Name:       "gone",
		Endpoints:  []Endpoint{{Namespace: "shop", Name: "gone-k8s-cart--1-eth0", Revision: 30, Orchestrator: OrchestratorKubernetes}},
		Affinities: []Affinity{{CIDR: cidr, Revision: 31}, {CIDR: netip.MustParsePrefix("10.244.9.0/26"), Revision: 32}},
		Blocks: []Block{
			{CIDR: cidr, AffineTo: "gone", Allocations: []Allocation{
				{Address: netip.MustParseAddr("10.244.1.5"), Handle: "h1", Sequence: 5, Host: "gone"},
				{Address: netip.MustParseAddr("10.244.1.4"), Handle: "ipip-tunnel-addr-gone", Sequence: 4, Host: "gone"},
			}},
			{CIDR: netip.MustParsePrefix("10.244.2.0/26"), AffineTo: "alive", Allocations: []Allocation{
				{Address: netip.MustParseAddr("10.244.2.7"), Handle: "h2", Sequence: 7, Host: "gone"},
				{Address: netip.MustParseAddr("10.244.2.8"), Handle: "h3", Sequence: 8, Host: "alive"},
			}},
		},
		Resources: []Resource{
			{Kind: KindBGPPeer, Name: "to-the-rack", Revision: 34},
			{Kind: KindFelixConfiguration, Name: "node.gone", Revision: 33, Automatic: true},
			{Kind: KindHostEndpoint, Name: "gone-auto-hep", Revision: 35, Automatic: true},
		},
	}
}

func lenderHost() Host {
	cidr := netip.MustParsePrefix("10.244.3.0/26")
	return Host{Name: "lender", Affinities: []Affinity{{CIDR: cidr, Revision: 40}}, Blocks: []Block{{CIDR: cidr, AffineTo: "lender", Allocations: []Allocation{
		{Address: netip.MustParseAddr("10.244.3.9"), Handle: "h4", Sequence: 1, Host: "alive"},
	}}}}
}

func examplePlan() Plan {
	c := DefaultConfig()
	w := exampleWorld()
	w.Memory = MakePlan(w, c).Memory
	w.Now = w.Now.Add(c.Grace + 12*time.Second)
	return MakePlan(w, c)
}

// The texts and names of plans are read by people and by scripts.
func TestPlanText(t *testing.T) { golden(t, "plan.golden", examplePlan().String()) }

func TestPlanJSON(t *testing.T) {
	text := must.Get(json.MarshalIndent(examplePlan(), "", "  ")).Or(t)
	golden(t, "plan.json.golden", string(text)+"\n")
}

func TestFirstSightText(t *testing.T) {
	golden(t, "first-sight.golden", MakePlan(exampleWorld(), DefaultConfig()).String())
}

func TestPublicStrings(t *testing.T) {
	t.Parallel()
	if BindingAnnotation != "nodes.mooring.dev/cluster-uid" {
		t.Error("the binding's annotation has changed: bound datastores would be bound again, to any cluster")
	}
	if FenceAnnotation != "nodes.mooring.dev/decommission" || KeepAnnotation != "nodes.mooring.dev/keep" {
		t.Error("an annotation has changed: fences of earlier versions and users' keep marks would be ignored")
	}
	want := "kubernetes-not-synced kubernetes-empty datastore-not-ready cluster-binding overlap unreadable no-identity other-orchestrator ambiguous-name keep " +
		"signs-of-life mass-guard grace pace not-confirmed-gone running-pods step-failed foreign-endpoint foreign-address cooldown user-configuration orphaned-handle " +
		"orphaned-configuration pod-leftovers leftover-guard"
	got := make([]string, 0, len(Gates()))
	for _, g := range Gates() {
		got = append(got, string(g))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("gates: got %s, want %s", strings.Join(got, " "), want)
	}
}

func TestClusterGates(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		spoil func(*World)
		want  Gate
	}{
		"no watch":       {func(w *World) { w.Kubernetes.Synced = false }, GateKubernetesNotSynced},
		"no nodes":       {func(w *World) { w.Kubernetes.Nodes = nil }, GateKubernetesEmpty},
		"not ready":      {func(w *World) { w.Calico.Ready = false }, GateDatastoreNotReady},
		"bound":          {func(w *World) { w.Calico.Binding.ClusterUID = "another" }, GateClusterBinding},
		"unknown":        {func(w *World) { w.Kubernetes.ClusterUID = "" }, GateClusterBinding},
		"foreign":        {func(w *World) { w.Kubernetes.Nodes = w.Kubernetes.Nodes[3:]; w.Sightings = nil }, GateOverlap},
		"foreign, known": {func(w *World) { w.Kubernetes.Nodes = w.Kubernetes.Nodes[3:] }, GateOverlap},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := exampleWorld()
			c.spoil(&w)
			p := MakePlan(w, DefaultConfig())
			found := false
			for _, r := range p.Refusals {
				found = found || r.Gate == c.want && r.Of == Subject{}
			}
			if !found || len(p.Steps) > 0 {
				t.Errorf("got plan\n%swant gate %s and no step", p, c.want)
			}
		})
	}
}

func TestConfigValidation(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*Config){
		"grace period is -1s":       func(c *Config) { c.Grace = -time.Second },
		"minimal overlap is 101 %":  func(c *Config) { c.MinOverlapPercent = 101 },
		"number of nodes is -1":     func(c *Config) { c.MaxUnwitnessed = -1 },
		"share is -5 %":             func(c *Config) { c.MaxUnwitnessedPercent = -5 },
		"window is 0s":              func(c *Config) { c.MassWindow = 0 },
		"cleaned per round is 0":    func(c *Config) { c.NodesPerRound = 0 },
		"pace between rounds is 0s": func(c *Config) { c.Pace = 0 },
		"resync period is -1m0s":    func(c *Config) { c.Resync = -time.Minute },
	}
	for want, spoil := range cases {
		c := DefaultConfig()
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "default") {
			t.Errorf("got error %v, want one that says %q and names the default", err, want)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

func orphan(name string) CalicoNode { return CalicoNode{Name: name, Implied: true} }

// What an earlier process saved counts only if that process was at work until lately.
func TestMemoryAges(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	m := Memory{SavedAt: start, Absences: []Absence{{CalicoNode: "a"}}, Removals: []Removal{{CalicoNode: "b", At: start}}}
	if got := m.Recalled(start.Add(c.Resync), c); len(got.Absences) != 1 || len(got.Removals) != 1 {
		t.Errorf("after one resync period: got %+v, want all of it", got)
	}
	if got := m.Recalled(start.Add(3*c.Resync), c); len(got.Absences) != 0 || len(got.Removals) != 1 {
		t.Errorf("after a long gap: got %+v, want the removals alone", got)
	}
}

func TestConfirmations(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return start.Add(d).Format(time.RFC3339) }
	cases := map[string]string{
		"":                        "nobody has confirmed it",
		"abc":                     "is not of the form HASH/TIME",
		"abc/tomorrow":            "is not of the form HASH/TIME",
		"other/" + in(time.Hour):  "which are other nodes",
		"abc/" + in(-time.Hour):   "expired",
		"abc/" + in(48*time.Hour): "more than 24h0m0s from now",
		"abc/" + in(time.Hour):    "",
	}
	for confirmation, want := range cases {
		if _, got := confirmed(confirmation, "abc", start); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", confirmation, got, want)
		}
	}
}

// What was watched is cleaned in one round, however much it is, as far as is good to read at a time; of what was not, a few, and then the pace.
func TestEvidenceSetsThePace(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for name, tt := range map[string]struct {
		watched, unwatched, cleaned int
		next, pace                  time.Duration
	}{
		"a node pool that was scaled down": {watched: 50, cleaned: 50, next: c.Pace, pace: time.Second},
		"more than is read at a time":      {watched: 600, cleaned: 500, next: time.Second, pace: time.Second},
		"nobody watched":                   {unwatched: 20, cleaned: 5, next: c.Pace, pace: c.Pace},
		"both":                             {watched: 40, unwatched: 20, cleaned: 45, next: c.Pace, pace: c.Pace},
		"nothing":                          {next: c.Resync},
	} {
		w := World{Now: start, Kubernetes: Kubernetes{Synced: true}, Calico: Calico{Ready: true, Binding: Binding{Implied: true}}}
		for i := range 1000 {
			name := fmt.Sprintf("node-%04d", i)
			w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: name, Revision: 1, OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}})
			if i >= tt.watched+tt.unwatched {
				w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: name})
				continue
			}
			if i < tt.watched {
				w.Sightings = append(w.Sightings, Sighting{Node: name, UID: name})
			}
			w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, Lookup{Node: name, Verdict: VerdictGone})
			w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, RunningPods{Node: name})
			w.Calico.Hosts = append(w.Calico.Hosts, Host{Name: name})
		}
		w.Memory = MakePlan(w, c).Memory
		w.Now = start.Add(c.Grace + time.Second)
		p := MakePlan(w, c)
		cleaned, waiting := map[string]bool{}, 0
		for _, s := range p.Steps {
			cleaned[s.Subject().Host] = true
		}
		for _, r := range p.Refusals {
			if r.Gate == GatePace {
				waiting++
			}
		}
		if len(cleaned) != tt.cleaned || waiting != tt.watched+tt.unwatched-tt.cleaned || p.Next != tt.next || p.Pace != tt.pace {
			t.Errorf("%s: %d cleaned, %d wait their turn, next in %s, not before %s; want %+v", name, len(cleaned), waiting, p.Next, p.Pace, tt)
		}
	}
}

// Where Calico is configured to wait before an address is assigned again, a block goes when its last address has cooled down, and not before.
func TestABlockStaysUntilItsAddressesHaveCooledDown(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := exampleWorld()
	w.Memory = MakePlan(w, c).Memory
	w.Now = w.Now.Add(c.Grace + 12*time.Second)
	host := &w.Calico.Hosts[0]
	host.IPCooldown = 10 * time.Minute
	block := &host.Blocks[0]
	cidr, address := block.CIDR, block.Allocations[0].Address
	host.Blocks = host.Blocks[:1]
	host.Affinities = slices.DeleteFunc(host.Affinities, func(a Affinity) bool { return a.CIDR != cidr })

	plan := MakePlan(w, c).About(func(of Subject) bool { return of.Host == "gone" })
	if !slices.ContainsFunc(plan.Steps, func(s Step) bool {
		r, ok := s.(ReleaseAddresses)
		return ok && r.Cooldown == 10*time.Minute && strings.HasSuffix(r.String(), "with a cooldown of 10m0s")
	}) || removes(plan, cidr) {
		t.Errorf("the addresses are released and the block stays: got\n%s", plan)
	}

	released := w.Now
	host.Blocks[0].Allocations = []Allocation{{Address: address, ReleasedAt: released}}
	host.Endpoints, host.Resources = nil, nil
	w.Now = released.Add(time.Minute)
	plan = MakePlan(w, c)
	held := slices.IndexFunc(plan.Refusals, func(r Refusal) bool { return r.Of.Host == "gone" && r.Gate == GateCooldown })
	if held < 0 || removes(plan, cidr) || !plan.Refusals[held].Until.Equal(released.Add(10*time.Minute)) {
		t.Fatalf("a block with an address in cooldown: got\n%s", plan)
	}
	if plan.Next > c.Resync {
		t.Errorf("the next reconcile is after %s, want at most the resync period", plan.Next)
	}

	w.Memory = plan.Memory
	w.Now = released.Add(10*time.Minute + time.Second)
	if plan = MakePlan(w, c); !removes(plan, cidr) {
		t.Errorf("a block whose addresses have cooled down: got\n%s", plan)
	}
}

func removes(plan Plan, block netip.Prefix) bool {
	return slices.ContainsFunc(plan.Steps, func(s Step) bool {
		r, ok := s.(RemoveAffinity)
		return ok && r.CIDR == block && r.DeleteBlock
	})
}

// What a newer Calico says of an address, or that it is a virtual machine's, may make it a living machine's as well: it stays in its block, and the
// plan says why.
func TestAnAddressOfWhichMoreIsSaidStays(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(a *Allocation){
		`"alternate"`:                      func(a *Allocation) { a.Unknown = "alternate" },
		"belongs to virtual machine vms/v": func(a *Allocation) { a.VirtualMachine = "vms/v" },
		"belongs to a virtual machine that moves, and is that of target": func(a *Allocation) { a.AlternateHost = "target" },
	} {
		c := DefaultConfig()
		w := exampleWorld()
		w.Memory = MakePlan(w, c).Memory
		w.Now = w.Now.Add(c.Grace + 12*time.Second)
		blocks := w.Calico.Hosts[0].Blocks
		own, borrowed := &blocks[0].Allocations[0], &blocks[1].Allocations[0]
		change(own)
		change(borrowed)
		plan := MakePlan(w, c)
		for _, step := range plan.Steps {
			if s, ok := step.(ReleaseAddresses); ok && slices.ContainsFunc(s.Addresses, func(a Reservation) bool { return a.Address == own.Address || a.Address == borrowed.Address }) {
				t.Errorf("%s: the plan releases it: %s", want, s)
			}
		}
		said := slices.DeleteFunc(plan.Refusals, func(r Refusal) bool {
			return r.Gate != GateForeignAddress || r.Of.Host != "gone" || !strings.Contains(r.Message, want)
		})
		if removes(plan, blocks[0].CIDR) || len(said) != 2 {
			t.Errorf("%s: want a refusal for each block, got\n%s", want, plan)
		}
	}
}

// What holds back many machines for one reason is said once, with their names.
func TestAPlanSaysASentenceOnce(t *testing.T) {
	t.Parallel()
	w := World{
		Now: start, Kubernetes: Kubernetes{Synced: true, ClusterUID: "u"}, Calico: Calico{Ready: true, Binding: Binding{ClusterUID: "u"}},
	}
	for i := range 60 {
		name := fmt.Sprintf("n%d", i)
		w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: name, Revision: 1, OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}})
		if i >= 20 {
			w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: "uid-" + name})
		}
	}
	text := MakePlan(w, DefaultConfig()).String()
	if n := strings.Count(text, "(mass-guard)"); n != 1 || !strings.Contains(text, "and 15 more") {
		t.Errorf("the sentence of the mass guard stands there %d times, want once for 20 machines:\n%s", n, text)
	}
}
