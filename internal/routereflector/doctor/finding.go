// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Severity is how much a finding matters. The values stand in JSON and MUST NOT change.
type Severity string

// The severities.
const (
	// OK is as it should be.
	OK Severity = "ok"
	// Note is worth knowing; nothing needs to be done.
	Note Severity = "note"
	// Warning works for now: it fails with the next change, or the next machine that dies.
	Warning Severity = "warning"
	// Problem loses packets now, or is about to bring routers down.
	Problem Severity = "problem"
)

func (s Severity) rank() int { return slices.Index([]Severity{Problem, Warning, Note, OK}, s) }

// The checks, in the order in which they are made. The values stand in JSON and MUST NOT change.
const (
	CheckReachability = "reachability"
	CheckPaths        = "paths"
	CheckMesh         = "mesh"
	CheckRedundancy   = "redundancy"
	CheckZones        = "zones"
	CheckOptions      = "session-options"
	CheckSelectors    = "selectors"
	CheckClusterIDs   = "cluster-ids"
	CheckOwners       = "owners"
	CheckPeers        = "bgppeers"
)

// Finding is one thing that was found out.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// What is the case, in one sentence.
	What string `json:"what"`
	// Why it matters, and what to Do about it; empty where nothing needs to be done.
	Why string `json:"why,omitempty"`
	Do  string `json:"do,omitempty"`
}

// Evidence is what is judged. The order of its lists does not matter.
type Evidence struct {
	Nodes []routereflector.Node
	Peers []routereflector.Peer
	Mesh  routereflector.Mesh
}

// examined is the evidence with what the model makes of it.
type examined struct {
	Evidence
	families []routereflector.Family
	// reflectors are the nodes with a cluster ID, by index.
	reflectors []int32
}

// Findings makes every check. The worst findings come first, then the order of the checks holds; equal evidence gives equal findings.
func Findings(e Evidence) []Finding {
	e.Nodes = slices.SortedFunc(slices.Values(e.Nodes), func(a, b routereflector.Node) int { return strings.Compare(a.Name, b.Name) })
	e.Peers = slices.SortedFunc(slices.Values(e.Peers), func(a, b routereflector.Peer) int { return strings.Compare(a.Name, b.Name) })
	x := examined{Evidence: e, families: routereflector.Families(e.Nodes, e.Peers, e.Mesh.On)}
	for i := range e.Nodes {
		if e.Nodes[i].ClusterID != "" {
			x.reflectors = append(x.reflectors, int32(i))
		}
	}
	var all []Finding
	order := map[string]int{}
	for i, c := range checks() {
		order[c.name] = i
		for _, f := range c.find(x) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(order[a.Check], order[b.Check]), cmp.Compare(a.What, b.What))
	})
	return all
}

// check looks at the evidence from one side.
type check struct {
	name string
	find func(examined) []Finding
}

func checks() []check {
	return []check{
		{CheckReachability, reachable},
		{CheckPaths, paths},
		{CheckMesh, mesh},
		{CheckRedundancy, redundancy},
		{CheckZones, zones},
		{CheckOptions, options},
		{CheckSelectors, selectors},
		{CheckClusterIDs, clusterIDs},
		{CheckOwners, owners},
		{CheckPeers, peers},
	}
}

// Worst is the worst severity among findings, OK if there are none.
func Worst(findings []Finding) Severity {
	worst := OK
	for _, f := range findings {
		if f.Severity.rank() < worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}

// Text is the findings for people: the worst first, each with what, why and what to do, and how many there are in one line at the end.
func Text(findings []Finding) string {
	var b strings.Builder
	count := map[Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		label := string(f.Severity)
		if f.Severity == Problem {
			label = "PROBLEM"
		}
		fmt.Fprintf(&b, "%-8s %s: %s\n", label, f.Check, f.What)
		if f.Why != "" {
			fmt.Fprintf(&b, "         why: %s\n", f.Why)
		}
		if f.Do != "" {
			fmt.Fprintf(&b, "         do:  %s\n", f.Do)
		}
	}
	fmt.Fprintf(&b, "%s, %s, %s, %d ok\n", plural(count[Problem], "problem"), plural(count[Warning], "warning"), plural(count[Note], "note"), count[OK])
	return b.String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// few are the first of many names, sorted, each once.
func few(all []string) string {
	const most = 5
	sorted := slices.Compact(slices.Sorted(slices.Values(all)))
	if len(sorted) <= most {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:most], ", "), len(sorted)-most)
}
