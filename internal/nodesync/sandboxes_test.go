// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// heldBy is an address of pod ns/p with a container on a host; with the container in upper case it is an endpoint.
func heldBy(text string) Sandboxed {
	host, container, _ := strings.Cut(text, " ")
	h := Sandboxed{Leftover: Leftover{Host: host, Namespace: "ns", Pod: "p"}, Container: strings.ToLower(container)}
	if container != h.Container {
		h.Endpoint = EndpointRef{Namespace: "ns", Name: host + "-k8s-p-" + h.Container, Revision: 7}
		return h
	}
	h.Block = netip.MustParsePrefix("10.0.0.0/26")
	h.Reservation = Reservation{Address: h.Block.Addr(), Handle: "net." + container}
	return h
}

// What is an earlier sandbox's, of a pod that is bound to Node k1 of host h1, whose endpoints are in upper case.
func TestOldSandboxes(t *testing.T) {
	t.Parallel()
	alive := PodLookup{Namespace: "ns", Name: "p", Verdict: VerdictAlive, Node: "k1"}
	annotated := alive
	annotated.Container = "b"
	for name, test := range map[string]struct {
		pod  PodLookup
		held []string
		old  []string
	}{
		"its own":                                   {alive, []string{"h1 B", "h1 b"}, nil},
		"an earlier sandbox on the machine":         {alive, []string{"h1 B", "h1 b", "h1 a"}, []string{"h1 a"}},
		"of two earlier ones":                       {alive, []string{"h1 a", "h1 B", "h1 b", "h1 c"}, []string{"h1 a", "h1 c"}},
		"several networks of one sandbox":           {alive, []string{"h1 B", "h1 B", "h1 b", "h1 b"}, nil},
		"an earlier sandbox of several networks":    {alive, []string{"h1 B", "h1 B", "h1 b", "h1 b", "h1 a", "h1 a"}, []string{"h1 a", "h1 a"}},
		"endpoints of two sandboxes":                {alive, []string{"h1 A", "h1 B", "h1 b", "h1 a"}, nil},
		"the present sandbox has no address":        {alive, []string{"h1 B", "h1 a", "h1 c"}, nil},
		"a virtual machine's address":               {alive, []string{"h1 B", "h1 ns-vm", "h1 ns-vm"}, nil},
		"no endpoint":                               {alive, []string{"h1 a", "h1 b"}, nil},
		"no endpoint, and the pod is annotated":     {annotated, []string{"h1 a", "h1 b"}, []string{"h1 a"}},
		"annotated, and starting":                   {annotated, []string{"h1 a", "h1 c"}, nil},
		"a handle without a container":              {alive, []string{"h1 B", "h1 b", "h1 "}, nil},
		"earlier on another machine":                {alive, []string{"h1 B", "h1 b", "h2 A", "h2 a"}, []string{"h2 A", "h2 a"}},
		"on another machine and not on its own yet": {alive, []string{"h2 A", "h2 a"}, nil},
		"not bound yet":                             {PodLookup{Namespace: "ns", Name: "p", Verdict: VerdictAlive}, []string{"h1 B", "h2 A"}, nil},
		"gone":                                      {PodLookup{Namespace: "ns", Name: "p", Verdict: VerdictGone}, []string{"h1 B", "h2 A"}, nil},
		"unknown":                                   {PodLookup{Namespace: "ns", Name: "p", Verdict: VerdictUnknown, Node: "k1"}, []string{"h1 B", "h2 A"}, nil},
		"bound to a Node of two Calico Nodes":       {PodLookup{Namespace: "ns", Name: "p", Verdict: VerdictAlive, Node: "k3"}, []string{"h3 B", "h2 A"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []CalicoNode
			for host, kube := range map[string]string{"h1": "k1", "h2": "k2", "h3": "k3", "h4": "k3"} {
				nodes = append(nodes, CalicoNode{Name: host, OrchRefs: []OrchRef{{Orchestrator: OrchestratorKubernetes, NodeName: kube}}})
			}
			var held []Sandboxed
			for _, text := range test.held {
				held = append(held, heldBy(text))
			}
			var got []string
			for _, l := range OldSandboxes(nodes, held, []PodLookup{test.pod}) {
				container := strings.TrimPrefix(l.Handle, "net.")
				if l.Endpoint.Name != "" {
					container = strings.ToUpper(strings.TrimPrefix(l.Endpoint.Name, l.Host+"-k8s-p-"))
				}
				got = append(got, l.Host+" "+container)
				if here := l.Host == "h1"; here != (l.Sandbox == "b") || here && test.pod.Container == "" && l.Living.Revision != 7 {
					t.Errorf("it is recorded as %+v", l)
				}
			}
			if !slices.Equal(got, test.old) {
				t.Errorf("got %q, want %q", got, test.old)
			}
		})
	}
}

// What a live read of the pod lets go of what was found.
func TestALivingSandboxSpeaksForItself(t *testing.T) {
	t.Parallel()
	earlier := Leftover{Sandbox: "b", Living: EndpointRef{Name: "e", Revision: 7}}
	annotated := Leftover{Sandbox: "b"}
	on := func(node, container string) PodLookup {
		return PodLookup{Verdict: VerdictAlive, Node: node, Container: container}
	}
	for name, test := range map[string]struct {
		leftover Leftover
		pod      PodLookup
		want     bool
	}{
		"the pod is gone":                              {Leftover{}, PodLookup{Verdict: VerdictGone}, true},
		"it is unknown":                                {Leftover{}, PodLookup{Verdict: VerdictUnknown, Node: "k2"}, false},
		"the pod is there":                             {Leftover{}, on("k1", ""), false},
		"the pod is bound to no Node":                  {Leftover{}, on("", ""), false},
		"the pod is elsewhere":                         {Leftover{}, on("k2", ""), true},
		"an earlier sandbox":                           {earlier, on("k1", ""), true},
		"an earlier sandbox, the pod is elsewhere":     {earlier, on("k2", ""), false},
		"annotated with the sandbox":                   {annotated, on("k1", "b"), true},
		"annotated with another sandbox by now":        {annotated, on("k1", "a"), false},
		"an earlier sandbox, it is unknown":            {earlier, PodLookup{Verdict: VerdictUnknown}, false},
		"an earlier sandbox, the pod is not annotated": {annotated, on("k1", ""), false},
	} {
		if got := test.leftover.GoneFrom("k1", test.pod); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}
