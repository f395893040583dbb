// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// BenchmarkPlan plans the first enablement, which has the most steps to check, and the steady state, at growing sizes.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{1_000, 5_000, 15_000, 100_000} {
		w := cluster(nodes, 3)
		w.Topology.Spec.Mode = v1alpha1.ModeFlat
		b.Run(fmt.Sprintf("enable/%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(Make(w).Steps) != 6 {
					b.Fatal("not the whole plan")
				}
			}
		})
		for {
			p := Make(w)
			if len(p.Steps) == 0 {
				break
			}
			w = w.After(p.Steps[0])
		}
		b.Run(fmt.Sprintf("steady/%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(Make(w).Steps) != 0 {
					b.Fatal("steps")
				}
			}
		})
	}
}
