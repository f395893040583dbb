// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"slices"
	"testing"
	"time"
)

// A Node that is listed before the watch has been filled is there all the same: what was remembered of its absence does not count when it goes again.
func TestAListThatIsNotBelievedStillEndsAbsences(t *testing.T) {
	t.Parallel()
	long := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	w := World{Now: long.Add(time.Hour), Kubernetes: Kubernetes{Nodes: []KubernetesNode{{Name: "n1"}, {Name: "n3"}}}, Memory: Memory{Absences: []Absence{
		{CalicoNode: "n1", KubernetesNode: "n1", Since: long}, {CalicoNode: "n2", KubernetesNode: "n2", Since: long},
		{CalicoNode: "n3.example", KubernetesNode: "n3.example", Since: long},
	}}}
	c := DefaultConfig()
	c.Domains = []string{"example"}
	plan := MakePlan(w, c)
	if len(plan.Steps) > 0 || len(plan.Memory.Absences) != 1 || plan.Memory.Absences[0].CalicoNode != "n2" {
		t.Errorf("steps %v, absences %+v", plan.Steps, plan.Memory.Absences)
	}
	if len(w.Memory.Absences) != 3 {
		t.Errorf("the World was changed: %+v", w.Memory.Absences)
	}
}

// Which gates leave something alone for good; any other holds back what is to go.
func TestSettledGates(t *testing.T) {
	t.Parallel()
	var settled []Gate
	for _, g := range Gates() {
		if g.Settled() {
			settled = append(settled, g)
		}
	}
	if want := []Gate{GateNoIdentity, GateOtherOrchestrator, GateKeep, GateUserConfiguration, GateOrphanedHandle, GateOrphanedConfiguration, GatePodLeftovers}; !slices.Equal(settled, want) {
		t.Errorf("settled are %v, want %v", settled, want)
	}
}
