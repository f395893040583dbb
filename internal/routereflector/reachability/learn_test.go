// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// A speaker learns a prefix from somebody exactly if it has a path to it.
func TestLearnedIsReached(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(2, 9).Draw(t, "speakers")
		speakers := make([]Speaker, count)
		for i := range speakers {
			speakers[i] = Speaker{Name: fmt.Sprint(i), ClusterID: rapid.SampledFrom([]string{"", "", "1.1.1.1", "2.2.2.2"}).Draw(t, "id")}
			speakers[i].Mesh = speakers[i].ClusterID == "" && rapid.Bool().Draw(t, "mesh")
		}
		speakers[0].ClusterID = ""
		n := New(speakers)
		for range rapid.IntRange(0, 14).Draw(t, "sessions") {
			n.Connect(int32(rapid.IntRange(0, count-1).Draw(t, "a")), int32(rapid.IntRange(0, count-1).Draw(t, "b")))
		}
		learned, want := map[int32]bool{}, map[int32]bool{}
		n.Learn(0, func(origin int32, mesh bool, from []int32) {
			learned[origin] = true
			if mesh != (speakers[0].Mesh && speakers[origin].Mesh) {
				t.Fatalf("%d by the mesh: %t", origin, mesh)
			}
			for _, peer := range from {
				if !n.HasSession(0, peer) {
					t.Fatalf("%d brings it without a session", peer)
				}
			}
		})
		for origin := range int32(count) {
			held, all := n.flood(origin)
			if !all {
				t.Skip("beyond counting")
			}
			if origin != 0 && n.paths(origin, 0, held) > 0 {
				want[origin] = true
			}
		}
		if diff := cmp.Diff(want, learned); diff != "" {
			t.Fatal(diff)
		}
	})
}
