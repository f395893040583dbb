// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// net builds small networks by name.
type net struct {
	t        *testing.T
	speakers []Speaker
	index    map[string]int32
	links    [][2]string
}

func newNet(t *testing.T) *net { t.Helper(); return &net{t: t, index: map[string]int32{}} }

func (b *net) reflector(id string, names ...string) *net {
	for _, name := range names {
		b.add(Speaker{Name: name, ClusterID: id})
	}
	return b
}

func (b *net) client(names ...string) *net {
	for _, name := range names {
		b.add(Speaker{Name: name})
	}
	return b
}

func (b *net) meshed(names ...string) *net {
	for _, name := range names {
		b.add(Speaker{Name: name, Mesh: true})
	}
	return b
}

func (b *net) add(s Speaker) {
	b.index[s.Name] = int32(len(b.speakers))
	b.speakers = append(b.speakers, s)
}

func (b *net) link(from string, to ...string) *net {
	for _, peer := range to {
		b.links = append(b.links, [2]string{from, peer})
	}
	return b
}

func (b *net) full(names ...string) *net {
	for i, a := range names {
		b.link(a, names[i+1:]...)
	}
	return b
}

func (b *net) build() *Network {
	n := New(b.speakers)
	for _, l := range b.links {
		n.Connect(b.index[l[0]], b.index[l[1]])
	}
	return n
}

// at counts the paths that one speaker has to the prefix of another.
func (b *net) at(n *Network, to, origin string) int {
	held, all := n.flood(b.index[origin])
	if !all {
		return MaxPaths
	}
	return n.paths(b.index[origin], b.index[to], held)
}

// What a hundred real BIRDs did: reflectors that share a cluster ID serve two clients exactly as often as the clients share reflectors.
func TestClientsOfOneClusterIDNeedASharedReflector(t *testing.T) {
	t.Parallel()
	for shared := range 4 {
		b := newNet(t).reflector("1.1.1.1", "r1", "r2", "r3", "r4", "r5", "r6").client("c", "d").full("r1", "r2", "r3", "r4", "r5", "r6")
		b.link("c", "r1", "r2", "r3")
		for i := range 3 {
			b.link("d", fmt.Sprintf("r%d", 4-shared+i))
		}
		if got := b.at(b.build(), "c", "d"); got != shared {
			t.Errorf("%d shared reflectors: %d paths", shared, got)
		}
	}
}

// Reflectors of one ID learn each other's clients and keep them to themselves.
func TestASecondReflectorKeepsWhatItHears(t *testing.T) {
	t.Parallel()
	b := newNet(t).reflector("1.1.1.1", "r1", "r2").client("c", "d").link("r1", "r2").link("c", "r1").link("d", "r2")
	n := b.build()
	if got := b.at(n, "r1", "d"); got != 1 {
		t.Errorf("r1 has %d paths to d", got)
	}
	if got := b.at(n, "c", "d"); got != 0 {
		t.Errorf("c has %d paths to d", got)
	}
	want := Verdict{UnreachablePairs: 2, Examples: []Pair{{"d", "c"}, {"c", "d"}}, MaxPaths: 1}
	if diff := cmp.Diff(want, n.Judge(nil)); diff != "" {
		t.Error(diff)
	}
	if got := n.Judge(func(i int32) bool { return i == b.index["c"] }); got.UnreachablePairs != 0 {
		t.Errorf("an exempt speaker counts: %+v", got)
	}
}

// What real BIRDs did: a reflector that is given another of its cluster by address takes it for a client, and refuses from it what their cluster has
// reflected. The other, which is given the first by the reverse of that BGPPeer, knows better.
func TestABlindReflectorTakesItsTwinForAClient(t *testing.T) {
	t.Parallel()
	b := newNet(t).reflector("1.1.1.1", "r1", "r2").client("c", "d").link("r1", "r2").link("c", "r1").link("d", "r2")
	n := b.build()
	n.Blind(b.index["r1"], b.index["r2"])
	n.Blind(b.index["c"], b.index["r1"]) // it passes nothing on, and so need not know
	for _, pair := range []struct {
		to, origin string
		paths      int
	}{{"r1", "d", 0}, {"r2", "c", 1}, {"c", "d", 0}, {"d", "c", 0}, {"c", "r2", 1}, {"d", "r1", 1}, {"r1", "r2", 1}} {
		if got := b.at(n, pair.to, pair.origin); got != pair.paths {
			t.Errorf("%s has %d paths to %s, want %d", pair.to, got, pair.origin, pair.paths)
		}
	}
	before := b.build()
	if kept := before.Surviving(n, nil); kept.HasSession(b.index["r1"], b.index["r2"]) || !kept.HasSession(b.index["c"], b.index["r1"]) {
		t.Error("a session that becomes a client session restarts, and no other")
	}
	if kept := n.Surviving(n, nil); b.at(kept, "r1", "d") != 0 || !kept.HasSession(b.index["r1"], b.index["r2"]) {
		t.Error("what survives knows no more than what was before")
	}
}

