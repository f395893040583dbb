// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calicostatus

import (
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testclock "k8s.io/utils/clock/testing"
)

// scene is a simulator without an API server: what it would see is given to it.
func scene(t *testing.T, nodes int) (*Simulator, *testclock.FakeClock) {
	t.Helper()
	clock := testclock.NewFakeClock(time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC))
	s := &Simulator{
		options: Options{Up: 10 * time.Second, Answer: time.Second, Clock: clock}, net: newNetwork(), statuses: map[string]*report{}, silent: map[string]bool{},
	}
	for i := range nodes {
		show(t, s, i, false)
	}
	for name, from := range map[string]string{"clients": "!has(rr)", "reflectors": "has(rr)"} {
		p := apiv3.NewBGPPeer()
		p.Name, p.Spec = name, apiv3.BGPPeerSpec{NodeSelector: from, PeerSelector: "has(rr)"}
		must.Do(t, s.net.setPeer(p, false, clock.Now()))
	}
	clock.Step(time.Minute)
	return s, clock
}

// show lets the simulator see a node, as a reflector or not.
func show(t *testing.T, s *Simulator, i int, reflector bool) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(string(rune('a' + i)))
	annotations := map[string]string{"projectcalico.org/IPv4Address": "10.0.0." + string(rune('1'+i)) + "/24"}
	if reflector {
		annotations["projectcalico.org/RouteReflectorClusterID"] = "244.0.0.1"
		u.SetLabels(map[string]string{"rr": ""})
	}
	u.SetAnnotations(annotations)
	must.Do(t, s.seeNode(u, false))
}

func established(s *Simulator, node string) (mesh, peer int) {
	status := s.net.status(s.net.nodes[node], s.options.Clock.Now(), s.options.Up)
	for _, p := range status.PeersV4 {
		if p.State == apiv3.BGPSessionStateEstablished && p.Type == apiv3.BGPPeerTypeNodeMesh {
			mesh++
		} else if p.State == apiv3.BGPSessionStateEstablished {
			peer++
		}
	}
	return mesh, peer
}

// A reflector leaves the mesh at once and has its other sessions a while later; the others stay in the mesh.
func TestPromotion(t *testing.T) {
	t.Parallel()
	s, clock := scene(t, 4)
	if mesh, peer := established(s, "a"); mesh != 3 || peer != 0 {
		t.Errorf("at first there are %d sessions of the mesh and %d others", mesh, peer)
	}
	show(t, s, 0, true)
	if mesh, peer := established(s, "a"); mesh != 0 || peer != 0 {
		t.Errorf("just promoted it has %d sessions of the mesh and %d others", mesh, peer)
	}
	clock.Step(10 * time.Second)
	if mesh, peer := established(s, "a"); mesh != 0 || peer != 3 {
		t.Errorf("later it has %d sessions of the mesh and %d others", mesh, peer)
	}
	if mesh, peer := established(s, "b"); mesh != 2 || peer != 1 {
		t.Errorf("a client has %d sessions of the mesh and %d others", mesh, peer)
	}
	s.Cut("a", "b", true)
	if _, peer := established(s, "a"); peer != 2 {
		t.Errorf("with one cut it has %d", peer)
	}
}

// The control of every test that finds changes made one at a time: made in a burst they are seen as such.
func TestBurstIsSeen(t *testing.T) {
	t.Parallel()
	s, clock := scene(t, 4)
	show(t, s, 0, true)
	show(t, s, 1, true)
	clock.Step(time.Minute)
	show(t, s, 2, true)
	changes := s.Changes()
	if len(changes) != 3 || changes[0].Unsettled != 0 || changes[1].Unsettled == 0 || changes[2].Unsettled != 0 {
		t.Errorf("the changes are %+v, want the second to be unsettled and the third not", changes)
	}
}

// A status is written when it is new and when it has changed, never by a silent node, and not again while nothing changes.
func TestWrittenOnChangeOnly(t *testing.T) {
	t.Parallel()
	s, clock := scene(t, 3)
	ask := func() {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"node": "a"}}}
		u.SetName("question")
		must.Do(t, s.seeStatus(u, false))
	}
	ask()
	if got := s.filled(); len(got) != 0 {
		t.Error("it is filled in at once")
	}
	clock.Step(time.Second)
	s.Silence("a", true)
	if got := s.filled(); len(got) != 0 {
		t.Error("a silent node has spoken")
	}
	s.Silence("a", false)
	got := s.filled()
	if len(got) != 1 || got[0].Status.BGP.NumberEstablishedV4 != 2 || got[0].Status.LastUpdated.IsZero() {
		t.Fatalf("it is filled in with %+v", got)
	}
	s.statuses["question"].object = got[0]
	clock.Step(time.Second)
	if got := s.filled(); len(got) != 0 {
		t.Error("it is written again although nothing has changed")
	}
	show(t, s, 1, true)
	clock.Step(time.Second)
	if got := s.filled(); len(got) != 1 || got[0].Status.BGP.NumberEstablishedV4 != 1 {
		t.Errorf("after a change it is %+v", got)
	}
}
