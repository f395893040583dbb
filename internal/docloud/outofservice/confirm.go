// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
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

// Offer is a set of machines that a person may confirm, and its name. Its JSON form is recorded and MUST stay readable.
type Offer struct {
	Hash string `json:"hash,omitempty"`
	// Machines are digests of all machines in it, one after the other, in ascending order; none if there are more than mostOffered.
	Machines []byte `json:"machines,omitempty"`
}

// mostOffered bounds Offer.Machines to what an annotation has room for. Of a larger set each change voids the confirmation.
const mostOffered = 10_000

// digestSize is how many bytes name a machine in an Offer: two of a cluster's machines are never alike.
const digestSize = 6

// digest names a machine.
func digest(m Machine) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", m.Node, m.UID, m.Droplet))
	return string(sum[:digestSize])
}

// offer returns the set of machines that are off, of all machines. It is the one that was offered before as long as nothing has happened to that but that
// Nodes of it were deleted, as those of destroyed machines are: a person's confirmation holds until the last of them is dealt with. It is another one when a
// machine comes back or one more goes. A machine of which a new process does not know yet whether it is off has not come back.
func offer(before Offer, machines, off []Machine) Offer {
	out := map[string]bool{}
	var sorted []string
	for _, m := range off {
		d := digest(m)
		out[d], sorted = true, append(sorted, d)
	}
	slices.Sort(sorted)
	all := strings.Join(sorted, "")
	sum := sha256.Sum256([]byte(all))
	next := Offer{Hash: hex.EncodeToString(sum[:])[:12]}
	if len(off) <= mostOffered {
		next.Machines = []byte(all)
	}
	offered := before.digests()
	for d := range out {
		if !offered[d] {
			return next
		}
	}
	if _, back := before.since(machines, out); back || before.Hash == "" {
		return next
	}
	return before
}

// kept returns the offer that is to be remembered while few machines are off: the one before, as long as it is not known of a machine of it whether that is
// off, and none has come back. So it is after a new process has begun to lead, which reads the droplets one after the other.
func kept(before Offer, machines, off []Machine) Offer {
	out := map[string]bool{}
	for _, m := range off {
		out[digest(m)] = true
	}
	if unknown, back := before.since(machines, out); !unknown || back {
		return Offer{}
	}
	return before
}

// digests are the machines of an offer.
func (o Offer) digests() map[string]bool {
	all := map[string]bool{}
	for d := range slices.Chunk(o.Machines, digestSize) {
		all[string(d)] = true
	}
	return all
}

// since reports what has become of the machines of an offer that are not among those that are off: whether it is not known of one yet, and whether one is back.
func (o Offer) since(machines []Machine, out map[string]bool) (unknown, back bool) {
	offered := o.digests()
	for _, m := range machines {
		switch d := digest(m); {
		case !offered[d] || out[d]:
		case m.Ready || m.Foreign || m.State != StateUnknown:
			back = true
		default:
			unknown = true
		}
	}
	return unknown, back
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
