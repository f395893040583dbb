// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// tally collects why leftovers are left alone, by machine and reason, in the order in which they are added.
type tally struct {
	keys  []tallyKey
	found map[tallyKey]*tallied
}

type tallyKey struct {
	of  Subject
	why string
}

type tallied struct {
	addresses, endpoints int
	first                string
	since                time.Time // the earliest time at which a sweep found one
}

func newTally() *tally { return &tally{found: map[tallyKey]*tallied{}} }

func (t *tally) add(of Subject, l SeenLeftover, why string) {
	key := tallyKey{of, why}
	if t.found[key] == nil {
		t.found[key] = &tallied{first: l.String(), since: l.Since}
		t.keys = append(t.keys, key)
	}
	if l.Since.Before(t.found[key].since) {
		t.found[key].since = l.Since
	}
	if l.Endpoint.Name != "" {
		t.found[key].endpoints++
	} else {
		t.found[key].addresses++
	}
}

// refusals are one for each machine and reason; beyond a number of them, one for all the others.
func (t *tally) refusals(now time.Time) []Refusal {
	var out []Refusal
	var rest tallied
	for i, key := range t.keys {
		found := t.found[key]
		if i >= reportedMachines {
			rest.addresses, rest.endpoints = rest.addresses+found.addresses, rest.endpoints+found.endpoints
			continue
		}
		known := ""
		if found.since.Before(now) {
			known = ", found since " + found.since.UTC().Format(time.RFC3339)
		}
		message := fmt.Sprintf("%s, such as %s%s: %s", found, found.first, known, key.why)
		out = append(out, Refusal{Of: key.of, Gate: GatePodLeftovers, Message: message})
	}
	if more := len(t.keys) - reportedMachines; more > 0 {
		out = append(out, Refusal{Of: ofLeftovers("", ""), Gate: GatePodLeftovers, Message: fmt.Sprintf("%s in %d more groups", &rest, more)})
	}
	return out
}

func (t *tallied) String() string {
	var parts []string
	if t.addresses > 0 {
		parts = append(parts, prose.Plural(t.addresses, "address"))
	}
	if t.endpoints > 0 {
		parts = append(parts, prose.Plural(t.endpoints, "endpoint"))
	}
	return strings.Join(parts, " and ") + " of pods that are gone"
}

// mostReported bounds Memory.PodLeftovers.
const mostReported = 20

// WithReport is the plan of a command that looks once, with what the controller says of the leftovers on the same
// machines, which it has known for longer. Of machines where the command finds nothing any more nothing is said, unless
// it could not look.
func (p Plan) WithReport(reported []Refusal) Plan {
	own, blind := map[string]bool{}, false
	for _, r := range p.Refusals {
		if r.Gate == GatePodLeftovers {
			own[r.Of.Host] = true
			blind = blind || strings.HasPrefix(r.Message, LeftoversNotSought)
		}
	}
	replaced := map[string]bool{}
	var more []Refusal
	for _, r := range reported {
		if own[r.Of.Host] || blind {
			replaced[r.Of.Host] = true
			more = append(more, r)
		}
	}
	p.Refusals = slices.DeleteFunc(slices.Clone(p.Refusals), func(r Refusal) bool {
		return r.Gate == GatePodLeftovers && replaced[r.Of.Host]
	})
	p.Refusals = append(p.Refusals, more...)
	return p
}

// awaitLeftovers says what waits for a person: the batch that waits already, as long as something of it does and for a day at most, so that its hash stays
// while others come and go; else all that is held back now.
func (m *LeftoverMemory) awaitLeftovers(held []int, why string, now time.Time) {
	batch := m.LeftoverBatch.Hash
	waiting := slices.DeleteFunc(slices.Clone(held), func(i int) bool { return batch == "" || m.Leftovers[i].Batch != batch })
	if age := now.Sub(m.LeftoverBatch.At); len(waiting) == 0 || age < 0 || age >= longestBatch {
		waiting = held
		m.LeftoverBatch = LeftoverBatch{Hash: leftoverHash(m.Leftovers, held), At: now}
		for _, i := range held {
			m.Leftovers[i].Batch = m.LeftoverBatch.Hash
		}
	}
	a := Awaiting{Hash: m.LeftoverBatch.Hash, Gate: GateLeftoverGuard, Why: why, Count: len(waiting), Machines: []string{}}
	for _, i := range waiting {
		l := m.Leftovers[i]
		if len(a.Items) < mostAwaiting {
			a.Items = append(a.Items, l.String())
		}
		if len(a.Machines) < mostAwaiting && !slices.Contains(a.Machines, l.Host) {
			a.Machines = append(a.Machines, l.Host)
		}
	}
	m.AwaitingLeftovers = a
}

// LeftoverBatch is what waits for one confirmation, and since when.
type LeftoverBatch struct {
	Hash string
	At   time.Time
}

// leftoverHash names a set of leftovers, whenever they were found: after a restart it is the same.
func leftoverHash(all []SeenLeftover, which []int) string {
	h := sha256.New()
	for _, i := range which {
		l := all[i].Leftover
		fmt.Fprintf(h, "%q %q %q %s %s %q %d %q %d\n", l.Host, l.Namespace, l.Pod, l.Block, l.Address, l.Handle, l.Sequence, l.Endpoint.Name, l.Endpoint.Revision)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// confirmLeftovers notes what a person has confirmed of what waited before this plan.
func (m *LeftoverMemory) confirmLeftovers(w World) {
	batch := m.LeftoverBatch.Hash
	if batch == "" {
		return
	}
	until, refused := confirmed(w.Confirmation, batch, w.Now)
	if refused != "" {
		return
	}
	for i := range m.Leftovers {
		if m.Leftovers[i].Batch == batch {
			m.Leftovers[i].ConfirmedUntil = until
		}
	}
}
