// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Silent is a live client with which no reflector of its group has a session.
type Silent struct {
	Node string
	// At is when the last of them reported it.
	At time.Time
	// Why is what the reflectors reported, and what to look at.
	Why string
}

// SilentClients lists, by name, the clients with which none of the reflectors that have reported has a session. heard
// reports of a client whether one of its reflectors has reported at all: of others nothing is known.
func (w World) SilentClients() (silent []Silent, heard func(client string) bool) {
	clients, known := w.Roster(), map[string]bool{}
	type report struct {
		reflector Node
		Sighting
	}
	var reports []report
	for _, r := range w.Working(nil) {
		if s, seen := w.Sighting(r.Name); seen {
			reports = append(reports, report{r, s})
		}
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if !n.IsClient(&w.Topology) || n.Ready != corev1.ConditionTrue {
			continue
		}
		var states []string
		up, at := false, time.Time{}
		for _, r := range reports {
			if !clients.Has(n, r.reflector.Group()) {
				continue
			}
			if known[n.Name] = true; r.At.After(at) {
				at = r.At
			}
			if !w.CouldMeet(n, &r.reflector) {
				continue // there is no session to miss
			}
			up = up || r.Established[n.IPv4] || r.Established[n.IPv6]
			states = append(states, r.reflector.Name+": "+cmp.Or(r.Others[n.IPv4], r.Others[n.IPv6], "not configured"))
		}
		if len(states) > 0 && !up {
			silent = append(silent, Silent{n.Name, at, whySilent(n, states)})
		}
	}
	slices.SortFunc(silent, func(a, b Silent) int { return cmp.Compare(a.Node, b.Node) })
	return silent, func(client string) bool { return known[client] }
}

// whySilent is what the states of a client's sessions, by BIRD's names, point to.
func whySilent(n *Node, states []string) string {
	address := n.IPv4
	if !address.IsValid() {
		address = n.IPv6
	}
	where := fmt.Sprintf(
		"check that calico-node runs on it, and that TCP port 179 of %s can be reached from the reflectors", address)
	if !slices.ContainsFunc(states, func(s string) bool { return !strings.HasSuffix(s, ": not configured") }) {
		where = "check the logs of calico-node on the reflectors: their confd has not taken up the BGPPeer"
	}
	return fmt.Sprintf("its session as its reflectors report it is %s; %s", strings.Join(states, ", "), where)
}
