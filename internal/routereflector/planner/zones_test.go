// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/choose"
)

// zoned is a cluster with so many nodes in each zone, zone-0 first, and the old operator's numbers for each of them.
func zoned(sizes ...int) rr.World {
	w := cluster(0, 1)
	w.Topology.Spec.Redundancy = nil
	w.Topology.Spec.Sizing.PerZone = &v1alpha1.PerZone{Min: 1, Max: 3, RatioPermille: 5}
	for zone, size := range sizes {
		for range size {
			n := machine(len(w.Nodes), 1)
			n.Labels[zoneLabel] = fmt.Sprintf("zone-%d", zone)
			w.Nodes = append(w.Nodes, n)
		}
	}
	return w
}

// byZone counts the reflectors that a plan chooses.
func byZone(p rr.Plan) string {
	zones := map[string]int{}
	for _, r := range p.Reflectors {
		zones[r.Zone]++
	}
	return fmt.Sprint(zones)
}

// Each zone has its own number, and neither too few nodes in one zone nor too many in another change that of a third. All clients peer with all of them.
func TestNumberForEachZone(t *testing.T) {
	t.Parallel()
	for want, sizes := range map[string][]int{
		"map[zone-0:1 zone-1:1]":          {40, 200},
		"map[zone-0:2 zone-1:1]":          {201, 3},
		"map[zone-0:3 zone-1:2 zone-2:1]": {1001, 400, 1},
	} {
		w := zoned(sizes...)
		if got := byZone(MakePlan(w)); got != want {
			t.Errorf("zones of %d nodes: %s, want %s", sizes, got, want)
		}
	}
	w, _ := carryOut(t, zoned(20, 20, 20), nil)
	if p := settledPlan(w); len(p.Steps) != 0 || p.Checks.MinSessionsPerClient != 3 || p.Checks.MaxPathsPerPrefix != 3 {
		t.Errorf("clients of three zones with a reflector each: %v, %+v", p.Steps, p.Checks)
	}
	// A zone in which nobody may be a reflector lacks its own, and nobody else's number changes.
	w = zoned(40, 201, 40)
	w.Topology.Spec.Reflectors.Excluded = &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: "zone-0"}}
	if got := byZone(MakePlan(w)); got != "map[zone-1:2 zone-2:1]" {
		t.Errorf("with a zone without reflectors: %s", got)
	}
}

// A number that has become too great stays until the clients and a fifth more of them give a lesser one.
func TestNumberForEachZoneStays(t *testing.T) {
	t.Parallel()
	for clients, want := range map[int]int{401: 3, 400: 3, 334: 3, 333: 2, 168: 2, 167: 2, 166: 1} {
		w := zoned(clients)
		current := 3
		if clients < 200 {
			current = 2
		}
		for i := range current {
			w.Nodes[i].Labels = maps.Clone(w.Nodes[i].Labels)
			w.Nodes[i].Labels[v1alpha1.ReflectorLabel] = w.Topology.Name
			w.Nodes[i].ClusterID = w.Topology.Spec.ClusterID
		}
		if got := choose.PerZone(&w, *w.Topology.Spec.Sizing.PerZone, "zone-0", nil); got != want {
			t.Errorf("%d clients and %d reflectors: %d are wanted, want %d", clients, current, got, want)
		}
	}
}
