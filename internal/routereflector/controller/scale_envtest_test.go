// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// To enable a cluster takes the same number of writes whatever its size. The old operator made 2,983 for 1,000 nodes, in 579 s, and went on with
// 237 full lists a minute (facts, calico-bgp-lab).
func TestWritesDoNotGrow(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, cases.Number(t, 60, 200, 1000)} {
		s := newStage(t, size)
		p := s.start()
		begun := s.now()
		s.create("main", "{mode: Flat, rollout: {sessionTimeout: 10m}}")
		s.await("main", v1alpha1.PhaseReady)
		took := s.now().Sub(begun)
		s.expectOnlyStanding()
		p.stop()
		byKind := map[string]int{}
		for _, w := range p.program.Written() {
			for _, plural := range []string{"bgppeers", "nodes", "caliconodestatuses", "bgpconfigurations", "routereflectortopologies"} {
				if strings.Contains(w, "/"+plural) {
					byKind[plural]++
				}
			}
		}
		total := len(p.program.Done())
		t.Logf("%d nodes: %d writes in %s: %v; the old operator at 1,000 nodes: 2,983 creates in 579 s", size, total, took, byKind)
		if byKind["nodes"] != 3 || byKind["bgppeers"] != 2 || byKind["bgpconfigurations"] != 1 {
			t.Errorf("%d nodes: %v, want 3 Nodes, 2 BGPPeers and 1 BGPConfiguration written", size, byKind)
		}
		// In addition to these: six questions asked and cleared away, three that stand, the finalizer, and two statuses. Who takes longer tells how far it is, and
		// asks again what has become old.
		slow := int(took/brisk) + 12*int(took/renewal)
		if total > leastWrites+slow {
			t.Errorf("%d nodes: %d writes in %s, want %d and %d for the time: %s", size, total, took, leastWrites, slow, strings.Join(p.program.Written(), "\n"))
		}
	}
}

// leastWrites is what enabling takes where all goes well at once: 21, and the three promotions, each with an entry in the record before.
const leastWrites = 27
