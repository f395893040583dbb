// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// bigWorld is a cluster of so many machines, of which a few are gone and due.
func bigWorld(machines int, c Config) World {
	w := World{
		Now: start, Kubernetes: Kubernetes{Synced: true}, Calico: Calico{Ready: true, Binding: Binding{Implied: true}},
	}
	for i := range machines {
		name := fmt.Sprintf("node-%05d", i)
		w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: name, Revision: int64(i + 1), OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}})
		if i%(machines/c.NodesPerRound) != 0 {
			w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: name})
			continue
		}
		w.Sightings = append(w.Sightings, Sighting{Node: name, UID: name})
		w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, Lookup{Node: name, Verdict: VerdictGone})
		w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, RunningPods{Node: name})
		w.Calico.Hosts = append(w.Calico.Hosts, bigHost(name, i))
	}
	w.Memory = MakePlan(w, c).Memory
	w.Now = start.Add(c.Grace + time.Second)
	return w
}

// bigHost is a machine with 30 pods.
func bigHost(name string, i int) Host {
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26)
	h := Host{Name: name, Affinities: []Affinity{{CIDR: cidr, Revision: 1}}}
	block := Block{CIDR: cidr, AffineTo: name}
	for p := range 30 {
		h.Endpoints = append(h.Endpoints, Endpoint{Namespace: "ns", Name: fmt.Sprintf("pod-%d", p), Revision: 1, Orchestrator: OrchestratorKubernetes})
		block.Allocations = append(block.Allocations, Allocation{
			Address: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(p)}), Handle: fmt.Sprintf("handle-%d-%d", i, p), Sequence: 1, Host: name,
		})
	}
	h.Blocks = []Block{block}
	return h
}

func BenchmarkPlan(b *testing.B) {
	c := DefaultConfig()
	for _, machines := range []int{1000, 5000, 15000} {
		b.Run(fmt.Sprintf("nodes=%d", machines), func(b *testing.B) {
			w := bigWorld(machines, c)
			if got := len(MakePlan(w, c).Steps); got == 0 {
				b.Fatal("the plan has no steps")
			}
			b.ReportAllocs()
			for b.Loop() {
				MakePlan(w, c)
			}
		})
	}
}

// A cluster of twice the size may cost about twice as much to plan for, and no more.
func TestPlanningGrowsWithTheCluster(t *testing.T) {
	c := DefaultConfig()
	bytes := func(machines int) uint64 {
		w := bigWorld(machines, c)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		MakePlan(w, c)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := bytes(2000), bytes(4000)
	if float64(large) > 2.5*float64(small) {
		t.Errorf("planning for 4000 nodes allocates %d bytes, for 2000 nodes %d: more than twice and a half as much", large, small)
	}
}
