// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// exact compares everything, netip's values included, and takes nil and empty for the same.
	exact = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmp.AllowUnexported(model{}, CalicoNode{})}
)

// harmlessStep reports that a step removes nothing of any machine.
func harmlessStep(s Step) bool {
	switch s.(type) {
	case Unfence, BindCluster:
		return true
	default:
		return false
	}
}

// generous are limits that let a whole model be cleaned, so that the properties see many steps.
func generous() Config {
	c := DefaultConfig()
	c.MinOverlapPercent, c.MaxUnwitnessed, c.NodesPerRound = 0, 100, 100
	return c
}

// due returns a World in which every grace period is over, with the model behind it.
func due(t *rapid.T, c Config) (*model, World) {
	m := modelOf(t)
	first := MakePlan(m.observe(start, Memory{}), c)
	return m, m.observe(start.Add(c.Grace), first.Memory)
}

func drawConfig(t *rapid.T) Config {
	c := generous()
	if rapid.Bool().Draw(t, "default limits") {
		c = DefaultConfig()
	}
	c.NodesPerRound = rapid.IntRange(1, 6).Draw(t, "nodes per round")
	return c
}

// removable reports whether a host must be gone in the end, in a model that does not change any more and with limits that allow all.
func (m *model) removable(host string) bool {
	if m.orphans[host] {
		return m.removableOrphan(host)
	}
	n := m.nodes[host]
	if len(n.OrchRefs) != 1 || n.OrchRefs[0].Orchestrator != OrchestratorKubernetes || n.OrchRefs[0].NodeName == "" || n.Keep {
		return false
	}
	kubeName := n.OrchRefs[0].NodeName
	doubted := strings.ToLower(kubeName) != kubeName || m.alike(kubeName) || m.alike(host)
	return !m.kubernetes[kubeName] && !m.kubernetes[host] && (!doubted || m.oldName(host, kubeName)) && m.running[kubeName] == 0 && !m.unreadable[host] &&
		!m.foreignEndpoint(host)
}

// oldName says in the plainest way that a Calico Node is what a machine left that goes by another name now: its Node's deletion was watched, each
// Node of a like name has a Calico Node of its own, and no running pod has an address of it.
func (m *model) oldName(host, kubeName string) bool {
	if !m.sightings[kubeName] || host != kubeName || strings.ToLower(kubeName) != kubeName {
		return false
	}
	for listed := range m.kubernetes {
		one := &model{kubernetes: map[string]bool{listed: true}}
		if !one.alike(kubeName) && !one.alike(host) {
			continue
		}
		own := func(n CalicoNode) bool {
			return n.Name != host && len(n.OrchRefs) == 1 && n.OrchRefs[0] == OrchRef{OrchestratorKubernetes, listed}
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(m.nodes)), own) {
			return false
		}
	}
	return !m.podHasAddressOf(host)
}

// podHasAddressOf reports that a running pod has an address that the host holds.
func (m *model) podHasAddressOf(host string) bool {
	for _, b := range m.blocks {
		for _, a := range b.Allocations {
			if a.Host == host && m.podAddresses[a.Address] != "" {
				return true
			}
		}
	}
	return false
}

// doubted says in the plainest way whether a name may mean a Node that exists.
func (m *model) doubted(name string) bool { return m.alike(name) || strings.ToLower(name) != name }

// alike reports whether a Node exists whose name may mean the same machine.
func (m *model) alike(name string) bool {
	fold := strings.ToLower(name)
	for listed := range m.kubernetes {
		other := strings.ToLower(listed)
		if fold == other || strings.HasPrefix(fold, other+".") || strings.HasPrefix(other, fold+".") {
			return true
		}
	}
	return false
}

func (m *model) foreignEndpoint(host string) bool {
	return slices.ContainsFunc(m.endpoints[host], func(e Endpoint) bool { return e.Orchestrator != OrchestratorKubernetes })
}

// removableOrphan says the same of a host without a Node.
func (m *model) removableOrphan(host string) bool {
	if m.doubted(host) {
		return false
	}
	return !m.podHasAddressOf(host) && m.running[host] == 0 && !m.unreadable[host] && !m.foreignEndpoint(host) && m.leadsTo(host)
}

// namesDiffer says in the plainest way that a Calico Node has another name than its Kubernetes Node.
func namesDiffer(nodes []CalicoNode) bool {
	return slices.ContainsFunc(nodes, func(n CalicoNode) bool {
		name, gate, _ := kubernetesName(n)
		return !n.Implied && gate == "" && name != n.Name
	})
}

