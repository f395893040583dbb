// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import "testing"

// A machine goes by its name in Kubernetes, by those in Calico's datastore, and by the last part of a key.
func TestSubjectIs(t *testing.T) {
	t.Parallel()
	of := Subject{Host: "w1.example", KubernetesNode: "w1"}
	orphan := Subject{Host: "w2.example"}
	for name, tt := range map[string]struct {
		of      Subject
		machine string
		calico  []string
		want    bool
	}{
		"its Kubernetes Node":           {of, "w1", nil, true},
		"its Calico Node":               {of, "w1.example", nil, true},
		"another's":                     {of, "w2", nil, false},
		"by its name in Calico":         {orphan, "w2", []string{"w2.example"}, true},
		"a Node by another's in Calico": {Subject{Host: "a", KubernetesNode: "b"}, "c", []string{"b"}, false},
		"a key":                         {Subject{Host: "/calico/nodes/w3"}, "w3", nil, true},
		"the datastore as a whole":      {Subject{}, "w1", nil, false},
	} {
		if got := tt.of.Is(tt.machine, tt.calico...); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Of a plan remain the machine's steps and refusals, and what holds everything back.
func TestPlanAbout(t *testing.T) {
	t.Parallel()
	a, b := Subject{Host: "a", KubernetesNode: "a"}, Subject{Host: "b", KubernetesNode: "b"}
	whole := Plan{
		Steps:     []Step{BindCluster{ClusterUID: "u"}, Fence{Of: a}, RemoveNode{Of: a}, Fence{Of: b}},
		Decisions: []Decision{{Of: a, Because: "gone"}, {Of: b, Because: "gone"}},
		Refusals:  []Refusal{{Gate: GateOverlap, Message: "too few"}, {Of: a, Gate: GateKeep, Message: "kept"}, {Of: b, Gate: GateGrace, Message: "new"}},
	}
	before := whole.String()
	const want = "a: gone\n  1. fence Calico Node a\n  2. remove Calico Node a\nleft alone: everything: too few (overlap)\nleft alone: a: kept (keep)\n"
	about := whole.About(func(of Subject) bool { return of == a })
	if got := about.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if whole.String() != before {
		t.Errorf("the plan itself has changed:\n%s", whole)
	}
	if !Held(about.Refusals) || Held(about.Refusals[1:]) {
		t.Error("what is to be kept is not held back, and what the overlap forbids is")
	}
}
