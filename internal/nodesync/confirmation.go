// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Awaiting is what waits for a person's confirmation, as the plan that held it back saw it. The zero value is nothing.
//
// A plan sets it while the gate mass-guard or overlap holds back what a confirmation lets pass, and empties it otherwise. It is kept with
// the memory, so that anyone who may read that knows what to confirm, without the datastore and without the log. A confirmation names its hash.
type Awaiting struct {
	// Hash names these machines and the times of their absence.
	Hash string `json:"hash"`
	// Gate is what holds them back, and Why its reason. It names no time, so that it stays the same while nothing changes.
	Gate Gate   `json:"gate"`
	Why  string `json:"why"`
	// Machines are the first of them by name, as Calico calls them; Count is how many there are.
	Machines []string `json:"machines"`
	Count    int      `json:"count"`
	// Items are the first leftovers of pods, in words, and Count is how many there are of them; empty where it is about machines that are gone.
	Items []string `json:"items,omitempty"`
}

// mostAwaiting bounds Awaiting.Machines.
const mostAwaiting = 10

// LongestConfirmation bounds how long a confirmation may hold: it is for what a person sees now.
const LongestConfirmation = 24 * time.Hour

// awaiting is what waits while a gate holds back the machines that are not vouched for; nothing where the confirmation comes with the command.
func awaiting(held []candidate, gate Gate, why string, now time.Time, c Config) Awaiting {
	if c.OneShot || len(held) == 0 {
		return Awaiting{}
	}
	a := Awaiting{Hash: massHash(held, now, c), Gate: gate, Why: why, Count: len(held)}
	for _, cand := range held[:min(len(held), mostAwaiting)] {
		a.Machines = append(a.Machines, cand.subject.Host)
	}
	return a
}

// Confirmation is the value of ConfirmAnnotation that confirms what waits, until the given time.
func (a Awaiting) Confirmation(until time.Time) string {
	return a.Hash + "/" + until.UTC().Format(time.RFC3339)
}

// ConfirmedBy returns until when a confirmation lets pass what waits, or why it does not.
func (a Awaiting) ConfirmedBy(confirmation string, now time.Time) (until time.Time, refused string) {
	return confirmed(confirmation, a.Hash, now)
}

// howToConfirm says what is wrong with the confirmation and how to give one.
func howToConfirm(w World, held []candidate, c Config) string {
	hash := massHash(held, w.Now, c)
	_, verdict := confirmed(w.Confirmation, hash, w.Now)
	if c.OneShot {
		return verdict + "; if " + they(held) + " gone, run apply with --confirm=" + hash
	}
	return fmt.Sprintf("%s; if %s gone, run `kubectl mooring confirm nodes %s`, or annotate ConfigMap calico-node-sync-state with %s=%s/%s",
		verdict, they(held), hash, ConfirmAnnotation, hash, exampleEnd(w.Now))
}

// they are the machines that a confirmation is about, as a person must read it: all that are held back at once.
func they(held []candidate) string {
	if len(held) == 1 {
		return held[0].subject.Host + " is"
	}
	return "they are all"
}

// confirm marks the nodes that a person has confirmed. The mark is remembered, since the hash names the whole set and the set shrinks as
// it is worked off.
func confirm(w World, s *census, m *Memory, c Config) {
	held := unvouched(*s, w.Now, c)
	if len(held) == 0 {
		return
	}
	until, refused := confirmed(w.Confirmation, massHash(held, w.Now, c), w.Now)
	if refused != "" {
		return
	}
	hosts := make(map[string]bool, len(held))
	for _, cand := range held {
		hosts[cand.subject.Host] = true
	}
	for i := range s.candidates {
		if hosts[s.candidates[i].subject.Host] {
			s.candidates[i].absence.ConfirmedUntil = until
		}
	}
	for i := range m.Absences {
		if hosts[m.Absences[i].CalicoNode] {
			m.Absences[i].ConfirmedUntil = until
		}
	}
}

// massHash names a set of absences. A confirmation that names it is good for these and no others: it changes when a node comes back, even if
// it goes again, and when one more vanishes. Candidates are sorted by name. Where no memory outlives a plan, the time of absence would make
// each hash another; the revision stands for it there, and the day with it, since a host without a Node has none.
func massHash(held []candidate, now time.Time, c Config) string {
	h := sha256.New()
	if c.OneShot {
		fmt.Fprintln(h, now.UTC().Format(time.DateOnly))
	}
	for _, cand := range held {
		mark := cand.absence.Since.Unix()
		if c.OneShot {
			mark = cand.node.Revision
		}
		fmt.Fprintf(h, "%q %q %d\n", cand.subject.Host, cand.subject.KubernetesNode, mark)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// exampleEnd is a sensible end of a confirmation: one to two hours from now, a full hour so that the text does not change all the time.
func exampleEnd(now time.Time) string {
	return now.Add(2 * time.Hour).Truncate(time.Hour).UTC().Format(time.RFC3339)
}

// confirmed returns until when the confirmation lets the nodes with this hash pass, or why it does not.
func confirmed(confirmation, hash string, now time.Time) (until time.Time, refused string) {
	if confirmation == "" {
		return until, "nobody has confirmed it"
	}
	named, end, _ := strings.Cut(confirmation, "/")
	until, err := time.Parse(time.RFC3339, end)
	switch {
	case err != nil:
		return until, fmt.Sprintf("the confirmation %q is not of the form HASH/TIME, such as %s/%s",
			confirmation, hash, exampleEnd(now))
	case named != hash:
		return until, "the confirmation is for " + quote(named) + ", which are other nodes"
	case until.Sub(now) > LongestConfirmation:
		return until, fmt.Sprintf("the confirmation ends at %s, more than %s from now", until.UTC().Format(time.RFC3339), LongestConfirmation)
	case !now.Before(until):
		return until, "the confirmation expired at " + until.UTC().Format(time.RFC3339)
	}
	return until, ""
}
