// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/assumed"
)

const (
	// shutdownTaint is what cloud controllers set on the Node of a machine that is powered off (k8s.io/cloud-provider,
	// api.TaintNodeShutdown).
	shutdownTaint = "node.cloudprovider.kubernetes.io/shutdown"
	// quorum is how many observers must have lost a reflector before it is replaced, or all where there are fewer.
	quorum = 2
	// wordLost is the word of a reflector that its witnesses have lost although its Node is Ready.
	wordLost = "lost"
	// maxObservers is how many are queried about one reflector: one more than needed, since one of them may be silent.
	maxObservers = quorum + 1
)

// Trouble is a reflector whose Node is not Ready, or that its witnesses have lost, with what is waited for before it is
// replaced.
type Trouble struct {
	Node string
	// Word is NotReady, unreachable or lost. Off reports that the cloud has marked the machine as powered off.
	Word string
	Off  bool
	// Since is when the trouble began. The reflector is not replaced before Until, so that a machine that starts again
	// comes back to its role.
	Since, Until time.Time
	// Lost, Held and Silent are the nodes that are queried about it, sorted: those that reported no session with it
	// since the trouble began, those that reported an Established one, and those that have not reported.
	Lost, Held, Silent []string
	// Alone reports that no other reflector works that it had sessions with: nobody is waited for then.
	Alone bool
	// Reported is the time of the newest report about a lost reflector.
	Reported time.Time
}

// IsLost reports that the reflector's Node is Ready, and its witnesses have lost it.
func (t *Trouble) IsLost() bool { return t.Word == wordLost }

// observers are all that are queried about the reflector.
func (t *Trouble) observers() []string { return slices.Concat(t.Lost, t.Held, t.Silent) }

// gone reports whether the reflector is given up.
func (t *Trouble) gone(now time.Time) bool {
	enough := len(t.Lost) >= min(quorum, len(t.observers()))
	if t.IsLost() { // one report alone decides nothing, and neither does any without a kubelet's silence where nobody else can be asked
		enough = len(t.Lost) >= quorum
	}
	return !now.Before(t.Until) && (t.Alone || t.Off || enough)
}

// Describe is the trouble in words: how long it may last, and whose report is missing.
func (t *Trouble) Describe(now time.Time) string {
	if t.IsLost() {
		return t.describeLost(now)
	}
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	out := fmt.Sprintf("the Node of reflector %s has been %s since %s", t.Node, t.Word, at(t.Since))
	if t.Off {
		out += ", and the cloud reports its machine as powered off"
	}
	before := ""
	if now.Before(t.Until) {
		before = " after " + at(t.Until)
	}
	switch {
	case t.gone(now):
		return out + "; it will be replaced"
	case t.Off || t.Alone:
		return out + "; it is replaced" + before
	}
	out += fmt.Sprintf(
		"; it is replaced%s once %d of %s report that they have no session with it",
		before,
		min(quorum, len(t.observers())),
		strings.Join(slices.Sorted(slices.Values(t.observers())), ", "),
	)
	if len(t.Lost) > 0 {
		out += ", as " + strings.Join(t.Lost, ", ") + " did"
	}
	return out + fmt.Sprintf(
		" (BIRD keeps a silent machine's session until %s at the latest)",
		at(t.Since.Add(assumed.HoldTime)),
	)
}

// troubles lists the topology's reflectors in trouble, by name.
func (w candidates) troubles() []Trouble {
	var out []Trouble
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if t, troubled := w.trouble(n); troubled && n.isReflectorOf(&w.Topology) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Trouble) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// trouble is a node's, if it is in any.
func (w candidates) trouble(n *Node) (t Trouble, troubled bool) {
	t = Trouble{Node: n.Name, Since: n.ReadySince}
	switch f := &w.Topology.Spec.Failure; n.Ready {
	case corev1.ConditionFalse:
		t.Word, t.Until = "NotReady", n.ReadySince.Add(f.NotReadyGrace.Duration)
	case corev1.ConditionUnknown:
		t.Word, t.Until = "unreachable", n.ReadySince.Add(f.UnreachableGrace.Duration)
	default:
		if !n.LostSince.IsZero() {
			return w.lostTrouble(n), true
		}
		return Trouble{}, false
	}
	t.Off = slices.ContainsFunc(n.Taints, func(taint corev1.Taint) bool { return taint.Key == shutdownTaint })
	observers, reflectors := w.observers(n)
	t.Alone = reflectors == 0
	for _, name := range observers {
		s, seen := w.sighting(name)
		switch {
		case !seen || s.At.Before(n.ReadySince):
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
func (w candidates) observers(n *Node) (names []string, reflectors int) {
	clients, roster := []string(nil), w.roster()
	for i := range w.Nodes {
		o := &w.Nodes[i]
		switch {
		case o.Name == n.Name || !o.lives() || !o.speaks():
		case o.isReflectorOf(&w.Topology):
			if o.linked(n) {
				names = append(names, o.Name)
			}
		case o.isClient(&w.Topology) && roster.has(o, n.group()) && !o.Deleting && !o.departs():
			clients = append(clients, o.Name)
		}
	}
	slices.Sort(names)
	names = names[:min(len(names), maxObservers)]
	reflectors = len(names)
	if reflectors < quorum {
		slices.Sort(clients)
		names = append(names, clients[:min(len(clients), maxObservers-reflectors)]...)
	}
	return names, reflectors
}

// lost says why a reflector is given up, "" as long as it is not: its Node has been in trouble for longer than the
// grace period, and others have no session with it, or its machine is powered off. A kubelet in trouble is not BGP in
// trouble.
func (w candidates) lost(n *Node) string {
	t, troubled := w.trouble(n)
	if !troubled || !t.gone(w.Now) {
		return ""
	}
	if t.IsLost() {
		return fmt.Sprintf(
			"it is lost for %s (of %s), as %s report",
			w.Now.Sub(t.Since).Round(time.Second),
			t.Until.Sub(t.Since),
			strings.Join(t.Lost, ", "),
		)
	}
	why := fmt.Sprintf(
		"its Node has been %s for %s (of %s)",
		t.Word,
		w.Now.Sub(t.Since).Round(time.Second),
		t.Until.Sub(t.Since),
	)
	if t.Off {
		why += ", and its machine is powered off"
	}
	return why
}

// overdue reports that the node has been in trouble for longer than the grace period.
func (w candidates) overdue(n *Node) bool {
	t, troubled := w.trouble(n)
	return troubled && !w.Now.Before(t.Until)
}
