// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import "github.com/mooring-dev/mooring/internal/platform/finding"

// Verdict is the state of a machine: the worst one of its findings.
type Verdict = finding.State

// The verdicts, as package finding explains them.
const (
	Down     = finding.Down
	Disagree = finding.Disagree
	Unknown  = finding.Unknown
	Settling = finding.Settling
	OneSide  = finding.OneSide
	Agree    = finding.Agree
)

// Count counts the rows by verdict.
func Count(rows []Row) finding.Counts {
	c := finding.Counts{}
	for _, r := range rows {
		c[r.Verdict]++
	}
	return c
}
