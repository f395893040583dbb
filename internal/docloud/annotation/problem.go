// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"strings"
)

// Error is a value that is refused. Its text is one sentence that names the annotation, the value and what may stand there.
type Error struct {
	Annotation string
	Value      string
	// Problem completes the sentence after the value.
	Problem string
	// Default reports that the value is the cluster's default and not the Service's own.
	Default bool
}

// Error implements error.
func (e *Error) Error() string {
	by := ""
	if e.Default {
		by = " by the cluster's default"
	}
	return fmt.Sprintf("annotation %s is %s%s, %s", e.Annotation, Quote(e.Value), by, e.Problem)
}

// Quote writes a value between quotation marks, for sentences; of a long one only the beginning.
func Quote(value string) string {
	const shown = 100
	if len(value) > shown {
		value = strings.ToValidUTF8(value[:shown], "") + "…"
	}
	return fmt.Sprintf("%q", value)
}

// Errors are all wrong values of one Service, so that each becomes an event of its own. It is never empty as an error.
type Errors []*Error

// Error implements error: the sentences, one after the other.
func (e Errors) Error() string {
	sentences := make([]string, len(e))
	for i, one := range e {
		sentences[i] = one.Error()
	}
	return strings.Join(sentences, "; ")
}

// Unwrap makes errors.Is and errors.As look at each of them.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// Reasons of a [Warning]. They are reasons of events and MUST not be changed: alerts and scripts select by them.
const (
	// ReasonNoEffect, Warning: an annotation, or its value, changes nothing.
	ReasonNoEffect = "AnnotationHasNoEffect"
	// ReasonDoubtful, Warning: a value is sent unchanged although DigitalOcean documents that it does not accept it.
	ReasonDoubtful = "AnnotationValueDoubtful"
	// ReasonUnknown, Warning: an annotation has our prefix and an unknown name, most likely a typing error.
	ReasonUnknown = "AnnotationUnknown"
	// ReasonPortReserved, Warning: a Service requests a port that the machines use themselves; the firewall does not open it.
	ReasonPortReserved = "FirewallPortReserved"
)

// Warning is something about a Service that its owner should know and that stops nothing. Message is one sentence.
type Warning struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (w Warning) String() string { return w.Message }
