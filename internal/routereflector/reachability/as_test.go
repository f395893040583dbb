// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

import (
	"slices"
	"testing"
)

// star is two reflectors of one cluster ID with each other and with clients, each of an AS.
func star(clients ...uint32) *Network {
	speakers := []Speaker{{Name: "r1", ClusterID: "1.1.1.1"}, {Name: "r2", ClusterID: "1.1.1.1"}}
	for i, as := range clients {
		speakers = append(speakers, Speaker{Name: string(rune('a' + i)), AS: as})
	}
	n := New(speakers)
	n.Connect(0, 1)
	for i := range clients {
		n.Connect(0, int32(i+2))
		n.Connect(1, int32(i+2))
	}
	return n
}

// Nodes of an AS of their own reach everybody by reflectors, which are routers to them, but for others of the same AS: these find their own number in the path.
func TestAnotherASByReflectors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		clients []uint32
		want    int
	}{
		"one AS":           {[]uint32{0, 0}, 0},
		"one other":        {[]uint32{0, 65001}, 0},
		"two others":       {[]uint32{0, 65001, 65002}, 0},
		"two of one other": {[]uint32{0, 65001, 65001}, 2},
	} {
		v := star(c.clients...).Judge(nil)
		if v.UnreachablePairs != c.want {
			t.Errorf("%s: %d pairs without a path, %v, want %d", name, v.UnreachablePairs, v.Examples, c.want)
		}
	}
}

// What real BIRDs did: what three reflectors of one cluster ID have from a node of another AS they tell each other without a cluster list, so that each of them
// has three paths, and passes them all on.
func TestPathsToAnotherAS(t *testing.T) {
	t.Parallel()
	n := New([]Speaker{{Name: "r1", ClusterID: "1.1.1.1"}, {Name: "r2", ClusterID: "1.1.1.1"}, {Name: "r3", ClusterID: "1.1.1.1"}, {Name: "a"}, {Name: "b", AS: 65001}})
	for _, s := range [][2]int32{{0, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, 3}, {0, 4}, {1, 4}, {2, 4}} {
		n.Connect(s[0], s[1])
	}
	paths, _ := n.Paths(4)
	if want := []int{3, 3, 3, 9, 0}; !slices.Equal(paths, want) {
		t.Errorf("paths to the node of another AS are %v, want %v", paths, want)
	}
	paths, _ = n.Paths(3)
	if want := []int{3, 3, 3, 0, 9}; !slices.Equal(paths, want) {
		t.Errorf("paths to the client are %v, want %v", paths, want)
	}
}

// A reflector of another AS reflects nothing: what it has from the cluster the cluster refuses.
func TestAReflectorOfAnotherAS(t *testing.T) {
	t.Parallel()
	n := New([]Speaker{{Name: "r", ClusterID: "1.1.1.1", AS: 65001}, {Name: "a"}, {Name: "b"}, {Name: "c", AS: 65002}})
	for i := range int32(3) {
		n.Connect(0, i+1)
	}
	if v := n.Judge(nil); v.UnreachablePairs != 2 || v.Examples[0] != (Pair{From: "b", To: "a"}) && v.Examples[0] != (Pair{From: "a", To: "b"}) {
		t.Errorf("%+v", v)
	}
}

// Two that are parted have neither a session of the mesh nor another, and reach each other by a reflector.
func TestParted(t *testing.T) {
	t.Parallel()
	n := New([]Speaker{{Name: "a", Mesh: true}, {Name: "b", Mesh: true}, {Name: "c", Mesh: true}, {Name: "d", Mesh: true}})
	n.Part(1, 0)
	n.Part(2, 2)
	if v := n.Judge(nil); v.UnreachablePairs != 2 || n.Connected(0, 1) || !n.Connected(0, 2) || !n.Parted(0, 1) || n.Parted(2, 2) {
		t.Errorf("%+v", v)
	}
	n = star(0, 0)
	other := star(0, 0)
	other.Part(0, 2)
	if !n.Same(star(0, 0)) || n.Same(other) {
		t.Error("Same does not see who is parted")
	}
	m := New([]Speaker{{Name: "r1", ClusterID: "1.1.1.1"}, {Name: "r2", ClusterID: "1.1.1.1"}, {Name: "a"}, {Name: "b"}})
	m.Part(0, 2)
	m.Part(2, 3)
	for _, s := range [][2]int32{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}} {
		m.Connect(s[0], s[1])
	}
	if v := m.Judge(nil); v.UnreachablePairs != 0 || m.HasSession(0, 2) || m.Sessions(2) != 1 {
		t.Errorf("%+v", v)
	}
	if after := n.Surviving(m, nil); after.HasSession(0, 2) || !after.HasSession(1, 2) {
		t.Error("a session with who is parted survives")
	}
}
