// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// state is what a view says of a part, the worst first.
type state int

const (
	bad state = iota
	unread
	noted // a note of the doctor: it is neither well nor in need of attention
	changing
	absent
	good
)

func (s state) String() string {
	return []string{"bad", "unread", "note", "changing", "absent", "GOOD"}[s]
}

// part is what can be at fault: a kind and a name.
type part struct{ kind, name string }

func (p part) String() string { return p.kind + " " + p.name }

// said is what a view says of a part, with the next steps that it names.
type said struct {
	state state
	text  string
	next  []string
}

// parts are what every world has.
func parts() []part {
	return []part{
		{"component", cloud}, {"component", driver}, {"component", nodeSync}, {"component", reflectors}, {"component", storage},
		{"machine", "w1"}, {"machine", "w2"}, {"machine", "w3"},
		{"service", "shop/front"}, {"claim", "shop/data"}, {"tenant", "team-a"}, {"topology", "main"},
	}
}

// aliases are other names of parts in sentences.
func aliases(p part) []string {
	switch p {
	case part{"component", driver}:
		return []string{driver, "csi-do-controller", "csi-do-node", "csi-do-controller-sa", "csi-do-node-sa"}
	case part{"component", cloud}:
		return []string{cloud, "kube-system/cloud-controller-manager", account}
	case part{"claim", "shop/data"}:
		return []string{"shop/data", "pvc-data"}
	case part{"service", "shop/front"}:
		return []string{"shop/front"}
	case part{"topology", "main"}:
		return []string{"topology main", "RouteReflectorTopology main"}
	}
	return []string{p.name}
}

// mentioned are the parts that a sentence names.
func mentioned(text string) (out []part) {
	for _, p := range parts() {
		if slices.ContainsFunc(aliases(p), func(a string) bool {
			return regexp.MustCompile(`(^|[^A-Za-z0-9.-])` + regexp.QuoteMeta(a) + `($|[^A-Za-z0-9-])`).MatchString(text)
		}) {
			out = append(out, p)
		}
	}
	return out
}

// shows are the views that show parts of a kind.
func shows(kind string) []string {
	return map[string][]string{
		"component": {"status", "doctor", "page", "version"}, "machine": {"status", "agreement", "explain", "page"},
		"service": {"status", "explain", "page"}, "claim": {"status", "explain", "volumes", "page"},
		"tenant": {"status", "doctor", "explain", "page"}, "topology": {"status", "explain", "page"},
		"snapshot": {"volumes"},
	}[kind]
}

// broken is a fault as far as laws need it: the part at fault, and those whose evidence is missing through it.
type broken struct {
	part    part
	affects []part
	// may are parts about which a view may be red as well: they are seen from their other side.
	may []part
	// blind are views that need not know, with why.
	blind map[string]string
}

// judge returns which laws the answers break, a sentence each. Without a fault every part must be good.
func judge(f broken, answers []*answer) (lies []string) {
	concerned := append([]part{f.part}, f.affects...)
	for _, p := range concerned {
		for _, view := range shows(p.kind) {
			if f.blind[view] == "" {
				lies = append(lies, greenLie(p, view, answers)...)
			}
		}
	}
	next := false
	for _, a := range answers {
		s, known := a.said[f.part]
		next = next || known && s.state < good && len(s.next) > 0
		lies = append(lies, falseRed(slices.Concat(concerned, f.may), a)...)
	}
	if f.part != (part{}) && !next {
		lies = append(lies, fmt.Sprintf("no view has a next step for %s", f.part))
	}
	return lies
}

// greenLie is the law that no view calls a part good that is not.
func greenLie(p part, view string, answers []*answer) (lies []string) {
	silent := true
	for _, a := range answers {
		if a.view != view || a.code == 1 { // an error is no promise
			silent = silent && a.view != view
			continue
		}
		s, known := a.said[p]
		if !known {
			continue
		}
		silent = false
		switch {
		case s.state >= changing: // every fault is old: what ends by itself had its time
			lies = append(lies, fmt.Sprintf("green lie: %s says that %s is %s", view, p, s.state))
		case a.code == 0 && view != "version":
			lies = append(lies, fmt.Sprintf("green lie: %s ends with 0, with %s %s", view, p, s.state))
		}
	}
	if silent && p.kind != "machine" {
		lies = append(lies, fmt.Sprintf("green lie: %s does not show %s", view, p))
	}
	return lies
}

// falseRed is the law that a view is red about nothing else.
func falseRed(concerned []part, a *answer) (lies []string) {
	for p, s := range a.said {
		if s.state <= unread && !slices.Contains(concerned, p) {
			lies = append(lies, fmt.Sprintf("false red: %s says that %s is %s: %s", a.view, p, s.state, s.text))
		}
	}
	for _, sentence := range a.red {
		ours := slices.ContainsFunc(concerned, func(p part) bool {
			return strings.HasPrefix(sentence, "tile "+tile(p.kind)+":") || slices.Contains(mentioned(sentence), p)
		})
		if !ours && len(concerned) == 1 && concerned[0] == (part{}) || !ours && strings.HasPrefix(sentence, "tile ") {
			lies = append(lies, fmt.Sprintf("false red: %s says: %s", a.view, sentence))
		}
	}
	return lies
}

// The judge finds what it is for: each law is broken once.
func TestJudgeFindsLies(t *testing.T) {
	t.Parallel()
	f := broken{part: part{"machine", "w1"}}
	a := func(view string, code int, s said, red ...string) *answer {
		return &answer{view: view, code: code, said: map[part]said{f.part: s}, red: red}
	}
	told := said{state: bad, next: []string{"kubectl describe node w1"}}
	well := []*answer{a("status", 2, told), a("agreement", 2, told), a("explain", 2, told), a("page", 2, told)}
	if lies := judge(f, well); len(lies) > 0 {
		t.Errorf("all views tell of the fault, and %q", lies)
	}
	other := a("page", 2, told)
	other.said[part{"tenant", "team-a"}] = said{state: bad}
	for want, answers := range map[string][]*answer{
		"green lie: status says that machine w1 is GOOD":     append(slices.Clone(well[1:]), a("status", 2, said{state: good})),
		"green lie: agreement ends with 0":                   append(slices.Clone(well), a("agreement", 0, told)),
		"no view has a next step for machine w1":             {a("status", 2, said{state: bad})},
		"false red: page says that tenant team-a is bad":     append(slices.Clone(well), other),
		"false red: page says: tile tenants: 1 of 1 need at": append(slices.Clone(well), a("page", 2, told, "tile tenants: 1 of 1 need at")),
	} {
		if lies := judge(f, answers); !slices.ContainsFunc(lies, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("%q is not found, but %q", want, lies)
		}
	}
}
