// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// Calico reads the selectors of a hierarchy's BGPPeers as the planner means them, whatever labels a node has.
func TestCalicoReadsTheSelectorsOfGroups(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	w := routereflector.World{Now: now, DatastoreReady: true, Mesh: routereflector.Mesh{On: true}}
	w.Topology.Name = "main.one"
	w.Topology.Spec.Mode = v1alpha1.ModeHierarchical
	w.Topology.Spec.ClientSelector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
	v1alpha1.SetDefaults(&w.Topology)
	for i := range byte(12) {
		w.Nodes = append(w.Nodes, routereflector.Node{
			Name: fmt.Sprint("node-", i), Ready: corev1.ConditionTrue, IPv4: netip.AddrFrom4([4]byte{10, 0, 0, i}), Labels: map[string]string{"pool": "a"},
		})
	}
	peers := planner.MakePlan(w).Peers
	if len(peers) != 7 {
		t.Fatalf("%d BGPPeers, want seven", len(peers))
	}
	cases.Check(t, func(t *rapid.T) {
		labels := map[string]string{}
		for key, values := range map[string][]string{
			"pool": {"a", "b"}, v1alpha1.ReflectorLabel: {"main.one", "main", ""}, v1alpha1.GroupLabel: {"2", "3", "spine", "1", ""},
			v1alpha1.ClientLabel: {"1", "2", "3", ""}, v1alpha1.JoinsLabel: {"1", "2", ""},
		} {
			if rapid.Bool().Draw(t, "has "+key) {
				labels[key] = rapid.SampledFrom(values).Draw(t, key)
			}
		}
		for _, p := range peers {
			for text, means := range map[string]routereflector.Matcher{p.NodeSelector: p.NodeMatcher, p.PeerSelector: p.PeerMatcher} {
				parsed, err := selector.Parse(text)
				if err != nil {
					t.Fatalf("BGPPeer %s: %q: %v", p.Name, text, err)
				}
				if got, want := parsed.Evaluate(labels), means.Evaluate(labels); got != want {
					t.Fatalf("BGPPeer %s: %q of %v is %t for Calico, and meant is %t", p.Name, text, labels, got, want)
				}
			}
		}
	})
}
