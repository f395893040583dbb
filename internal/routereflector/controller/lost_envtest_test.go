// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// deadBIRD takes all sessions from a node whose Node stays Ready, or gives them back, in another second than that of
// the last report.
func (s *stage) deadBIRD(node string, count int, dead bool) {
	s.t.Helper()
	testkit.Eventually(s.t, "the second of the last report to be over", func() string {
		var statuses calicov3.CalicoNodeStatusList
		if err := s.client.List(s.t.Context(), &statuses); err != nil {
			return err.Error()
		}
		for i := range statuses.Items {
			if at := statuses.Items[i].Status.LastUpdated.Time; s.now().Sub(at) < time.Second {
				return "the last is of " + at.String()
			}
		}
		return ""
	})
	for i := range count {
		if other := nodeName(i); other != node {
			s.sim.Cut(node, other, dead)
		}
	}
}

// awaitLost waits until the status shows a reflector as lost.
func (s *stage) awaitLost(victim string) *v1alpha1.RouteReflectorTopology {
	s.t.Helper()
	var topology *v1alpha1.RouteReflectorTopology
	testkit.Eventually(s.t, victim+" to be shown as lost", func() string {
		topology = s.topology("main")
		c := meta.FindStatusCondition(topology.Status.Conditions, v1alpha1.ConditionDegraded)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reasonReflectorLost ||
			!strings.Contains(c.Message, victim) {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	return topology
}

// A reflector whose BIRD is dead and whose Node is Ready is shown as lost, none of its sessions is counted as up, and
// after the grace period it is replaced by one promotion and one demotion.
func TestADeadBIRDIsShownAndReplaced(t *testing.T) {
	const nodes = 9
	s := newStage(t, nodes)
	s.start()
	s.create("main", "{mode: Flat, failure: {unreachableGrace: 10s}}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	before, changes := s.reflectors(), len(s.sim.Changes())
	victim := before[0]
	s.deadBIRD(victim, nodes, true)
	lost := s.awaitLost(victim)
	if lost.Status.ReadyReflectors != 2 || lost.Status.Phase != v1alpha1.PhaseDegraded ||
		lost.Status.Sessions.Established >= lost.Status.Sessions.Expected {
		t.Errorf(
			"%d are ready, phase %s, sessions %s",
			lost.Status.ReadyReflectors,
			lost.Status.Phase,
			lost.Status.Sessions.Summary,
		)
	}
	if at := slices.IndexFunc(
		lost.Status.Reflectors,
		func(r v1alpha1.ReflectorStatus) bool { return r.Node == victim },
	); at < 0 ||
		lost.Status.Reflectors[at].Established != 0 ||
		!lost.Status.Reflectors[at].LastObserved.Equal(&lost.Status.LostReflectors[0].Since) {
		t.Errorf("its row is %+v, lost are %+v", lost.Status.Reflectors, lost.Status.LostReflectors)
	}
	seen := s.changes(changes + 2)[changes:]
	if seen[0].What != "promote" || seen[0].Node == victim || seen[1].What != "demote" || seen[1].Node != victim ||
		len(seen) != 2 {
		t.Errorf("%+v", seen)
	}
	testkit.Eventually(t, "the victim to be shown as a silent client, and nothing left to do", func() string {
		is := s.topology("main").Status
		if len(is.SilentClients) == 1 && is.SilentClients[0].Node == victim && is.Plan == nil &&
			len(is.Reflectors) == 3 {
			return ""
		}
		return fmt.Sprintf("%+v", is)
	})
	if after := s.reflectors(); len(after) != 3 || slices.Contains(after, victim) {
		t.Errorf("the reflectors are %v", after)
	}
	if got := len(s.sim.Changes()); got != changes+2 {
		t.Errorf("there were %d changes of roles", got-changes)
	}
}

// A reflector that has its sessions again within the grace period keeps its role, even if a new leader takes over
// meanwhile.
func TestADeadBIRDReturns(t *testing.T) {
	const nodes = 9
	s := newStage(t, nodes)
	first := s.start()
	s.create("main", "{mode: Flat, failure: {unreachableGrace: 10m, promoteAfter: 10m}}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	before, changes := s.reflectors(), len(s.sim.Changes())
	s.deadBIRD(before[1], nodes, true)
	lost := s.awaitLost(before[1])
	first.stop()
	s.start()
	s.expectOnlyStanding()
	again := s.awaitLost(before[1])
	if !again.Status.LostReflectors[0].Since.Equal(&lost.Status.LostReflectors[0].Since) {
		t.Errorf("lost since %v, by the new leader since %v", lost.Status.LostReflectors, again.Status.LostReflectors)
	}
	s.deadBIRD(before[1], nodes, false)
	is := s.await("main", v1alpha1.PhaseReady).Status
	if is.ReadyReflectors != 3 || is.Sessions.Established != is.Sessions.Expected || len(is.LostReflectors) != 1 ||
		is.LostReflectors[0].Until == nil {
		t.Errorf("%d are ready, sessions %s, lost %+v", is.ReadyReflectors, is.Sessions.Summary, is.LostReflectors)
	}
	if after := s.reflectors(); !slices.Equal(after, before) || len(s.sim.Changes()) != changes {
		t.Errorf("the reflectors are %v, were %v; %+v", after, before, s.sim.Changes()[changes:])
	}
}

// The spare that the status names takes the place of a reflector whose BIRD is dead, while that keeps its role. When it
// returns, under a new leader, one of the two ceases to be a reflector later, and nothing else is written on Nodes.
func TestASpareTakesOverUntilTheLostOneReturns(t *testing.T) {
	const nodes = 9
	s := newStage(t, nodes)
	first := s.start()
	s.create("main", "{mode: Flat, failure: {unreachableGrace: 10m, promoteAfter: 1s, stabilization: 0s}}")
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	before, changes := s.reflectors(), len(s.sim.Changes())
	victim := before[0]
	var named []v1alpha1.Spare
	testkit.Eventually(t, "spares to be named", func() string {
		named = s.topology("main").Status.Spares
		return map[bool]string{false: "there are none"}[len(named) > 0]
	})
	s.deadBIRD(victim, nodes, true)
	seen := s.changes(changes + 1)[changes:]
	if len(seen) != 1 || seen[0].What != "promote" ||
		!slices.ContainsFunc(named, func(n v1alpha1.Spare) bool { return n.Node == seen[0].Node }) {
		t.Fatalf("%+v, the spares were %+v", seen, named)
	}
	is := s.awaitLost(victim).Status
	inUse := slices.DeleteFunc(is.Spares, func(n v1alpha1.Spare) bool { return n.Reflector != victim })
	if len(inUse) != 1 || inUse[0].Node != seen[0].Node || inUse[0].Since == nil || inUse[0].Until != nil {
		t.Errorf("the spares are %+v", is.Spares)
	}
	first.stop()
	s.start()
	s.deadBIRD(victim, nodes, false)
	testkit.Eventually(t, "three reflectors again", func() string {
		if is := s.topology("main").Status; len(is.Reflectors) != 3 || is.Phase != v1alpha1.PhaseReady {
			return fmt.Sprintf("%s, %+v", is.Phase, is.Reflectors)
		}
		return ""
	})
	seen = s.sim.Changes()[changes:]
	if len(seen) != 2 || seen[1].What != "demote" || seen[1].Node != victim && seen[1].Node != seen[0].Node {
		t.Errorf("%+v", seen)
	}
}
