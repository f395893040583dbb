// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// before and after are what the page says alongside the table.
var (
	//go:embed before.txt
	before string
	//go:embed after.txt
	after string
)

// page renders the results. own is the version that the lab is made of, on which everything runs with every change.
func page(own string, results []Result) []byte {
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(b.Minor, a.Minor) })
	var b bytes.Buffer
	b.WriteString(before)
	fmt.Fprintf(&b, "\n| component | exercised | %s |", own)
	for _, r := range results {
		fmt.Fprintf(&b, " %s |", r.Version)
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(results)) + "\n")
	for _, s := range suites() {
		fmt.Fprintf(&b, "| %s | %s | all |", s.component, s.what)
		for _, r := range results {
			fmt.Fprintf(&b, " %s |", cell(r, s.id))
		}
		b.WriteString("\n")
	}
	b.WriteString("| *last run* | | with every change |")
	for _, r := range results {
		fmt.Fprintf(&b, " %s, at %s |", r.Date, r.Commit)
	}
	b.WriteString("\n\n")
	b.WriteString(strings.ReplaceAll(after, "{{own}}", own))
	return b.Bytes()
}

// cell says how a suite went.
func cell(r Result, id string) string {
	outcome, ran := r.Suites[id]
	if !ran {
		return "not run"
	}
	text := fmt.Sprintf("%d pass", outcome.Passed)
	if n := len(outcome.Skipped); n > 0 {
		text += fmt.Sprintf(", skipped: %s", strings.Join(outcome.Skipped, ", "))
	}
	if n := len(outcome.Failed); n > 0 {
		text += fmt.Sprintf(", **%d fail**: %s", n, strings.Join(outcome.Failed, ", "))
	}
	if outcome.Commit != "" {
		text += fmt.Sprintf(" (%s, at %s)", outcome.Date, outcome.Commit)
	}
	return text
}
