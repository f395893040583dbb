// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// A machine that was renamed has a Node and a Calico Node under its new name. The old name goes by itself if the deletion of its Node was
// watched, and otherwise if a person names it; never without the new name's own Calico Node, which may be what the machine still goes by.
func TestARenamedMachinesOldNameGoes(t *testing.T) {
	t.Parallel()
	renamed := []string{"a=a", "a.example.com=a.example.com", "b=b"}
	for name, test := range map[string]struct {
		calico, kubernetes, seen, named, domains []string
		address                                  bool
		removed, refusal                         string
	}{
		"watched":                         {calico: renamed, kubernetes: []string{"a.example.com", "b"}, seen: []string{"a"}, removed: "a"},
		"not watched":                     {calico: renamed, kubernetes: []string{"a.example.com", "b"}, refusal: "may be the same machine"},
		"named":                           {calico: renamed, kubernetes: []string{"a.example.com", "b"}, named: []string{"a"}, removed: "a"},
		"watched, with the domain":        {calico: renamed, kubernetes: []string{"a.example.com", "b"}, seen: []string{"a"}, domains: []string{"example.com"}, removed: "a"},
		"named, with the domain":          {calico: renamed, kubernetes: []string{"a.example.com", "b"}, named: []string{"a"}, domains: []string{"example.com"}, removed: "a"},
		"from the full name to the short": {calico: renamed, kubernetes: []string{"a", "b"}, named: []string{"a.example.com"}, removed: "a.example.com"},
		"no Calico Node of its own": {
			calico: []string{"a=a", "b=b"}, kubernetes: []string{"a.example.com", "b"}, seen: []string{"a"}, named: []string{"a"}, refusal: "may be the same machine",
		},
		"two Nodes, one without a Calico Node": {
			calico: renamed, kubernetes: []string{"a.example.com", "a.example.org", "b"}, seen: []string{"a"}, refusal: "may be the same machine",
		},
		"a Node of the Calico Node's own name": {
			calico: []string{"a=z", "x=a", "b=b"}, kubernetes: []string{"a", "b"}, seen: []string{"z"}, named: []string{"a"}, refusal: "a Kubernetes Node \"a\" exists",
		},
		"a Calico Node of another name": {
			calico: []string{"a=z", "x=a.x", "b=b"}, kubernetes: []string{"a.x", "b"}, seen: []string{"z"}, named: []string{"a"}, refusal: "may be the same machine",
		},
		"a running pod has an address of it": {
			calico: renamed, kubernetes: []string{"a.example.com", "b"}, seen: []string{"a"}, address: true,
			refusal: "its name is similar to that of an existing machine, but its address 10.244.0.1 is that of running pod default/web",
		},
		"it lives":       {calico: renamed, kubernetes: []string{"a", "a.example.com", "b"}, named: []string{"a"}, refusal: "its Kubernetes Node exists"},
		"another's name": {calico: []string{"a=a", "b=b", "c=c"}, kubernetes: []string{"c"}, named: []string{"a"}, removed: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.Domains, c.Named = test.domains, test.named
			w := named(c, test.calico, test.kubernetes, test.seen)
			if test.address {
				block := netip.MustParsePrefix("10.244.0.0/26")
				w.Calico.Hosts[0].Blocks = []Block{{CIDR: block, AffineTo: "a", Allocations: []Allocation{{Address: netip.MustParseAddr("10.244.0.1"), Handle: "h", Host: "a"}}}}
				w.Kubernetes.PodAddresses = []PodAddress{{Address: netip.MustParseAddr("10.244.0.1"), Pod: "default/web"}}
			}
			p := MakePlan(w, c)
			if got := removedHosts(p); got != test.removed {
				t.Errorf("removed %q, want %q:\n%s", got, test.removed, p)
			}
			if test.refusal != "" && !strings.Contains(p.String(), test.refusal) {
				t.Errorf("%q is not said:\n%s", test.refusal, p)
			}
		})
	}
}