// blocked reports that a block of the host holds an address of somebody who stays.
func (m *model) blocked(host string) bool {
	differ := namesDiffer(slices.Collect(maps.Values(m.nodes)))
	for _, b := range m.blocks {
		if b.AffineTo == host && slices.ContainsFunc(b.Allocations, func(a Allocation) bool {
			return a.Host != host && a.ReleasedAt.IsZero() && a.Handle != windowsReservedHandle && (!m.removable(a.Host) || differ && m.orphans[a.Host])
		}) {
			return true
		}
	}
	return false
}

func TestConverges(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := generous()
		c.NodesPerRound = rapid.IntRange(1, 4).Draw(t, "nodes per round")
		m := modelOf(t)
		before := m.clone()
		var memory Memory
		now := start
		// Hosts that are held back are asked about for ever, at longer and longer intervals.
		for range 120 {
			p, failures := m.round(now, &memory, c)
			if len(failures) > 0 {
				t.Fatalf("steps failed in a world that does not change: %v", failures)
			}
			now = now.Add(p.Next)
		}
		for host := range before.nodes {
			_, left := m.nodes[host]
			// A block with a borrowed address stays; the Calico Node, a dead BGP peer, does not.
			if before.removable(host) && left {
				t.Errorf("%s is still there: %s", host, MakePlan(m.observe(now, memory), c))
			}
			if !before.removable(host) && !left {
				t.Errorf("%s was removed", host)
			}
		}
		for host := range before.orphans {
			// Where names differ an orphan waits until no Calico Node shows it any more.
			if before.removable(host) && !m.blocked(host) && !namesDiffer(slices.Collect(maps.Values(m.nodes))) && m.leadsTo(host) {
				t.Errorf("the orphan %s is still there: %s", host, MakePlan(m.observe(now, memory), c))
			}
			untouched := cmp.Equal(before.endpoints[host], m.endpoints[host], exact) && cmp.Equal(before.affinities[host], m.affinities[host], exact) &&
				cmp.Equal(before.resources[host], m.resources[host], exact)
			if !before.removable(host) && !untouched {
				t.Errorf("the orphan %s was touched", host)
			}
		}
		m.checkNoTrace(t, m)
	})
}

// othersUse reports that a block has an address that is not the host's, be it in cooldown.
func (m *model) othersUse(cidr netip.Prefix, host string) bool {
	return m.blocks[cidr].AffineTo == host && slices.ContainsFunc(m.blocks[cidr].Allocations, func(a Allocation) bool {
		return a.Host != host && a.Handle != windowsReservedHandle
	})
}

// checkNoTrace fails if a host whose Node was removed still holds anything that was its own, but for blocks that others
// use, or used when it was planned: what another dead machine borrowed may have gone a step later.
func (m *model) checkNoTrace(t *rapid.T, planned *model) {
	used := func(cidr netip.Prefix, host string) bool {
		return m.othersUse(cidr, host) || planned.othersUse(cidr, host)
	}
	gone := func(host string) bool {
		_, there := m.nodes[host]
		return !there && !m.orphans[host]
	}
	for host, endpoints := range m.endpoints {
		if gone(host) && len(endpoints) > 0 {
			t.Errorf("%s is gone and has %d endpoints", host, len(endpoints))
		}
	}
	for host, affinities := range m.affinities {
		for _, a := range affinities {
			if gone(host) && !used(a.CIDR, host) {
				t.Errorf("%s is gone and has an affinity to %s", host, a.CIDR)
			}
		}
	}
	for cidr, b := range m.blocks {
		if removed := slices.Contains(names, b.AffineTo) && gone(b.AffineTo); removed && !used(cidr, b.AffineTo) {
			t.Errorf("%s is gone and has block %s", b.AffineTo, cidr)
		}
	}
	for _, b := range m.blocks {
		for _, a := range b.Allocations {
			if a.Host != "" && gone(a.Host) {
				t.Errorf("%s is gone and has address %s", a.Host, a.Address)
			}
		}
	}
}

func TestIdempotent(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := generous()
		m, w := due(t, c)
		p := MakePlan(w, c)
		if _, failures := m.applyAll(w, p.Steps); len(failures) > 0 {
			t.Fatalf("steps failed: %v", failures)
		}
		again := MakePlan(m.observe(w.Now, p.Memory), c)
		waits := func(of Subject) bool { // for somebody's address that this very plan may have released
			return slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Of == of && r.Gate == GateForeignAddress })
		}
		for _, s := range again.Steps {
			for _, done := range p.Steps {
				if s.Subject() == done.Subject() && !waits(s.Subject()) {
					t.Errorf("%s is planned again after %s", s, done)
				}
			}
		}
	})
}

func TestOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		_, w := due(t, c)
		want := MakePlan(w, c)
		got := MakePlan(shuffled(w, rapid.Uint64().Draw(t, "seed")), c)
		if diff := cmp.Diff(want, got, exact); diff != "" {
			t.Errorf("another order of the same World gives another plan:\n%s", diff)
		}
		if want.String() != got.String() {
			t.Errorf("another order prints another plan:\n%s\n%s", want, got)
		}
	})
}

