// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity is how much a finding matters. The values stand in JSON and MUST NOT change.
type Severity string

// The severities.
const (
	// OK is as it should be.
	OK Severity = "ok"
	// Note is worth knowing; nothing needs to be done.
	Note Severity = "note"
	// Warning works for now, or leaves something undone.
	Warning Severity = "warning"
	// Problem keeps calico-node-sync from working, or from working safely.
	Problem Severity = "problem"
)

// rank orders severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Problem, Warning, Note, OK}, s) }

// The checks, in the order in which they are made. The values stand in JSON and MUST NOT change.
const (
	CheckSettings           = "settings"
	CheckKubernetes         = "kubernetes"
	CheckDatastore          = "datastore"
	CheckCertificates       = "certificates"
	CheckClusterInformation = "cluster-information"
	CheckCalicoNode         = "calico-node"
	CheckKubeControllers    = "kube-controllers"
	CheckNames              = "names"
	CheckDrift              = "drift"
	CheckRights             = "rights"
	CheckInstallations      = "installations"
	CheckPredecessor        = "predecessor"
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

// check looks at the evidence from one side.
type check struct {
	name string
	find func(Evidence) []Finding
}

func checks() []check {
	return []check{
		{CheckSettings, settings},
		{CheckKubernetes, kubernetes},
		{CheckDatastore, datastore},
		{CheckCertificates, certificates},
		{CheckClusterInformation, clusterInformation},
		{CheckCalicoNode, calicoNode},
		{CheckKubeControllers, kubeControllers},
		{CheckNames, names},
		{CheckDrift, drift},
		{CheckRights, rights},
		{CheckInstallations, installations},
		{CheckPredecessor, predecessor},
	}
}

// Findings makes every check. The worst findings come first, then the order of the checks holds; equal evidence gives equal findings.
func Findings(e Evidence) []Finding {
	var all []Finding
	order := map[string]int{}
	for i, c := range checks() {
		order[c.name] = i
		for _, f := range c.find(e) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(order[a.Check], order[b.Check]), cmp.Compare(a.What, b.What))
	})
	return all
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

// notMade is the finding about a check that could not be made.
func notMade[T any](a Answer[T], deed string) Finding {
	if a.Forbidden {
		return Finding{
			Severity: Note, What: "not checked, for want of the right to " + deed,
			Why: "something may be wrong there that nobody has looked at", Do: "run doctor with an account that has this right: " + a.Failure,
		}
	}
	return Finding{
		Severity: Warning, What: fmt.Sprintf("not checked: it failed to %s: %s", deed, a.Failure),
		Why: "something may be wrong there that nobody has looked at", Do: "run doctor again; if it lasts, look at what the error names",
	}
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
