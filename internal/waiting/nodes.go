// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// freshState is how long ago a calico-node-sync that runs has saved what waits at most: twice the default period of its resync, and a little.
const freshState = 12 * time.Minute

// Nodes is what one calico-node-sync holds back. Its JSON form is a contract with programs.
type Nodes struct {
	Namespace string `json:"namespace"`
	nodesync.Awaiting
	// SavedAt is when calico-node-sync has said so last.
	SavedAt time.Time `json:"savedAt"`
	// ConfirmedUntil is until when a confirmation holds that calico-node-sync has yet to act on; Refused is why one that somebody has given does not.
	ConfirmedUntil time.Time `json:"confirmedUntil,omitzero"`
	Refused        string    `json:"refused,omitempty"`
	Command        string    `json:"command"`
}

// NodesIn is what the calico-node-sync in a namespace holds back, with the confirmation that somebody has given, "" for none.
func NodesIn(namespace string, waits nodesync.Awaiting, savedAt time.Time, confirmation string, now time.Time) Nodes {
	out := Nodes{Namespace: namespace, Awaiting: waits, SavedAt: savedAt, Command: "kubectl mooring confirm nodes " + waits.Hash}
	out.ConfirmedUntil, out.Refused = confirmed(waits.ConfirmedBy, confirmation, now)
	return out
}

// Old says that it was saved so long ago that a calico-node-sync which runs would have saved another, "" if it was not.
func (n Nodes) Old(now time.Time) string {
	if now.Sub(n.SavedAt) <= freshState {
		return ""
	}
	return "it has not saved its state since; a confirmation has an effect only if calico-node-sync runs"
}

// Head is what waits, in a line.
func (n Nodes) Head() string {
	return fmt.Sprintf("%s %s held back by the gate %s of calico-node-sync", n.Counted(), are(n.Count), n.Gate)
}

// Counted is how many of what wait.
func (n Nodes) Counted() string { return prose.Plural(n.Count, n.noun()) }

// First are machines, or leftovers, by name, and how many more there are.
func (n Nodes) First() string {
	if len(n.Items) > 0 {
		return first(n.Items, n.Count)
	}
	return first(n.Machines, n.Count)
}

// noun is what waits: machines that are gone, or leftovers of pods.
func (n Nodes) noun() string {
	if len(n.Items) > 0 {
		return "leftover"
	}
	return "machine"
}

func (n Nodes) text(now time.Time, columns int) string {
	reported := fmt.Sprintf("%s ago by calico-node-sync in namespace %s", prose.Span(now.Sub(n.SavedAt)), n.Namespace)
	if old := n.Old(now); old != "" {
		reported += ": " + old
	}
	text := prose.Wrap("", "", n.Head(), columns) + field(n.noun()+"s", n.First(), columns) + field("why", n.Why, columns) + field("reported", reported, columns)
	then := "what is left of these machines, and of no others, is removed from Calico's datastore: their Calico Nodes, addresses, block affinities and endpoints. " +
		"Confirm it only if they are gone for good and this is the right cluster; kubectl mooring plan nodes shows what would go"
	if len(n.Items) > 0 {
		then = "these addresses and endpoints, and no others, are removed from Calico's datastore, each if a live read still finds no such pod. " +
			"Confirm it only if the pods are gone, and this is the right cluster"
	}
	return text + toConfirm(n.ConfirmedUntil, n.Refused, "calico-node-sync", n.Command, then, columns)
}