func TestModest(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		m, w := due(t, c)
		for _, s := range MakePlan(w, c).Steps {
			if harmlessStep(s) {
				continue
			}
			host := s.Subject().Host
			if !m.removable(host) {
				t.Fatalf("%s touches %s, which is not ours to remove", s, host)
			}
			if r, ok := s.(ReleaseAddresses); ok {
				for _, a := range r.Addresses {
					if !slices.ContainsFunc(m.blocks[r.Block].Allocations, func(x Allocation) bool { return x.Address == a.Address && x.Host == host }) {
						t.Errorf("%s releases an address that is not its own", s)
					}
				}
			}
		}
	})
}

// After every prefix of the steps, whatever is alive is as it was, the Calico Node is still there while anything else of the host is, and
// going on from there ends as if nothing had happened.
func TestSafeAtEveryPrefix(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := generous()
		m, w := due(t, c)
		plan := MakePlan(w, c)
		steps, whole := plan.Steps, m.clone()
		memory := w.Memory
		whole.settle(w.Now, &memory, c, 150)
		cut := rapid.IntRange(0, len(steps)).Draw(t, "cut")
		before := m.clone()
		m.applyAll(w, steps[:cut])
		for host := range before.nodes {
			if before.removable(host) {
				m.checkNoTrace(t, before)
				continue
			}
			if diff := cmp.Diff(before.host(host).Endpoints, m.host(host).Endpoints, exact); diff != "" {
				t.Errorf("%s is alive and lost endpoints:\n%s", host, diff)
			}
		}
		var afresh Memory // the process died: nothing is remembered
		if m.renaming {
			afresh = plan.Memory.Recalled(w.Now, c) // but, where names prove nothing, what was saved long ago
		}
		m.settle(w.Now, &afresh, c, 150)
		whole.revision, m.revision = 0, 0
		if diff := cmp.Diff(withoutRevisions(whole), withoutRevisions(m), exact); diff != "" {
			t.Errorf("dying after %d of %d steps leads to another end (-whole +cut):\n%s", cut, len(steps), diff)
		}
	})
}

// withoutRevisions is the model without what differs when the same is written at another time.
func withoutRevisions(m *model) *model {
	c := m.clone()
	c.now = time.Time{}
	for cidr, b := range c.blocks {
		b.Allocations = slices.DeleteFunc(slices.Clone(b.Allocations), func(a Allocation) bool { return !a.ReleasedAt.IsZero() })
		c.blocks[cidr] = b
	}
	for name, n := range c.nodes {
		n.Revision = 0
		c.nodes[name] = n
	}
	return c
}

func TestMinimal(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := generous()
		m, w := due(t, c)
		steps := MakePlan(w, c).Steps
		if len(steps) == 0 {
			return
		}
		drop := rapid.IntRange(0, len(steps)-1).Draw(t, "drop")
		whole, without := m.clone(), m.clone()
		whole.applyAll(w, steps)
		without.applyAll(w, slices.Delete(slices.Clone(steps), drop, drop+1))
		whole.revision, without.revision = 0, 0
		if cmp.Equal(withoutRevisions(whole), withoutRevisions(without), exact) {
			// A Fence makes no difference in the end; what it is for is what TestARejoinStopsEverything shows.
			if _, fence := steps[drop].(Fence); !fence {
				t.Errorf("%s makes no difference", steps[drop])
			}
		}
	})
}

// A machine that joins again under the same name keeps everything that was not yet removed, wherever in the plan that happens.
func TestARejoinStopsEverything(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := generous()
		m, w := due(t, c)
		steps := MakePlan(w, c).Steps
		if len(steps) == 0 {
			return
		}
		cut := rapid.IntRange(0, len(steps)-1).Draw(t, "cut")
		of := steps[cut].Subject()
		if harmlessStep(steps[cut]) {
			return
		}
		guards := map[string]int64{}
		for _, n := range w.Calico.Nodes {
			guards[n.Name] = n.Revision
		}
		for _, s := range steps[:cut] {
			must.Do(t, m.apply(s, guards))
		}
		// Either its kubelet has registered already, or only its calico-node has started: then the guard alone must stop the steps.
		m.rejoin(of, rapid.Bool().Draw(t, "registered") || m.nodes[of.Host].Implied)
		kept := m.host(of.Host)
		for _, s := range steps[cut:] {
			if s.Subject() == of && m.apply(s, guards) == nil {
				t.Fatalf("%s was applied after the machine was back", s)
			}
		}
		if diff := cmp.Diff(kept, m.host(of.Host), exact); diff != "" {
			t.Errorf("%s lost something after it was back:\n%s", of.Host, diff)
		}
		m.kubernetes[of.KubernetesNode] = true
		var memory Memory
		m.settle(w.Now, &memory, c, 150)
		if n, ok := m.nodes[of.Host]; !ok || n.FencedFor != "" {
			t.Errorf("%s: got Node %+v (there: %v), want it there without a fence", of.Host, n, ok)
		}
	})
}

