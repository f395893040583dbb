// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"pgregory.net/rapid"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// What is written is read back as it was meant, whatever the options.
func TestPeerSpecRoundTrip(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		want := rr.PeerSpec{
			NodeSelector: "all()", PeerSelector: "has(x)", SourceAddress: rapid.SampledFrom([]string{"UseNodeIP", "None"}).Draw(t, "source"),
			MaxRestartSeconds: rapid.Int64Range(0, 3600).Draw(t, "restart"), TTLSecurity: rapid.Int32Range(0, 254).Draw(t, "ttl"),
			Filters: rapid.SampledFrom([]string{"", "a", "a,b"}).Draw(t, "filters"),
		}
		if rapid.Bool().Draw(t, "password") {
			want.PasswordSecret, want.PasswordKey = "s", "k"
		}
		got, err := rr.PeerFrom(&calicov3.BGPPeer{Spec: want.Spec()}, func(string) (rr.Matcher, error) { return allBut("x"), nil })
		if err != nil || got.PeerSpec != want {
			t.Fatalf("%+v came back as %+v, %v", want, got.PeerSpec, err)
		}
	})
}

// The reflectors that must say whether one of them has gone are the others.
func TestWitnessesAreNotSuspects(t *testing.T) {
	t.Parallel()
	w := cluster(6, 3)
	for _, i := range []int{0, 1, 2} {
		w = After(w, rr.Step{Kind: rr.Promote, Node: w.Nodes[i].Name})
	}
	w.Nodes[0].Ready, w.Nodes[0].ReadySince = "Unknown", w.Now.Add(-90*time.Second)
	w.Mesh.On = false
	w.Peers = rr.WantedPeers(w.Topology)
	p := MakePlan(w)
	if len(p.Witnesses) != 2 || p.Witnesses[0] == w.Nodes[0].Name {
		t.Errorf("the witnesses are %v, want the two others than %s", p.Witnesses, w.Nodes[0].Name)
	}
	w.Nodes[0].Ready = "True"
	if p = MakePlan(w); len(p.Witnesses) != 0 {
		t.Errorf("nobody needs to be asked, and these are: %v", p.Witnesses)
	}
}

// Each kind of write changes the moment; a heartbeat and a new client do not.
func TestMoment(t *testing.T) {
	t.Parallel()
	w := cluster(4, 2)
	seen := map[string]bool{w.Moment(): true}
	for _, step := range []rr.Step{
		{Kind: rr.EnsurePeer, Peer: rr.WantedPeers(w.Topology)[0]}, {Kind: rr.Promote, Node: w.Nodes[0].Name}, {Kind: rr.MeshOff},
	} {
		w = After(w, step)
		if m := w.Moment(); seen[m] {
			t.Errorf("after %s it is the same moment", step.Kind)
		} else {
			seen[m] = true
		}
	}
	before := w.Moment()
	w.Nodes[1].ResourceVersion = "2"
	w.Nodes = append(w.Nodes, machine(77, 2))
	if w.Moment() != before {
		t.Error("a heartbeat or a new client is another moment")
	}
}
