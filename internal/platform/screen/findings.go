// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// FindingExitCodes is the sentence about the exit codes of [Findings], for help texts.
const FindingExitCodes = "Exit codes: 0 nothing to do; 2 a problem, a warning, or something that could not be read; 1 an error."

// findingList is what JSON and YAML have of findings. Its form is a contract with programs.
type findingList struct {
	Worst    finding.Severity  `json:"worst"`
	Findings []finding.Finding `json:"findings"`
}

// Finds lets a command print what a doctor found. Whether that needs attention is in its exit code.
func Finds(cmd *cobra.Command, find func(cmd *cobra.Command) ([]finding.Finding, error)) *cobra.Command {
	format := NewFormat(Text, FormatJSON, FormatYAML)
	format.AddTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := find(cmd)
		if err != nil {
			return err
		}
		return Findings(found, &format, cmd.OutOrStdout())
	}
	return cmd
}

// Findings prints what a doctor found. Whether that needs attention is in the exit code that the error carries.
func Findings(findings []finding.Finding, format *Format, out io.Writer) error {
	worst := finding.Worst(findings)
	unread := slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Unread })
	attention := worst == finding.Problem || worst == finding.Warning || unread
	return format.Show(out, findingList{worst, findings}, attention, func(columns int, _ finding.Paint) string {
		return Fold(finding.Text(findings, columns), columns)
	})
}