// Who enters the mesh has no sessions there yet, and who leaves it has none any more: neither hears of the others through it meanwhile.
func TestWhoEntersTheMeshIsNotInItYet(t *testing.T) {
	t.Parallel()
	in := newNet(t).meshed("m", "n", "x")
	out := newNet(t).meshed("m", "n").client("x")
	for name, change := range map[string]struct{ before, after *net }{"enters": {out, in}, "leaves": {in, out}} {
		kept := change.before.build().Surviving(change.after.build(), nil)
		b := change.after
		if got := b.at(kept, "x", "m") + b.at(kept, "m", "x"); got != 0 {
			t.Errorf("who %s the mesh has %d paths by it", name, got)
		}
		if b.at(kept, "m", "n") != 1 || b.at(kept, "n", "m") != 1 {
			t.Errorf("who %s the mesh ends the sessions of others", name)
		}
	}
}

// Paths gives of every speaker what a check of the pair gives.
func TestPaths(t *testing.T) {
	t.Parallel()
	b := newNet(t).reflector("1.1.1.1", "r1").reflector("2.2.2.2", "r2").client("c").meshed("m", "n").full("r1", "r2", "c").link("m", "r1")
	n := b.build()
	paths, all := n.Paths(b.index["c"])
	if diff := cmp.Diff([]int{2, 2, 0, 1 + 1, 0}, paths); diff != "" || !all {
		t.Errorf("paths to c (-want +got), all %v:\n%s", all, diff)
	}
	paths, _ = n.Paths(b.index["m"])
	if diff := cmp.Diff([]int{1, 1, 2, 0, 1}, paths); diff != "" {
		t.Errorf("paths to m (-want +got):\n%s", diff)
	}
	explosion := newNet(t).client("c")
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("r%d", i))
		explosion.reflector(fmt.Sprintf("1.1.1.%d", i), names[i])
	}
	if _, all := explosion.full(names...).link("c", names...).build().Paths(0); all {
		t.Error("ten reflectors with an ID each are said to have been counted to the end")
	}
}

// With an ID each, in a full mesh, every simple path through the reflectors is a path of its own: floor(e·(R−1)!) at a reflector.
func TestDistinctClusterIDsInAMeshExplode(t *testing.T) {
	t.Parallel()
	for reflectors, want := range map[int]int{2: 2, 3: 5, 4: 16, 5: 65, 6: 326, 7: 1957} {
		b := newNet(t).client("c")
		var names []string
		for i := range reflectors {
			name := fmt.Sprintf("r%d", i)
			names = append(names, name)
			b.reflector(fmt.Sprintf("1.1.1.%d", i), name)
		}
		b.full(names...).link("c", names...)
		if got := b.at(b.build(), "r0", "c"); got != want {
			t.Errorf("%d reflectors: %d paths, want %d", reflectors, got, want)
		}
	}
	b := newNet(t).client("c", "d")
	var names []string
	for i := range 10 {
		name := fmt.Sprintf("r%d", i)
		names = append(names, name)
		b.reflector(fmt.Sprintf("1.1.1.%d", i), name)
	}
	n := b.full(names...).link("c", names...).link("d", names...).build()
	if got := n.Judge(nil).MaxPaths; got != MaxPaths {
		t.Errorf("ten reflectors: %d paths", got)
	}
}

// Groups below spines: eight paths at a client and at a group's reflector, four at a spine, however many groups there are.
func TestHierarchyIsBounded(t *testing.T) {
	t.Parallel()
	for groups := 2; groups <= 6; groups++ {
		b := newNet(t).reflector("9.9.9.9", "s1", "s2").link("s1", "s2")
		for g := range groups {
			r1, r2, c := fmt.Sprintf("g%d-r1", g), fmt.Sprintf("g%d-r2", g), fmt.Sprintf("g%d-c", g)
			b.reflector(fmt.Sprintf("1.1.1.%d", g), r1, r2).client(c).link(r1, r2).link(c, r1, r2).link("s1", r1, r2).link("s2", r1, r2)
		}
		n := b.build()
		got := map[string]int{}
		for _, at := range []string{"g0-c", "g0-r1", "s1"} {
			got[at] = b.at(n, at, "g1-c")
		}
		// A group's reflector also hears from its twin what the spines sent the twin.
		want := map[string]int{"g0-c": 8, "g0-r1": 8, "s1": 4}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d groups: %s", groups, diff)
		}
		// A spine's own prefix has not yet the spines' ID on its list, so it comes back to the other spine through each group: not measured.
		if v := n.Judge(nil); v.UnreachablePairs != 0 || v.MaxPaths != max(8, 4*groups) {
			t.Errorf("%d groups: %+v", groups, v)
		}
	}
}

func TestMesh(t *testing.T) {
	t.Parallel()
	b := newNet(t).meshed("a", "b", "c").client("alone").reflector("1.1.1.1", "r")
	b.link("a", "r").link("b", "r")
	n := b.build()
	want := Verdict{
		UnreachablePairs: 3 + 3 + 1 + 1, // alone from and to the members; alone and r; r and c
		Examples:         nil, MaxPaths: 2,
	}
	got := n.Judge(nil)
	got.Examples = nil
	if diff := cmp.Diff(want, got); diff == "" {
		t.Error("c has no way to r, which counts twice")
	}
	want.UnreachablePairs = 3 + 3 + 2 + 2
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !n.Connected(0, 1) || n.Connected(0, 3) || n.Sessions(0) != 1 {
		t.Error("sessions")
	}
}

