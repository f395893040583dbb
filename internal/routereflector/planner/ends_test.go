// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	"pgregory.net/rapid"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/model"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// What a state knows of its BGPPeers from those before it is what it would find out itself, whatever steps come between.
func TestWhatIsKnownOfBGPPeersHolds(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyHierarchy(t)
		for range rapid.IntRange(0, 6).Draw(t, "steps before") {
			if p := MakePlan(w); len(p.Steps) > 0 {
				w = After(w, p.Steps[0])
			}
		}
		at := model.Judge(&w, model.StateOf(w)).State
		steps := MakePlan(w).Steps
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			if len(steps) == 0 {
				break
			}
			step := rapid.SampledFrom(steps).Draw(t, "step") // also one that is not its turn
			if rapid.Bool().Draw(t, "the BGPPeer goes") && len(at.Peers) > 0 {
				step = rr.RemovePeer{Name: rapid.SampledFrom(at.Peers).Draw(t, "peer").Name}
			}
			at = at.After(step)
			fresh := model.State{Nodes: at.Nodes, Peers: at.Peers, Mesh: at.Mesh}
			is, want := model.Judge(&w, at), model.Judge(&w, fresh)
			for i := range want.Networks {
				if !is.Networks[i].Same(want.Networks[i]) {
					t.Fatalf("after %s the sessions of family %d differ", step, i)
				}
			}
			at = is.State
		}
	})
}

// Two BGPPeers of one name, which no cluster has, are told apart.
func TestBGPPeersOfOneName(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	all := func(name string) rr.Peer {
		return rr.Peer{Name: name, NodeMatcher: everybody{}, PeerMatcher: everybody{}}
	}
	w.Peers, w.Mesh.On = []rr.Peer{{Node: w.Nodes[0].Name, PeerIP: w.Nodes[1].IPv4}, all("")}, false
	if n := model.Judge(&w, model.StateOf(w)).Networks[0]; n.Sessions(3) != 3 {
		t.Errorf("%d sessions, want 3", n.Sessions(3))
	}
}

// everybody matches all nodes.
type everybody struct{}

func (everybody) Evaluate(map[string]string) bool { return true }
