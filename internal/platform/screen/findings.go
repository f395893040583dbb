// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"io"
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// FindingExitCodes is the sentence about the exit codes of [Findings], for help texts.
const FindingExitCodes = "Exit codes: 0 nothing to do; 2 a problem, a warning, or something that could not be read; 1 an error."

// findingList is what JSON and YAML have of findings. Its form is a contract with programs.
type findingList struct {
	Worst    finding.Severity  `json:"worst"`
	Findings []finding.Finding `json:"findings"`
}

// Findings prints what a doctor found. Whether that needs attention is in the exit code that the error carries.
func Findings(findings []finding.Finding, format *Format, out io.Writer) error {
	columns, _ := Terminal(out)
	worst := finding.Worst(findings)
	if err := format.Print(out, finding.Text(findings, columns), findingList{worst, findings}); err != nil {
		return err
	}
	unread := slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Unread })
	return command.Attention(worst == finding.Problem || worst == finding.Warning || unread)
}
