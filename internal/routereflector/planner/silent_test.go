// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// A client that no reflector has a session with is named, with what they report of it; one that a single reflector has a session with is not, nor is one whose
// Node is not Ready, nor anybody while no reflector has reported.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(7, 3), nil)
	w.Sightings = nil
	if silent, heard := w.SilentClients(); len(silent) > 0 || heard(others(w)[0]) {
		t.Fatalf("without a report: %v", silent)
	}
	w = settled(w)
	if silent, heard := w.SilentClients(); len(silent) > 0 || !heard(others(w)[0]) {
		t.Fatalf("all have their sessions: %v", silent)
	}
	dark, half, gone := others(w)[0], others(w)[1], others(w)[2]
	reflectors := w.Marked()
	lose := func(w rr.World, client string, state string, by ...string) rr.World {
		n, _ := w.Node(client)
		w = apart(w, client, by...)
		for i := range w.Sightings {
			if s := &w.Sightings[i]; slices.Contains(by, s.Node) {
				s.Others = maps.Clone(s.Others)
				if s.Others == nil {
					s.Others = map[netip.Addr]string{}
				}
				s.Others[n.IPv4] = state
			}
		}
		return w
	}
	w = lose(w, dark, "Connect", reflectors...)
	w = lose(w, half, "Active", reflectors[1:]...)
	w = with(lose(w, gone, "Connect", reflectors...), func(n *rr.Node) { n.Ready = corev1.ConditionFalse }, gone)
	silent, _ := w.SilentClients()
	if len(silent) != 1 || silent[0].Node != dark || !strings.Contains(silent[0].Why, reflectors[0]+": Connect") || !strings.Contains(silent[0].Why, "port 179") || !silent[0].At.Equal(w.Now) {
		t.Errorf("%+v, want %s", silent, dark)
	}
	unset := apart(w, dark, reflectors...)
	for i := range unset.Sightings {
		unset.Sightings[i].Others = nil
	}
	if silent, _ = unset.SilentClients(); len(silent) != 1 || !strings.Contains(silent[0].Why, "confd") {
		t.Errorf("not configured: %+v", silent)
	}
	// Its reflectors are asked about it, and nobody about a client that there is not.
	if p := MakePlan(w); len(p.Witnesses) > 0 {
		t.Errorf("nobody is suspected, and asked are %v", p.Witnesses)
	}
	w.Suspects = []string{dark}
	if p := MakePlan(w); !slices.Equal(p.Witnesses, reflectors) {
		t.Errorf("asked are %v", p.Witnesses)
	}
	w.Suspects[0] = "nobody"
	if p := MakePlan(w); len(p.Witnesses) > 0 {
		t.Errorf("it is gone, and asked are %v", p.Witnesses)
	}
}

// A client that has no address family in common with its reflectors never had a session with them: it is not named, and
// counts as heard of, so that one that was named before is forgotten. With one family in common it is.
func TestAClientOfAnotherFamilyIsNotSilent(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, cluster(7, 3), nil)
	w = settled(w)
	client := others(w)[0]
	w = apart(w, client)
	six := netip.MustParseAddr("fd00::7")
	alone := with(w, func(n *rr.Node) { n.IPv4, n.IPv6 = netip.Addr{}, six }, client)
	if silent, heard := alone.SilentClients(); len(silent) > 0 || !heard(client) {
		t.Errorf("by IPv6 alone: %+v, heard of it: %v", silent, heard(client))
	}
	both := with(w, func(n *rr.Node) { n.IPv6 = six }, client)
	if silent, _ := both.SilentClients(); len(silent) != 1 || silent[0].Node != client {
		t.Errorf("by IPv4 as well: %+v", silent)
	}
}
