// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Wrong is what is wrong now, above all else.
type Wrong struct {
	First []Fault `json:"first"`
	// More says how much else there is, "" for nothing.
	More string `json:"more,omitempty"`
}

// Fault is one thing that needs attention.
type Fault struct {
	// Key is that of the section that has it, What the thing and the reason.
	Key  string `json:"key"`
	What string `json:"what"`
	// Since is since when at least; nil if nobody knows.
	Since *time.Time `json:"since,omitempty"`
	// Command shows or does more. Next is the next step and Who takes it: a component, or you.
	Command string `json:"command"`
	Next    string `json:"next,omitempty"`
	Who     string `json:"who"`
}

// mostWrong is how many faults stand above all else.
const mostWrong = 3

// you is who has to act where no component does.
const you = "you"

// trouble is a fault as a terminal has it.
type trouble struct {
	Fault
	// dated reports that the terminal has its age too; lines follow it there, none for the next step.
	dated bool
	lines []string
	// well reports that it is fine, and shown nonetheless.
	well bool
}

// text is the trouble for a terminal of that width.
func (t trouble) text(now time.Time, width int) string {
	mark, what := "  ! ", t.What
	if t.well {
		mark = "  - "
	}
	if t.dated {
		what = finding.Verdict{What: t.What, Since: t.Since}.Text(now)
	}
	lines := t.lines
	if t.Next != "" && lines == nil {
		lines = []string{"to do: " + t.Next}
	}
	var out strings.Builder
	out.WriteString(prose.Wrap(mark, "    ", what, width))
	for _, line := range lines {
		out.WriteString(prose.Wrap("    ", "    ", line, width))
	}
	return out.String()
}

// partOf is a part by its key: the list that it is, none for the machines, and what needs attention in it. Components are
// few, and who leads is of interest when all is well too.
func partOf(w World, lists []List, key string) (l List, out []trouble) {
	switch key {
	case "machines":
		return l, machineTroubles(w)
	case "components":
		l = componentsOf(w, matcher{})
	default:
		l = lists[slices.IndexFunc(lists, func(l List) bool { return l.Key == key })]
	}
	for _, r := range l.Rows {
		t := r.trouble
		t.Key, t.What, t.Who = l.Key, tidy(cmp.Or(t.What, r.sentence())), cmp.Or(t.Who, actor(t.Next))
		out = append(out, t)
	}
	return l, out
}

// sentence is the cells of a row in one sentence.
func (r Row) sentence() string {
	var texts []string
	for _, x := range r.Cells {
		if x.Text != "" && x.Text != "-" {
			texts = append(texts, strings.TrimSpace(x.Text+" "+x.ID))
		}
	}
	return strings.Join(texts, ", ")
}

// wrongOf is the worst of each part, whatever the filter, and then what else these parts have, in the order of the tiles.
func wrongOf(w World, health []Tile, lists []List) Wrong {
	var parts [][]Fault
	all := 0
	for _, t := range health {
		if t.State != Bad && t.State != Unread {
			continue
		}
		if part := faultsOf(w, lists, t.Key); len(part) > 0 {
			parts, all = append(parts, part), all+len(part)
		}
	}
	out := Wrong{First: []Fault{}}
	for turn := range mostWrong {
		for _, part := range parts {
			if turn < len(part) && len(out.First) < mostWrong {
				out.First = append(out.First, part[turn])
			}
		}
	}
	if more := all - len(out.First); more > 0 {
		out.More = fmt.Sprintf("and %d more, below", more)
	}
	return out
}

// faultsOf are what needs attention in a part, and then why it could not be read.
func faultsOf(w World, lists []List, key string) (out []Fault) {
	l, all := partOf(w, lists, key)
	for _, t := range all {
		if !t.well {
			out = append(out, t.Fault)
		}
	}
	if l.Problem != "" {
		unread := Fault{Key: l.Key, What: tidy(l.Title + ": " + l.unread()), Command: "kubectl mooring doctor", Who: you}
		if strings.HasPrefix(l.Problem, finding.NotKept) {
			unread.Command = "kubectl mooring doctor controllers"
		}
		out = append(out, unread)
	}
	return out
}

// unread says that a list could not be read, or is not kept up to date, and why.
func (l List) unread() string {
	if strings.HasPrefix(l.Problem, finding.NotKept) {
		return l.Problem
	}
	return "not read: " + l.Problem
}

// machineTroubles are the machines that need attention.
func machineTroubles(w World) (out []trouble) {
	rows := slices.Clone(w.Machines)
	slices.SortFunc(rows, byNeed)
	for _, r := range rows {
		if !r.Verdict.NeedsAttention() {
			continue
		}
		var f finding.Verdict
		if len(r.Findings) > 0 {
			f = r.Findings[0]
		}
		what := strings.TrimSuffix(r.Machine+" "+r.Verdict.String()+": "+f.What, ": ")
		out = append(out, trouble{dated: true, Fault: Fault{
			Key: "machines", What: tidy(what), Since: f.Since,
			Command: about("kubectl mooring explain node ", r.Machine, "kubectl mooring agreement"), Next: tidy(f.Next), Who: actor(f.Next),
		}})
	}
	return out
}

// about is a command about an object, to be copied into a shell; otherwise is that for a name that no object of Kubernetes has.
func about(command, name, otherwise string) string {
	if name == "" || len(name) > validation.DNS1123SubdomainMaxLength || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return otherwise
	}
	return command + name
}

// actor is who takes a next step: the component that its words begin with, or the person who reads it.
func actor(next string) string {
	for word, name := range map[string]string{
		"calico-node-sync ": "calico-node-sync", "calico-route-reflector-operator ": "calico-route-reflector-operator",
		"etcd-storage-operator ": "etcd-storage-operator", "the cloud controller manager ": "digitalocean-cloud-controller-manager",
	} {
		if strings.HasPrefix(next, word) {
			return name
		}
	}
	return you
}

// Names are the machines that a filter lets through, by zone as the page calls it, in the order of the squares.
func Names(w World, filter Filter) map[string][]string {
	m, out := parse(filter), map[string][]string{}
	for _, r := range w.Machines {
		zone := zoneOf(w, r)
		if m.lets(r, zone) {
			out[tidy(zone)] = append(out[tidy(zone)], tidy(r.Machine))
		}
	}
	for _, names := range out {
		slices.SortFunc(names, prose.Natural)
	}
	return out
}
