// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// BenchmarkPlan plans the first enablement, which has the most steps to check, and the steady state, at growing sizes.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000, 15_000, 100_000} {
		w := cluster(nodes, 3)
		benchmarkDefault(b, cluster(nodes, 3))
		w.Topology.Spec.Mode = v1alpha1.ModeFlat
		b.Run(fmt.Sprintf("enable/%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(MakePlan(w).Steps) != 6 {
					b.Fatal("not the whole plan")
				}
			}
		})
		for {
			p := MakePlan(w)
			if len(p.Steps) == 0 {
				break
			}
			w = After(w, p.Steps[0])
		}
		b.Run(fmt.Sprintf("steady/%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(MakePlan(w).Steps) != 0 {
					b.Fatal("steps")
				}
			}
		})
	}
}

// benchmarkDefault plans for `spec: {}`: from the mesh, and when all is done.
func benchmarkDefault(b *testing.B, w rr.World) {
	b.Helper()
	for _, kind := range []string{"enable", "steady"} {
		b.Run(fmt.Sprintf("%s-default/%d", kind, len(w.Nodes)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p := MakePlan(w); len(p.Refusals) > 0 || len(p.Steps) > 0 != (kind == "enable") {
					b.Fatal("not that plan")
				}
			}
		})
		w = inTheEnd(w) // which writes labels
	}
}
