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

// wrongOf is the worst of each part, whatever the filter, and then what else these parts have, in the order of the tiles.
func wrongOf(w World, health []Tile, lists []List) Wrong {
	var parts [][]Fault
	for _, t := range health {
		if t.State != Bad && t.State != Unread {
			continue
		}
		part := machineFaults(w)
		if t.Key != "machines" {
			part = lists[slices.IndexFunc(lists, func(l List) bool { return l.Key == t.Key })].faults()
		}
		if len(part) > 0 {
			parts = append(parts, part)
		}
	}
	out, all := Wrong{First: []Fault{}}, 0
	for turn := range mostWrong {
		for _, part := range parts {
			if turn < len(part) && len(out.First) < mostWrong {
				out.First = append(out.First, part[turn])
			}
		}
	}
	for _, part := range parts {
		all += len(part)
	}
	if more := all - len(out.First); more > 0 {
		out.More = fmt.Sprintf("and %d more, below", more)
	}
	return out
}

// machineFaults are the machines that need attention.
func machineFaults(w World) (out []Fault) {
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
		out = append(out, Fault{
			Key: "machines", What: tidy(what), Since: f.Since,
			Command: about("kubectl mooring explain node ", r.Machine, "kubectl mooring agreement"), Next: tidy(f.Next), Who: actor(f.Next),
		})
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

// faults are the rows of a list that need attention, and then why it could not be read.
func (l List) faults() (out []Fault) {
	for _, r := range l.Rows {
		if !r.Ill {
			continue
		}
		f := r.fault
		f.Key, f.What, f.Who = l.Key, tidy(r.inTerminal().head), cmp.Or(f.Who, you)
		out = append(out, f)
	}
	if l.Problem != "" {
		unread := Fault{Key: l.Key, What: tidy(l.Title + ": not read: " + l.Problem), Command: "kubectl mooring doctor", Who: you}
		if strings.HasPrefix(l.Problem, finding.NotKept) {
			unread.What, unread.Command = tidy(l.Title+": "+l.Problem), "kubectl mooring doctor controllers"
		}
		out = append(out, unread)
	}
	return out
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
