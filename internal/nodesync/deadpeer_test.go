// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// deadPeer is a machine that is gone, with one address in its block. Its Calico Node has another name, and so has that of a machine that lives.
func deadPeer(c Config, foreign Allocation) World {
	w := named(c, []string{"calico-a=a", "calico-x=x", "b=b"}, []string{"a", "b"}, nil)
	cidr := netip.MustParsePrefix("10.0.0.0/26")
	foreign.Address, foreign.Sequence = netip.MustParseAddr("10.0.0.9"), 3
	host := Host{Name: "calico-x", Affinities: []Affinity{{CIDR: cidr, Revision: 8}}, Blocks: []Block{{CIDR: cidr, AffineTo: "calico-x", Allocations: []Allocation{foreign}}}}
	for i := range w.Calico.Hosts {
		if w.Calico.Hosts[i].Name == host.Name {
			w.Calico.Hosts[i] = host
		}
	}
	return w
}

// withoutNode is the World a day later, after a restart: the Calico Node is removed, and the block is as it was or empty.
func withoutNode(t *testing.T, c Config, foreign Allocation, memory Memory, empty bool) World {
	t.Helper()
	memory.SavedAt = start
	text := must.Get(json.Marshal(memory)).Or(t)
	var kept Memory
	must.Do(t, json.Unmarshal(text, &kept))
	w := deadPeer(c, foreign)
	w.Now = start.Add(24 * time.Hour)
	w.Memory = kept.Recalled(w.Now.Add(-c.Grace), c)
	for i := range w.Calico.Nodes {
		if w.Calico.Nodes[i].Name == "calico-x" {
			w.Calico.Nodes[i] = orphan("calico-x")
		}
	}
	for i := range w.Calico.Hosts {
		if blocks := w.Calico.Hosts[i].Blocks; empty && len(blocks) > 0 {
			blocks[0].Allocations = nil
		}
	}
	return w
}

// The Calico Node of a machine that is gone goes whoever has an address in its blocks, and the block stays with its affinity. It goes when it is empty, in
// any later process: whose it was and that the mass guard has let it pass is remembered.
func TestTheDeadPeerGoesFirst(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]Allocation{
		"a pod elsewhere":       {Handle: "h", Host: "b"},
		"a load balancer":       {Handle: "lb"},
		"a virtual machine":     {Handle: "vm", Host: "calico-x", VirtualMachine: "vms/v"},
		"a newer Calico's":      {Handle: "h", Host: "calico-x", Unknown: "alternate"},
		"without a handle":      {Host: "calico-x"},
		"released a moment ago": {Handle: "h", Host: "calico-x", ReleasedAt: start.Add(23 * time.Hour)},
		"a host that never was": {Handle: "h", Host: "somebody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			first := deadPeer(c, foreign)
			first.Calico.Hosts[1].IPCooldown = 48 * time.Hour
			p := MakePlan(first, c)
			if removedHosts(p) != "calico-x" || removes(p, netip.MustParsePrefix("10.0.0.0/26")) || !strings.Contains(p.String(), "the block and its affinity stay until") {
				t.Fatalf("want the Node removed and the block left:\n%s", p)
			}
			c.MaxUnwitnessed, c.MaxUnwitnessedPercent, c.MinOverlapPercent = 0, 0, 100
			w := withoutNode(t, c, foreign, p.Memory, false)
			w.Calico.Hosts[1].IPCooldown = 48 * time.Hour
			if p := MakePlan(w, c); len(p.Steps) > 0 || !strings.Contains(p.String(), "the block and its affinity stay until") {
				t.Errorf("while it is in use:\n%s", p)
			}
			if p := MakePlan(withoutNode(t, c, foreign, p.Memory, true), c); len(p.Steps) != 1 || !removes(p, netip.MustParsePrefix("10.0.0.0/26")) {
				t.Errorf("when it is empty:\n%s", p)
			}
		})
	}
}

// What is remembered of a machine without a Calico Node opens no gate but the mass guard, and is forgotten as soon as anything of it is back.
func TestWhatIsRememberedOfADeadPeerSparesTheLiving(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	foreign := Allocation{Handle: "h", Host: "b"}
	memory := MakePlan(deadPeer(c, foreign), c).Memory
	for name, change := range map[string]func(w *World){
		"its Kubernetes Node is listed":   func(w *World) { w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: "x", UID: "new"}) },
		"a live read finds it":            func(w *World) { setVerdicts(w, VerdictAlive) },
		"a live read fails":               func(w *World) { setVerdicts(w, VerdictUnknown) },
		"it is looked at by another name": func(w *World) { w.Kubernetes.Lookups = []Lookup{{Node: "calico-x", Verdict: VerdictGone}} },
		"a pod runs there":                func(w *World) { w.Kubernetes.RunningPods = []RunningPods{{Node: "x", Count: 1, Example: "ns/p"}} },
		"nothing is remembered":           func(w *World) { w.Memory = Memory{} },
		"it has been back for a moment":   func(w *World) { w.Memory.Absences[0].Since = w.Now },
		"it has a Calico Node again": func(w *World) {
			w.Calico.Nodes[1] = CalicoNode{Name: "calico-x", Revision: 900, OrchRefs: []OrchRef{{OrchestratorKubernetes, "x"}}}
		},
		"a Kubernetes Node has the Calico Node's name": func(w *World) {
			w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: "calico-x", UID: "other"})
		},
		"a Kubernetes Node has a name like it": func(w *World) {
			w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: "x.example.com", UID: "other"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withoutNode(t, c, foreign, memory, true)
			if p := MakePlan(w, c); len(p.Steps) != 1 {
				t.Fatalf("without a change the block goes:\n%s", p)
			}
			change(&w)
			if p := MakePlan(w, c); len(p.Steps) > 0 {
				t.Errorf("planned:\n%s", p)
			}
		})
	}
}

// Whose the block is that stayed is known for as long as it stays: also while the machine is listed again and has no Calico
// Node yet, whether its list is to be believed or not, and by a process that did not remove the Calico Node itself.
func TestTheOwnerOfABlockThatStaysIsNotForgotten(t *testing.T) {
	t.Parallel()
	c, foreign := DefaultConfig(), Allocation{Handle: "h", Host: "b"}
	removed := MakePlan(deadPeer(c, foreign), c).Memory
	looksUp := func(t *testing.T, memory Memory) {
		t.Helper()
		w := withoutNode(t, c, foreign, Memory{}, true)
		w.Memory = memory
		w.Memory = MakePlan(w, c).Memory // it is gone again, from now on
		w.Now = w.Now.Add(c.Grace)
		suspects := MakePlan(w, c).Needs.Suspects
		if len(suspects) != 1 || suspects[0].Host != "calico-x" || suspects[0].KubernetesNode != "x" {
			t.Errorf("suspects are %+v, want calico-x of Kubernetes Node x", suspects)
		}
		for _, a := range memory.Absences {
			if a.CalicoNode == "calico-x" && a.Witnessed {
				t.Error("its next departure counts as watched")
			}
		}
	}
	returned := func(synced bool) Memory {
		w := withoutNode(t, c, foreign, removed, true)
		w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: "x"})
		w.Kubernetes.Synced = synced
		p := MakePlan(w, c)
		if len(p.Steps) > 0 {
			t.Fatalf("something of a listed machine is removed:\n%s", p)
		}
		return p.Memory
	}
	looksUp(t, returned(true))
	looksUp(t, returned(false))
	looksUp(t, Memory{Absences: []Absence{{CalicoNode: "calico-x", KubernetesNode: "calico-x", Since: start}}}.WithOwners(removed.Absences, start))
}
