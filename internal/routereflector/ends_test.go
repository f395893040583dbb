// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// What a state knows of its BGPPeers from those before it is what it would find out itself, whatever steps come between.
func TestWhatIsKnownOfBGPPeersHolds(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyHierarchy(t)
		for range rapid.IntRange(0, 6).Draw(t, "steps before") {
			if p := Make(w); len(p.Steps) > 0 {
				w = w.After(p.Steps[0])
			}
		}
		at := checksOf(&w).judge(w.state()).state
		steps := Make(w).Steps
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			if len(steps) == 0 {
				break
			}
			step := rapid.SampledFrom(steps).Draw(t, "step") // also one that is not its turn
			if rapid.Bool().Draw(t, "the BGPPeer goes") && len(at.peers) > 0 {
				step = Step{Kind: RemovePeer, Peer: rapid.SampledFrom(at.peers).Draw(t, "peer")}
			}
			at = at.after(step, w.Topology)
			fresh := state{nodes: at.nodes, peers: at.peers, mesh: at.mesh}
			is, want := checksOf(&w).judge(at), checksOf(&w).judge(fresh)
			for i := range want.networks {
				if !is.networks[i].Same(want.networks[i]) {
					t.Fatalf("after %s %s the sessions of family %d differ", step.Kind, step.Object, i)
				}
			}
			at = is.state
		}
	})
}

// Two BGPPeers of one name, which no cluster has, are told apart.
func TestBGPPeersOfOneName(t *testing.T) {
	t.Parallel()
	w := cluster(4, 1)
	all := func(name string) Peer { return Peer{Name: name, NodeMatcher: everybody{}, PeerMatcher: everybody{}} }
	w.Peers, w.Mesh.On = []Peer{{Node: w.Nodes[0].Name, PeerIP: w.Nodes[1].IPv4}, all("")}, false
	if n := checksOf(&w).judge(w.state()).networks[0]; n.Sessions(3) != 3 {
		t.Errorf("%d sessions, want 3", n.Sessions(3))
	}
}

// everybody matches all nodes.
type everybody struct{}

func (everybody) Evaluate(map[string]string) bool { return true }
