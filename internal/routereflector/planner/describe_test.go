// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// Whose client a node is: of the only group, of the one that its label names, of the one that takes who has no label, or of none yet.
func TestClientOf(t *testing.T) {
	t.Parallel()
	w := cluster(4, 2)
	name := w.Topology.Name
	is := func(what string, w rr.World, n rr.Node, group string, client bool) {
		t.Helper()
		if g, c := w.ClientOf(n); g != group || c != client {
			t.Errorf("%s: group %q, client %t; want %q and %t", what, g, c, group, client)
		}
	}
	n := w.Nodes[0]
	is("flat", w, n, name, true)
	p := rr.NewcomersPeer(&w.Topology, 2)
	w.Peers = []rr.Peer{p}
	is("without a label", w, n, "2", true)
	n.Labels = map[string]string{v1alpha1.ClientLabel: "3", v1alpha1.JoinsLabel: "4"}
	is("with one", w, n, "3", true)
	n.Labels[v1alpha1.ClientLabel] = "spine"
	is("with one that is not a group of clients", w, n, "", true)
	n.Labels = map[string]string{corev1.LabelOSStable: "windows"}
	is("without BIRD", w, n, "", false)
	n = w.Nodes[1]
	w.Topology.Spec.ClientSelector = metav1.LabelSelector{MatchLabels: map[string]string{"no": "body"}}
	is("not selected", w, n, "", false)
}
