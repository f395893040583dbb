// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// freshMachines is how long ago a component that runs has written the record at most while something waits: twice the time between two writes, and a little.
const freshMachines = 5 * time.Minute

// Machines is what digitalocean-cloud-controller-manager holds back. Its JSON form is a contract with programs.
type Machines struct {
	outofservice.Awaiting
	// SavedAt is when the component has said so last.
	SavedAt time.Time `json:"savedAt"`
	// ConfirmedUntil is until when a confirmation holds that the component has yet to act on; Refused is why one that somebody has given does not.
	ConfirmedUntil time.Time `json:"confirmedUntil,omitzero"`
	Refused        string    `json:"refused,omitempty"`
	Command        string    `json:"command"`
}

// MachinesOff is what the record holds back, with the confirmation that somebody has given, "" for none.
func MachinesOff(record outofservice.Record, confirmation string, now time.Time) Machines {
	waits := record.Awaiting
	out := Machines{Awaiting: waits, SavedAt: record.SavedAt, Command: "kubectl mooring confirm machines " + waits.Hash}
	out.ConfirmedUntil, out.Refused = confirmed(waits.ConfirmedBy, confirmation, now)
	return out
}

// Old is why nothing may act on a confirmation, "" if something does.
func (m Machines) Old(now time.Time) string {
	if now.Sub(m.SavedAt) <= freshMachines {
		return ""
	}
	return "it has not written its record since; a confirmation has an effect only if digitalocean-cloud-controller-manager runs"
}

// Head is what waits, in a line.
func (m Machines) Head() string {
	return fmt.Sprintf("%s %s off and held back by the gate mass-guard of digitalocean-cloud-controller-manager", prose.Plural(m.Count, "machine"), are(m.Count))
}

// First are machines by name, and how many more there are.
func (m Machines) First() string { return first(m.Machines, m.Count) }

func (m Machines) text(now time.Time, columns int) string {
	reported := fmt.Sprintf("%s ago by digitalocean-cloud-controller-manager", prose.Span(now.Sub(m.SavedAt)))
	if old := m.Old(now); old != "" {
		reported += ": " + old
	}
	text := prose.Wrap("", "", m.Head(), columns) + field("machines", m.First(), columns) + field("why", m.Why, columns) + field("reported", reported, columns)
	return text + toConfirm(m.ConfirmedUntil, m.Refused, "digitalocean-cloud-controller-manager", m.Command,
		"their Nodes, and no others, get the taint node.kubernetes.io/out-of-service: their Pods are deleted and their volumes detached. Confirm it only if they do not run", columns)
}