// That a deletion was watched is not forgotten while the new name has no Calico Node yet.
func TestAWatchedRenameIsRemembered(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	kubernetes := []string{"a.example.com", "b"}
	early := named(c, []string{"a=a", "b=b"}, kubernetes, []string{"a"})
	p := MakePlan(early, c)
	if len(p.Steps) > 0 {
		t.Fatalf("removed at once:\n%s", p)
	}
	later := named(c, []string{"a=a", "a.example.com=a.example.com", "b=b"}, kubernetes, nil)
	later.Memory = p.Memory
	if p := MakePlan(later, c); removedHosts(p) != "a" {
		t.Errorf("forgotten:\n%s", p)
	}
}

// A grace period does not run while a Kubernetes Node is listed that the machine may be.
func TestGraceBeginsWhenTheDoubtIsOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ calico, doubt string }{
		"by a domain":        {"a=a", "a.internal"},
		"by a name like it":  {"a=a", "a.example.com"},
		"without an orchRef": {"a", "a.internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.Domains, c.AdoptUnreferenced = []string{"internal"}, true
			w := named(c, []string{test.calico, "b=b"}, []string{test.doubt, "b"}, []string{"a"})
			listed := MakePlan(w, c)
			w = named(c, []string{test.calico, "b=b"}, []string{"b"}, nil)
			w.Now, w.Memory = w.Now.Add(time.Hour), listed.Memory
			gone := MakePlan(w, c)
			if len(listed.Steps)+len(gone.Steps) > 0 {
				t.Fatalf("removed within the grace period:\n%s\n%s", listed, gone)
			}
			w.Now, w.Memory = w.Now.Add(c.Grace), gone.Memory
			if p := MakePlan(w, c); removedHosts(p) != "a" {
				t.Errorf("not removed after the grace period:\n%s", p)
			}
		})
	}
}

// A renamed machine is looked up under each of its names that no other machine is known to go by.
func TestARenamedMachineIsLookedUpByAllItsNames(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Domains = []string{"internal", "example.com"}
	w := named(c, []string{"a=a", "a.internal=a.internal", "b=b"}, []string{"a.internal", "b"}, []string{"a"})
	suspects := MakePlan(w, c).Needs.Suspects
	if len(suspects) != 1 || !slices.Equal(c.NamesOf(suspects[0]), []string{"a", "a.example.com"}) {
		t.Fatalf("suspects are %+v", suspects)
	}
	w.look("a.example.com", true)
	if p := MakePlan(w, c); len(p.Steps) > 0 {
		t.Errorf("removed although it is registered again:\n%s", p)
	}
}

// That the deletion of an old name was watched proves nothing once the Calico Node was written again, not even in the round
// that notices it.
func TestAWatchedRenameEndsWithAWrite(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Grace = 0
	w := named(c, []string{"a=a", "a.example.com=a.example.com", "b=b"}, []string{"a.example.com", "b"}, []string{"a"})
	w.Sightings, w.Calico.Nodes[0].Revision = nil, 2
	if p := MakePlan(w, c); len(p.Steps) > 0 || !strings.Contains(p.String(), "may be the same machine") {
		t.Errorf("removed although calico-node has started:\n%s", p)
	}
}

// Naming a machine stands for the grace period and for a confirmation, of it alone.
func TestANamedMachineNeedsNoGracePeriod(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Named, c.MaxUnwitnessed, c.MaxUnwitnessedPercent, c.MinOverlapPercent = []string{"x"}, 0, 0, 60
	w := named(c, []string{"a=a", "x=x", "y=y"}, []string{"a"}, nil)
	w.Memory, w.Now = Memory{}, start
	p := MakePlan(w, c)
	if removedHosts(p) != "" || !strings.Contains(p.String(), "only 1 of 2 Calico Nodes") {
		t.Errorf("the overlap counts who is not named:\n%s", p)
	}
	c.MinOverlapPercent = 50
	if p = MakePlan(w, c); removedHosts(p) != "x" || len(p.Refusals) > 0 {
		t.Errorf("got\n%s", p)
	}
	w.Calico.Nodes[1].Keep = true
	if p = MakePlan(w, c); len(p.Steps) > 0 || p.Refusals[0].Gate != GateKeep {
		t.Errorf("kept:\n%s", p)
	}
}