// rejoin is a calico-node that starts and rewrites its Node, and perhaps a kubelet that registers.
func (m *model) rejoin(of Subject, registered bool) {
	if registered {
		m.kubernetes[of.KubernetesNode] = true
	}
	m.revision++
	n, ok := m.nodes[of.Host]
	if !ok {
		n = CalicoNode{Name: of.Host, OrchRefs: []OrchRef{{OrchestratorKubernetes, of.KubernetesNode}}}
	}
	n.Revision = m.revision
	m.nodes[of.Host] = n
}

// Nothing is written when either side says less than everything.
func TestUntrustedWorldsLeadToNoWrite(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(*World){
		"no watch yet":                func(w *World) { w.Kubernetes.Synced = false },
		"an empty list":               func(w *World) { w.Kubernetes.Nodes = nil },
		"another cluster's datastore": func(w *World) { w.Calico.Binding.ClusterUID = "another" },
		"a cluster without UID":       func(w *World) { w.Kubernetes.ClusterUID = "" },
		"a datastore not ready":       func(w *World) { w.Calico.Ready = false },
		"a foreign cluster":           func(w *World) { w.Kubernetes.Nodes = []KubernetesNode{{Name: "foreign"}}; w.Sightings = nil },
		"live reads without answer":   func(w *World) { setVerdicts(w, VerdictUnknown) },
		"live reads that find them":   func(w *World) { setVerdicts(w, VerdictAlive) },
		"no live reads":               func(w *World) { w.Kubernetes.Lookups = nil },
		"pods not listed":             func(w *World) { w.Kubernetes.RunningPods = nil },
		"Calico's objects not read":   func(w *World) { w.Calico.Hosts = nil },
		"no memory: a first sighting": func(w *World) { w.Memory = Memory{} },
	}
	for name, change := range spoil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases.Check(t, func(t *rapid.T) {
				c := DefaultConfig()
				_, w := due(t, c)
				w.Calico.Nodes = append(w.Calico.Nodes, aliveNodes()...)
				for _, n := range aliveNodes() {
					w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: n.Name})
				}
				change(&w)
				for _, s := range MakePlan(w, c).Steps {
					if !harmlessStep(s) {
						t.Fatalf("planned %s", s)
					}
				}
			})
		})
	}
}

// aliveNodes are so many that a foreign cluster is recognized whatever else is drawn.
func aliveNodes() []CalicoNode {
	var out []CalicoNode
	for _, name := range []string{"z1", "z2", "z3", "z4", "z5"} {
		out = append(out, CalicoNode{Name: name, Revision: 1, OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}})
	}
	return out
}

func setVerdicts(w *World, v Verdict) {
	for i := range w.Kubernetes.Lookups {
		w.Kubernetes.Lookups[i].Verdict = v
	}
}

// The mass guard holds over any history: of nodes whose deletion was not watched, no more than the limit are removed within its window.
func TestMassGuardHoldsOverTime(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := DefaultConfig()
		c.MinOverlapPercent = 0
		m := &model{kubernetes: map[string]bool{"always": true}, nodes: map[string]CalicoNode{}, revision: 1}
		size := rapid.IntRange(4, 60).Draw(t, "size")
		for i := range size {
			name := "m" + string(rune('0'+i/10)) + string(rune('0'+i%10))
			m.kubernetes[name] = true
			m.nodes[name] = CalicoNode{Name: name, Revision: 1, OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}}
		}
		var memory Memory
		removed := map[string]time.Time{}
		now := start
		for range rapid.IntRange(5, 40).Draw(t, "rounds") {
			for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
				if rapid.IntRange(0, 30).Draw(t, "vanishes") == 0 {
					delete(m.kubernetes, name)
				}
			}
			referenced := len(m.nodes)
			p, _ := m.round(now, &memory, c)
			for _, s := range p.Steps {
				if _, ok := s.(RemoveNode); ok {
					removed[s.Subject().Host] = now
				}
			}
			within := 0
			for _, at := range removed {
				if now.Sub(at) < c.MassWindow {
					within++
				}
			}
			if within > max(c.massLimit(referenced), c.massLimit(size)) {
				t.Fatalf("%d of %d nodes were removed within %s", within, size, c.MassWindow)
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "minutes")) * time.Minute)
		}
	})
}
