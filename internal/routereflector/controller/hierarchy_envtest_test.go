// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// From flat to a hierarchy and back to flat, on a real API server: the cluster IDs stay, a new node costs one write, and in the end nothing of the
// hierarchy is left. Then the topology is deleted while it is a hierarchy.
func TestFlatToHierarchicalAndBack(t *testing.T) {
	t.Parallel()
	inBoth(t, testFlatToHierarchicalAndBack)
}

func testFlatToHierarchicalAndBack(t *testing.T, newStage stageMaker) {
	s := newStage(t, 16)
	p := s.start()
	s.create("main", "rollout: {sessionTimeout: 10m}")
	s.await("main", v1alpha1.PhaseReady)
	flat := s.groupIDs()
	if diff := cmp.Diff(map[string]string{"1": "244.0.0.1"}, flat); diff != "" {
		t.Fatal(diff)
	}
	s.patch("main", `{"spec":{"sizing":{"maxClientsPerReflector":8}}}`)
	is := s.await("main", v1alpha1.PhaseReady).Status
	if diff := cmp.Diff(map[string]string{"1": "244.0.0.1", "2": "244.0.0.3", "spine": "244.0.0.2"}, s.groupIDs()); diff != "" {
		t.Error(diff)
	}
	if is.Mode != v1alpha1.ModeHierarchical || is.Groups != 2 || is.Clients != 10 || is.DesiredReflectors != 6 || is.ReadyReflectors != 6 || is.Sessions.Summary != "20/20" {
		t.Errorf("the status is %+v", is)
	}
	for _, r := range is.Reflectors {
		if !slices.Contains([]string{"1", "2", "spine"}, r.Group) {
			t.Errorf("%s is in group %q", r.Node, r.Group)
		}
	}
	if names := s.peerNames(); len(names) != 7 {
		t.Errorf("the BGPPeers are %v, want seven", names)
	}
	if s.mesh() {
		t.Error("the mesh is on")
	}
	s.expectOneAtATime()
	s.expectOnlyStanding()
	// The node comes while nobody is there to see it, so that no write fails because it has changed meanwhile.
	p.stop()
	s.makeNode(16)
	p = s.start()
	testkit.Eventually(t, "the new node to be in a group", func() string {
		n := s.calicoNodes()[slices.IndexFunc(s.calicoNodes(), func(n libapiv3.Node) bool { return n.Name == s.calicoName(16) })]
		if n.Labels[v1alpha1.ClientLabel] == "" {
			return fmt.Sprint(n.Labels)
		}
		return ""
	})
	// No step waits for a client that somebody else's step does not concern, and the next one is judged by all sessions.
	testkit.Eventually(t, "the sessions of the new node", func() string {
		if n := s.sim.Unsettled(); n > 0 {
			return fmt.Sprint(n, " are not Established")
		}
		return ""
	})
	written := slices.DeleteFunc(p.program.Written(), func(r string) bool {
		return strings.Contains(r, "/events") || strings.HasSuffix(r, "/status")
	})
	want := "PATCH /api/v1/nodes/" + nodeName(16)
	if s.etcd != nil {
		want = "PUT /etcd/nodes/" + s.calicoName(16)
	}
	if diff := cmp.Diff([]string{want}, written); diff != "" {
		t.Errorf("for a new node there was written: %s", diff)
	}
	s.patch("main", `{"spec":{"mode":"Flat"}}`)
	is = s.await("main", v1alpha1.PhaseReady).Status
	if diff := cmp.Diff(flat, s.groupIDs()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"main-clients", "main-reflectors"}, s.peerNames()); diff != "" || is.Mode != v1alpha1.ModeFlat || is.Groups != 1 || len(is.Reflectors) != 3 {
		t.Errorf("%s; the status is %+v", diff, is)
	}
	s.expectNoGroups()
	s.patch("main", `{"spec":{"mode":"Hierarchical"}}`)
	s.await("main", v1alpha1.PhaseReady)
	if err := s.client.Delete(t.Context(), s.topology("main")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of the topology", func() string {
		err := s.client.Get(t.Context(), client.ObjectKey{Name: "main"}, &v1alpha1.RouteReflectorTopology{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprint("it is there; ", err)
	})
	if left := s.reflectors(); len(left) > 0 || len(s.peerNames()) > 0 || !s.mesh() {
		t.Errorf("left are the reflectors %v, the BGPPeers %v, mesh %v", left, s.peerNames(), s.mesh())
	}
	s.expectNoGroups()
	s.expectOneAtATime()
}

// groupIDs are the cluster IDs of the reflectors, by the group that they are labeled with; the first has no label.
func (s *stage) groupIDs() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for _, n := range s.calicoNodes() {
		id := n.Spec.BGP.RouteReflectorClusterID
		if id == "" {
			continue
		}
		group := n.Labels[v1alpha1.GroupLabel]
		if group == "" {
			group = "1"
		}
		if other, has := out[group]; has && other != id {
			s.t.Errorf("group %s has the IDs %s and %s", group, id, other)
		}
		out[group] = id
	}
	return out
}

// expectNoGroups looks for labels of groups.
func (s *stage) expectNoGroups() {
	s.t.Helper()
	for _, n := range s.calicoNodes() {
		for _, key := range []string{v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel} {
			if value, has := n.Labels[key]; has {
				s.t.Errorf("Node %s has the label %s=%s", n.Name, key, value)
			}
		}
	}
}
