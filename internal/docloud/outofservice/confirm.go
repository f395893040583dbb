// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Awaiting is what waits for a person's confirmation. The zero value is nothing. Its JSON form is recorded and MUST stay readable.
type Awaiting struct {
	// Hash names all machines that are off, those that have the taint already included.
	Hash string `json:"hash,omitempty"`
	// Why says what holds them back. It names no time, so that it stays the same while nothing changes.
	Why string `json:"why,omitempty"`
	// Machines are the first of those that wait, by the names of their Nodes; Count is how many wait.
	Machines []string `json:"machines,omitempty"`
	Count    int      `json:"count,omitempty"`
}

// mostAwaiting bounds Awaiting.Machines.
const mostAwaiting = 10

// LongestConfirmation bounds how long a confirmation may hold: it is for what a person sees now.
const LongestConfirmation = 24 * time.Hour

// awaiting is what waits while the guard holds machines back.
func awaiting(held []Machine, hash string, off, allowed int) Awaiting {
	if len(held) == 0 {
		return Awaiting{}
	}
	a := Awaiting{
		Hash: hash, Count: len(held),
		Why: fmt.Sprintf("%d machines are off at a time, and %d may be out of service without a confirmation", off, allowed),
	}
	for _, m := range held[:min(len(held), mostAwaiting)] {
		a.Machines = append(a.Machines, m.Node)
	}
	return a
}

// Confirmation is the text that confirms what waits, until the given time.
func (a Awaiting) Confirmation(until time.Time) string {
	return a.Hash + "/" + until.UTC().Format(time.RFC3339)
}

// ConfirmedBy returns until when a confirmation lets pass what waits, or why it does not.
func (a Awaiting) ConfirmedBy(confirmation string, now time.Time) (until time.Time, refused string) {
	return confirmed(confirmation, a.Hash, now)
}

// hashOf names a set of machines. A confirmation that names it is good for these and no others: it changes when one comes back or one more goes. The
// machines are sorted by name.
func hashOf(off []Machine) string {
	h := sha256.New()
	for _, m := range off {
		fmt.Fprintf(h, "%q %q %d\n", m.Node, m.UID, m.Droplet)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func confirms(confirmation, hash string, now time.Time) bool {
	_, refused := confirmed(confirmation, hash, now)
	return refused == ""
}

// confirmed returns until when the confirmation lets the machines with this hash pass, or why it does not.
func confirmed(confirmation, hash string, now time.Time) (until time.Time, refused string) {
	if confirmation == "" {
		return until, "nobody has confirmed it"
	}
	named, end, _ := strings.Cut(confirmation, "/")
	until, err := time.Parse(time.RFC3339, end)
	switch {
	case err != nil:
		return until, fmt.Sprintf("the confirmation %q is not of the form HASH/TIME", confirmation)
	case named != hash:
		return until, fmt.Sprintf("the confirmation is for %q, which are other machines", named)
	case until.Sub(now) > LongestConfirmation:
		return until, fmt.Sprintf("the confirmation ends at %s, more than %s from now", until.UTC().Format(time.RFC3339), LongestConfirmation)
	case !now.Before(until):
		return until, "the confirmation expired at " + until.UTC().Format(time.RFC3339)
	}
	return until, ""
}