// Of two Calico Nodes of one Kubernetes Node a person can name the one that its calico-node does not use, as the NODENAME of its pod shows.
// Nothing of it goes while a running pod has an address of it, nor unless a person has named it.
func TestASecondCalicoNodeGoesByName(t *testing.T) {
	t.Parallel()
	const full = "h.example.com"
	for _, test := range []struct {
		name, person string
		calico       []string
		kubernetes   []string
		inUse        bool
		removed      string
	}{
		{"the second one", "h", []string{"a=a", "h=" + full, full + "=" + full}, []string{"a", full}, false, "h"},
		{"nobody has named it", "", []string{"a=a", "h=" + full, full + "=" + full}, []string{"a", full}, false, ""},
		{"the one that is used", full, []string{"a=a", "h=" + full, full + "=" + full}, []string{"a", full}, false, ""},
		{"one of which none is used", "h", []string{"a=a", "h=" + full, "g=" + full}, []string{"a", full}, false, ""},
		{"it is the only one", "h", []string{"a=a", "h=" + full}, []string{"a", full}, false, ""},
		{"its name is a Node as well", "h", []string{"a=a", "h=" + full, full + "=" + full}, []string{"a", "h", full}, false, ""},
		{"its name is like that of a Node without a Calico Node", "h", []string{"a=a", "h=" + full, full + "=" + full}, []string{"a", full, "h.other"}, false, ""},
		{"a pod has its address", "h", []string{"a=a", "h=" + full, full + "=" + full}, []string{"a", full}, true, ""},
	} {
		c := DefaultConfig()
		c.OneShot = true
		if test.person != "" {
			c.Named = []string{test.person}
		}
		w := named(c, test.calico, test.kubernetes, nil)
		w.Kubernetes.CalicoPods = []CalicoPod{{Node: full, Pod: "kube-system/calico-node-x", Nodename: full}}
		address := netip.MustParseAddr("10.0.0.1")
		for i := range w.Calico.Hosts {
			if w.Calico.Hosts[i].Name == "h" && test.inUse {
				w.Calico.Hosts[i].Blocks = []Block{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), AffineTo: "h",
					Allocations: []Allocation{{Address: address, Handle: "x", Host: "h"}}}}
				w.Kubernetes.PodAddresses = []PodAddress{{Address: address, Pod: "ns/p"}}
			}
		}
		if p := MakePlan(w, c); removedHosts(p) != test.removed {
			t.Errorf("%s: got %q removed, want %q:\n%s", test.name, removedHosts(p), test.removed, p)
		}
		for i := range w.Calico.Hosts {
			w.Calico.Hosts[i].Endpoints = []Endpoint{{Namespace: "ns", Name: "e", Pod: "p", Orchestrator: OrchestratorKubernetes}}
		}
		if p := MakePlan(w, c); len(p.Steps) > 0 {
			t.Errorf("%s, with an endpoint that may be a running pod's:\n%s", test.name, p)
		}
		for verdict, removed := range map[Verdict]string{VerdictGone: test.removed, VerdictAlive: "", VerdictUnknown: ""} {
			w.Kubernetes.Pods = []PodLookup{{Namespace: "ns", Name: "p", Verdict: verdict}}
			if p := MakePlan(w, c); removedHosts(p) != removed {
				t.Errorf("%s, with an endpoint of a pod that is %s: got %q removed, want %q:\n%s", test.name, verdict, removedHosts(p), removed, p)
			}
		}
	}
}