// The shortcut through classes must give what looking at every pair gives.
func TestClassesAgreeWithEveryPair(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		ids := []string{"", "", "", "1.1.1.1", "2.2.2.2", "3.3.3.3"}
		count := rapid.IntRange(1, 9).Draw(t, "speakers")
		speakers := make([]Speaker, count)
		for i := range speakers {
			speakers[i] = Speaker{Name: fmt.Sprint(i), ClusterID: rapid.SampledFrom(ids).Draw(t, "id")}
			speakers[i].Mesh = speakers[i].ClusterID == "" && rapid.Bool().Draw(t, "mesh")
		}
		n := New(speakers)
		for range rapid.IntRange(0, 14).Draw(t, "sessions") {
			n.Connect(int32(rapid.IntRange(0, count-1).Draw(t, "a")), int32(rapid.IntRange(0, count-1).Draw(t, "b")))
		}
		exempt := map[int32]bool{}
		for range rapid.IntRange(0, 2).Draw(t, "exemptions") {
			exempt[int32(rapid.IntRange(0, count-1).Draw(t, "exempt"))] = true
		}
		var want Verdict
		for origin := range int32(count) {
			held, all := n.flood(origin)
			if !all {
				t.Skip("beyond counting")
			}
			for to := range int32(count) {
				if to == origin || exempt[to] || exempt[origin] {
					continue
				}
				paths := n.paths(origin, to, held)
				want.MaxPaths = max(want.MaxPaths, paths)
				if paths == 0 {
					want.UnreachablePairs++
				}
			}
		}
		got := n.Judge(func(i int32) bool { return exempt[i] })
		if got.UnreachablePairs != want.UnreachablePairs {
			t.Fatalf("%d pairs, want %d", got.UnreachablePairs, want.UnreachablePairs)
		}
		if len(exempt) == 0 && got.MaxPaths != want.MaxPaths {
			t.Fatalf("%d paths, want %d", got.MaxPaths, want.MaxPaths)
		}
		for _, p := range got.Examples {
			from, to := index(t, p.From), index(t, p.To)
			held, _ := n.flood(to)
			if from == to || exempt[from] || exempt[to] || n.paths(to, from, held) != 0 {
				t.Fatalf("%v is not an example", p)
			}
		}
		if (len(got.Examples) == 0) != (got.UnreachablePairs == 0) {
			t.Fatalf("%d examples of %d", len(got.Examples), got.UnreachablePairs)
		}
	})
}

func index(t *rapid.T, name string) int32 {
	i, err := strconv.Atoi(name)
	if err != nil {
		t.Fatal(err)
	}
	return int32(i)
}

// A hundred thousand clients of three reflectors are one class.
func TestWorkFollowsClasses(t *testing.T) {
	t.Parallel()
	speakers := make([]Speaker, 100_000)
	for i := range speakers {
		speakers[i].Name = fmt.Sprint(i)
	}
	for i := range 3 {
		speakers[i].ClusterID = "1.1.1.1"
	}
	n := New(speakers)
	for i := range int32(len(speakers)) {
		for r := range int32(3) {
			n.Connect(i, r)
		}
	}
	if got := len(n.classes()); got != 4 {
		t.Errorf("%d classes", got)
	}
	if v := n.Judge(nil); v.UnreachablePairs != 0 || v.MaxPaths != 3 {
		t.Errorf("%+v", v)
	}
	if !slices.IsSorted(n.sessions[0]) {
		t.Error("sessions are not sorted")
	}
}

// Networks are the same if nothing that a verdict is made from differs: who speaks, with which ID, in the mesh or not; the sessions; and who
// is blind.
func TestSame(t *testing.T) {
	t.Parallel()
	build := func(change func(*net)) *Network {
		b := newNet(t).reflector("1.1.1.1", "r1", "r2").client("c").meshed("m").full("r1", "r2").link("c", "r1")
		if change != nil {
			change(b)
		}
		return b.build()
	}
	n := build(nil)
	if !n.Same(build(nil)) {
		t.Error("a network differs from itself")
	}
	blind := build(nil)
	blind.Blind(0, 1)
	for name, other := range map[string]*Network{
		"a session":      build(func(b *net) { b.link("c", "r2") }),
		"another ID":     build(func(b *net) { b.speakers[1].ClusterID = "2.2.2.2" }),
		"no ID":          build(func(b *net) { b.speakers[1].ClusterID = "" }),
		"a mesh":         build(func(b *net) { b.speakers[2].Mesh = true }),
		"a speaker more": build(func(b *net) { b.client("d") }),
		"another name":   build(func(b *net) { b.speakers[2].Name = "d" }),
		"blindness":      blind,
	} {
		if n.Same(other) || other.Same(n) {
			t.Errorf("%s makes no difference", name)
		}
	}
}
