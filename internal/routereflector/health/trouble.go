// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// Troubles lists the topology's reflectors in trouble, by name.
func Troubles(w *rr.World) []rr.Trouble {
	var out []rr.Trouble
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if t, troubled := trouble(w, n); troubled && n.IsReflectorOf(&w.Topology) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b rr.Trouble) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// trouble is a node's, if it is in any.
func trouble(w *rr.World, n *rr.Node) (t rr.Trouble, troubled bool) {
	t = rr.Trouble{Node: n.Name, Since: n.ReadySince}
	switch f := &w.Topology.Spec.Failure; n.Ready {
	case corev1.ConditionFalse:
		t.Word, t.Until = "NotReady", n.ReadySince.Add(f.NotReadyGrace.Duration)
	case corev1.ConditionUnknown:
		t.Word, t.Until = "unreachable", n.ReadySince.Add(f.UnreachableGrace.Duration)
	default:
		if !n.LostSince.IsZero() {
			return lostTrouble(w, n), true
		}
		return rr.Trouble{}, false
	}
	_, t.NoAnswer = w.NoAnswer[n.Name]
	t.Off = slices.ContainsFunc(n.Taints, func(taint corev1.Taint) bool { return taint.Key == rr.ShutdownTaint })
	if e, known := lostEntry(w, n); known && e.Until == nil && e.Since.Time.Before(t.Since) {
		// Its witnesses lost it before its kubelet fell silent: that is one trouble, with one grace period.
		t.Word, t.Since = rr.WordLost+" and then "+t.Word, e.Since.Time
		if until := t.Since.Add(w.Topology.Spec.Failure.UnreachableGrace.Duration); until.Before(t.Until) {
			t.Until = until
		}
	}
	observers, reflectors := observers(w, n)
	t.Alone = reflectors == 0
	for _, name := range observers {
		s, seen := w.Sighting(name)
		switch {
		case !seen || s.At.Before(t.Since):
			t.Silent = append(t.Silent, name)
		case s.Established[n.IPv4] || s.Established[n.IPv6]:
			t.Held = append(t.Held, name)
		default:
			t.Lost = append(t.Lost, name)
		}
	}
	return t, true
}

// observers lists who is queried about a reflector in trouble: reflectors that it has sessions with, and clients where
// these are too few; by name, and never more than [maxObservers]. reflectors counts the former.
func observers(w *rr.World, n *rr.Node) (names []string, reflectors int) {
	clients, roster := []string(nil), w.Roster()
	for i := range w.Nodes {
		o := &w.Nodes[i]
		switch {
		case o.Name == n.Name || !o.Lives() || !o.Speaks():
		case o.IsReflectorOf(&w.Topology):
			if o.Linked(n) {
				names = append(names, o.Name)
			}
		case o.IsClient(&w.Topology) && roster.Has(o, n.Group()) && !o.Deleting && !o.Departs():
			clients = append(clients, o.Name)
		}
	}
	slices.Sort(names)
	names = names[:min(len(names), rr.MaxObservers)]
	reflectors = len(names)
	if reflectors < rr.Quorum {
		slices.Sort(clients)
		names = append(names, clients[:min(len(clients), rr.MaxObservers-reflectors)]...)
	}
	return names, reflectors
}

// WhyLost says why a reflector is given up, "" as long as it is not: its Node has been in trouble for longer than the
// grace period, and others have no session with it, or its machine is powered off. A kubelet in trouble is not BGP in
// trouble.
func WhyLost(w *rr.World, n *rr.Node) string {
	t, troubled := trouble(w, n)
	if !troubled || !t.Gone(w.Now) {
		return ""
	}
	if t.IsLost() {
		return fmt.Sprintf("it is lost for %s (of %s), as %s report", w.Now.Sub(t.Since).Round(time.Second),
			t.Until.Sub(t.Since), strings.Join(t.Lost, ", "))
	}
	why := fmt.Sprintf("its Node has been %s for %s (of %s)", t.Word, w.Now.Sub(t.Since).Round(time.Second),
		t.Until.Sub(t.Since))
	if t.Off {
		why += ", and its machine is powered off"
	}
	if t.NoAnswer {
		why += rr.NoAnswer
	}
	return why
}

// Overdue reports that the node has been in trouble for longer than the grace period.
func Overdue(w *rr.World, n *rr.Node) bool {
	t, troubled := trouble(w, n)
	return troubled && !w.Now.Before(t.Until)
}
