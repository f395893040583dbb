// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

const (
	// Freshness is how old a sighting may be that a step relies on, unless anyone who gathers them vouches for it
	// ([Sighting.Current]). BIRD reports a session that went down at once, but a peer that fell silent looks
	// Established for up to four minutes; so a sighting shows that a session came up, never that a node lives.
	Freshness = time.Minute
	// namesInWait is how many nodes a sentence names.
	namesInWait = 3
)

// Restores reports that the promotion of a node only gives a reflector back what was written on it, and resets no session that
// carries routes: without the label or a cluster ID it reflects nothing, and with another group's label not to its
// clients. One whose ID was changed to another has its sessions, as BGPPeers select by labels alone, and reflects.
func (w *World) Restores(node string) bool {
	n, _ := w.Node(node)
	if !n.altered() {
		return false
	}
	_, labeled := n.Labels[v1alpha1.ReflectorLabel]
	return !labeled || n.ClusterID == "" ||
		n.Written.Group != n.LabeledGroup() && (n.ClusterID == n.Written.ClusterID || !w.IsFlat())
}

// CouldMeet reports whether two nodes could have a session in some family.
func (w *World) CouldMeet(a, b *Node) bool {
	return slices.ContainsFunc(AddressFamilies(),
		func(f AddressFamily) bool { return f.Up(a) && f.Up(b) && !w.Parted(f, a, b) })
}

// Names are the names of some nodes, few enough for a sentence.
func Names(nodes []Node) string {
	all := make([]string, 0, len(nodes))
	for i := range nodes {
		all = append(all, nodes[i].Name)
	}
	return Few(all)
}

// Few is a list of names that is short enough for a sentence.
func Few(all []string) string {
	text := strings.Join(all[:min(len(all), namesInWait)], ", ")
	if more := len(all) - namesInWait; more > 0 {
		return fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}

// Sessions counts the live clients that a reflector should have sessions with, and those with which it was last seen to
// have them in every family, and when; at is zero if it has not said so lately.
func (w World) Sessions(reflector string) (established, expected int, at time.Time) {
	n, exists := w.Node(reflector)
	if !exists {
		return 0, 0, time.Time{}
	}
	expected = len(w.Missing(nil, n, clientOf(&w, n)))
	lacking, at := Lacking(&w, n)
	return expected - len(lacking), expected, at
}

// Lacking lists the live clients with which a reflector was last seen to have no session in some family, and when; all
// of them, with a zero time, if it has not said so lately.
func Lacking(w *World, reflector Node) ([]Node, time.Time) {
	s, _ := w.Sighting(reflector.Name)
	return w.Missing(s.Established, reflector, clientOf(w, reflector)), s.At
}

// clientOf reports whether a node is a client of a reflector's group.
func clientOf(w *World, reflector Node) func(Node) bool {
	clients := w.Roster()
	return func(c Node) bool { return c.IsClient(&w.Topology) && clients.Has(&c, reflector.Group()) }
}

// ClientsAtRisk counts the live clients that some reflector was seen without a session with. Reflectors that have not
// spoken lately say nothing.
func (w World) ClientsAtRisk() int {
	risk := map[string]bool{}
	for _, r := range w.Working(nil) {
		if lacking, at := Lacking(&w, r); !at.IsZero() {
			for _, n := range lacking {
				risk[n.Name] = true
			}
		}
	}
	return len(risk)
}

// Approval says what somebody has to do before the plan's steps are carried out, "" if nothing: spec.rollout.mode asks
// for it.
func (w World) Approval(p Plan) string {
	rollout := w.Topology.Spec.Rollout
	switch {
	case len(p.Steps) == 0:
	case rollout.Mode == v1alpha1.RolloutDryRun:
		return "spec.rollout.mode is DryRun: the plan is shown and nothing is written; set it to Auto to carry it out"
	case rollout.Mode == v1alpha1.RolloutManual && !w.Exiting() && rollout.ApprovedPlan != p.Hash:
		return fmt.Sprintf("set spec.rollout.approvedPlan to %s to have the plan carried out", p.Hash)
	}
	return ""
}
