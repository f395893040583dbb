// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// Verdict is what came of asking DigitalOcean.
type Verdict string

// The verdicts. They are values of a metric's label and MUST NOT change.
const (
	// VerdictTaken: it would take the load balancer.
	VerdictTaken Verdict = "taken"
	// VerdictRefused: it would not, no matter who asks and whenever.
	VerdictRefused Verdict = "refused"
	// VerdictUnknown: it did not say, or could not be asked.
	VerdictUnknown Verdict = "unknown"
)

// Answer is DigitalOcean's, and what else was found out on the way.
type Answer struct {
	Verdict Verdict
	// Text is DigitalOcean's own for a refusal, and the reason for an unknown verdict.
	Text string
	// Warnings are those of the draft with what DigitalOcean has; they take the place of those without.
	Warnings []string
}

// With is the decision after the answer. Only a refusal of the load balancer itself refuses the request.
func (d Decision) With(a Answer) Decision {
	out := Decision{Problems: d.Problems, Warnings: d.Warnings}
	if a.Warnings != nil && d.Ask != nil {
		out.Warnings = without(slices.Concat(d.Warnings, a.Warnings), d.Ask.Before)
	}
	switch a.Verdict {
	case VerdictTaken:
	case VerdictRefused:
		out.Problems = append(slices.Clip(d.Problems), a.Text)
	default:
		out.Warnings = append(slices.Clip(out.Warnings), "DigitalOcean was not queried whether it accepts this load balancer: "+a.Text)
	}
	return out
}

// Refused is the answer for a load balancer that DigitalOcean refuses, with its own words.
func Refused(text string) Answer {
	return Answer{Verdict: VerdictRefused, Text: "DigitalOcean refuses the load balancer: " + strings.TrimSuffix(text, ".")}
}

// Unknown is the answer when there is none.
func Unknown(reason string) Answer { return Answer{Verdict: VerdictUnknown, Text: reason} }

// Wrong is the answer for a draft with problems that only what DigitalOcean has brought to light, such as a certificate that does not exist.
func Wrong(result loadbalancer.Result, err error) Answer {
	a := Answer{Verdict: VerdictRefused, Text: err.Error(), Warnings: sentences(result.Warnings)}
	_, waits := errors.AsType[*loadbalancer.CertificateWait](err)
	if waits || errors.Is(err, loadbalancer.ErrNotOurs) {
		a.Verdict, a.Text = VerdictUnknown, err.Error()
	}
	return a
}

// Taken is the answer for a draft that DigitalOcean would take.
func Taken(result loadbalancer.Result) Answer {
	return Answer{Verdict: VerdictTaken, Warnings: sentences(result.Warnings)}
}
