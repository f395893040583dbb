// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calicostatus

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// routesOf lists who brings a node the routes of whom, such as "c by mesh" or "c by a".
func routesOf(s *Simulator, node string) []string {
	names := map[string]string{}
	for name, n := range s.net.nodes {
		names[n.v4.String()] = name
		names[Destination(n.v4).String()] = name
	}
	var out []string
	for _, r := range s.net.routes(s.net.nodes[node], s.options.Clock.Now(), s.options.Up).RoutesV4 {
		by := names[r.LearnedFrom.PeerIP]
		if r.LearnedFrom.SourceType == apiv3.RouteSourceTypeNodeMesh {
			by = "mesh"
		}
		out = append(out, names[r.Destination]+" by "+by)
	}
	slices.Sort(out)
	return out
}

// Routes go over sessions that are up: the mesh's, and those of reflectors, which pass everything on to their clients; without the mesh they are the only way.
func TestRoutes(t *testing.T) {
	t.Parallel()
	s, clock := scene(t, 4)
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, routesOf(s, "d")); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	expect("at first", "a by mesh", "b by mesh", "c by mesh")
	show(t, s, 0, true)
	expect("just after a promotion", "b by mesh", "c by mesh")
	clock.Step(10 * time.Second)
	expect("later", "a by a", "b by a", "b by mesh", "c by a", "c by mesh")
	show(t, s, 1, true)
	clock.Step(10 * time.Second)
	both := []string{"a by a", "a by b", "b by a", "b by b", "c by a", "c by b"}
	expect("with two reflectors of one ID", append(slices.Clone(both), "c by mesh")...)
	s.Withhold("c", true)
	expect("with an import filter", "a by a", "a by b", "b by a", "b by b", "c by mesh")
	s.Withhold("c", false)
	s.net.mesh = false
	expect("without the mesh", both...)
	s.Cut("b", "d", true)
	expect("with one session less", "a by a", "b by a", "c by a")
	s.Cut("a", "c", true)
	// c has no session with the reflector that d has one with, and one that has the same ID passes nothing on: d lost c's route (facts 0.1).
	expect("with no reflector in common", "a by a", "b by a")
}

// With a cluster ID for each reflector, paths multiply as they do in BIRD: measured for one prefix at a far client are 4 with two reflectors, 15 with three.
func TestPathsMultiply(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]int{2: 4, 3: 15} {
		s, clock := scene(t, count+2)
		for i := range count {
			show(t, s, i, true)
			s.net.nodes[string(rune('a'+i))].id = fmt.Sprintf("244.0.0.%d", i+1)
		}
		clock.Step(time.Minute)
		s.net.mesh = false
		origin, at := string(rune('a'+count)), string(rune('a'+count+1))
		paths := 0
		for _, r := range routesOf(s, at) {
			if strings.HasPrefix(r, origin+" by ") {
				paths++
			}
		}
		if paths != want {
			t.Errorf("%d reflectors with IDs of their own bring %d paths, want %d", count, paths, want)
		}
	}
}
