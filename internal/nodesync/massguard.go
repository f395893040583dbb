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

// massGate returns the message of the mass guard if it forbids removing unwitnessed nodes now, or "".
// Nodes removed within the window count as well, so that many small steps are not a way around it.
func massGate(w World, s census, m Memory, c Config) string {
	counted := map[string]bool{}
	for _, r := range m.Removals {
		counted[r.CalicoNode] = true
	}
	held := unvouched(s, w.Now)
	for _, cand := range held {
		counted[cand.subject.Host] = true
	}
	limit := c.massLimit(s.referenced)
	if len(counted) <= limit || len(held) == 0 {
		return ""
	}
	return fmt.Sprintf("%d nodes are gone whose deletion nobody watched, removals of the last %s included; the mass guard allows %d of %d; %s",
		len(counted), c.MassWindow, limit, s.referenced, howToConfirm(w, held, c))
}

// adoptionGate returns the message by which the mass guard holds back an adopted machine whose deletion nobody watched, however few there are.
func adoptionGate(w World, s census, cand candidate, c Config) string {
	if !cand.adopted || cand.vouched(w.Now) {
		return ""
	}
	return "nothing but its name shows that it was ever a Kubernetes Node, and nobody watched its deletion; " + howToConfirm(w, unvouched(s, w.Now), c)
}

// howToConfirm says what is wrong with the confirmation and how to give one.
func howToConfirm(w World, held []candidate, c Config) string {
	hash := massHash(held, w.Now, c)
	_, verdict := confirmed(w.Confirmation, hash, w.Now)
	if c.OneShot {
		return verdict + "; if " + they(held) + " gone, run apply with --confirm=" + hash
	}
	return fmt.Sprintf("%s; if %s gone, annotate ConfigMap calico-node-sync-state with %s=%s/%s",
		verdict, they(held), ConfirmAnnotation, hash, exampleEnd(w.Now))
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
	held := unvouched(*s, w.Now)
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

// vouched says that the mass guard does not count a machine: its going was watched, a person has named or confirmed it, or the guard has let it pass
// before, of which the fence is the sign (what passed lately is counted by Removals).
func (c candidate) vouched(now time.Time) bool {
	return c.named || c.absence.Witnessed || now.Before(c.absence.ConfirmedUntil) || c.node.FencedFor == c.subject.KubernetesNode
}

func unvouched(s census, now time.Time) []candidate {
	var out []candidate
	for _, cand := range s.candidates {
		if !cand.vouched(now) && !cand.node.Keep {
			out = append(out, cand)
		}
	}
	return out
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

// longestConfirmation bounds how long a confirmation may hold: it is for what a person sees now.
const longestConfirmation = 24 * time.Hour

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
	case until.Sub(now) > longestConfirmation:
		return until, fmt.Sprintf("the confirmation ends at %s, more than %s from now", until.UTC().Format(time.RFC3339), longestConfirmation)
	case !now.Before(until):
		return until, "the confirmation expired at " + until.UTC().Format(time.RFC3339)
	}
	return until, ""
}
