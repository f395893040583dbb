// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// From flat to a hierarchy and back to flat, on a real API server: the cluster IDs stay, a new node costs one write, and in the end nothing of the
// hierarchy is left. Then the topology is deleted while it is a hierarchy.
func TestFlatToHierarchicalAndBack(t *testing.T) { //nolint:paralleltest // the kinds are cluster-scoped
	s := newStage(t, 16)
	p := s.start()
	s.create("main", "rollout: {sessionTimeout: 10m}")
	s.await("main", v1alpha1.PhaseReady)
	flat := s.ids()
	if diff := cmp.Diff(map[string]string{"1": "244.0.0.1"}, flat); diff != "" {
		t.Fatal(diff)
	}
	s.patch("main", `{"spec":{"sizing":{"maxClientsPerReflector":8}}}`)
	is := s.await("main", v1alpha1.PhaseReady).Status
	if diff := cmp.Diff(map[string]string{"1": "244.0.0.1", "2": "244.0.0.3", "spine": "244.0.0.2"}, s.ids()); diff != "" {
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
	s.expectNoQuestions()
	// The node comes while nobody is there to see it, so that no write fails because it has changed meanwhile.
	p.stop()
	s.makeNode(16)
	p = s.start()
	testkit.Eventually(t, "the new node to be in a group", func() string {
		var n corev1.Node
		if err := s.client.Get(t.Context(), client.ObjectKey{Name: nodeName(16)}, &n); err != nil {
			return err.Error()
		}
		if n.Labels[v1alpha1.ClientLabel] == "" {
			return fmt.Sprint(n.Labels)
		}
		return ""
	})
	written := slices.DeleteFunc(p.tap.written(), func(r string) bool {
		return strings.Contains(r, "/events") || strings.HasSuffix(r, "/status")
	})
	if diff := cmp.Diff([]string{"PATCH /api/v1/nodes/" + nodeName(16)}, written); diff != "" {
		t.Errorf("for a new node there was written: %s", diff)
	}
	s.patch("main", `{"spec":{"mode":"Flat"}}`)
	is = s.await("main", v1alpha1.PhaseReady).Status
	if diff := cmp.Diff(flat, s.ids()); diff != "" {
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

// ids are the cluster IDs of the reflectors, by the group that they are labeled with; the first has no label.
func (s *stage) ids() map[string]string {
	s.t.Helper()
	var nodes corev1.NodeList
	if err := s.client.List(s.t.Context(), &nodes); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range nodes.Items {
		id := n.Annotations[routereflector.ClusterIDAnnotation]
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

func (s *stage) peerNames() []string {
	s.t.Helper()
	var peers calicov3.BGPPeerList
	if err := s.client.List(s.t.Context(), &peers); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, p := range peers.Items {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// expectNoGroups looks for labels of groups.
func (s *stage) expectNoGroups() {
	s.t.Helper()
	var nodes corev1.NodeList
	if err := s.client.List(s.t.Context(), &nodes); err != nil {
		s.t.Fatal(err)
	}
	for _, n := range nodes.Items {
		for _, key := range []string{v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel} {
			if value, has := n.Labels[key]; has {
				s.t.Errorf("Node %s has the label %s=%s", n.Name, key, value)
			}
		}
	}
}
