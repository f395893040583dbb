// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// What can be wrong in addition to the annotations. Errors of [Desired] are [Problems]; use errors.Is and errors.As on them.
var (
	// ErrNoNodes means that no Node gets traffic: there is none, or all are left out. It may pass by itself.
	ErrNoNodes = errors.New("no node is ready for the load balancer")
	// ErrNoEligibleNodes means that Nodes are there and none of them has the address that this type of load balancer needs.
	ErrNoEligibleNodes = errors.New("no node can be a target of the load balancer")
	// ErrForeignNode means that a Node is a machine of another provider.
	ErrForeignNode = errors.New("a node is not a droplet")
	// ErrNotOurs means that the Service is not to be given a load balancer by this controller at all.
	ErrNotOurs = errors.New("the service gets no load balancer from DigitalOcean")
)

// SpecError is a field of the Service's spec that is refused. Its text is one sentence that names field, value and what may stand there.
type SpecError struct {
	Field   string
	Value   string
	Problem string
}

// Error implements error.
func (e *SpecError) Error() string {
	return fmt.Sprintf("%s is %s, %s", e.Field, annotation.Quote(e.Value), e.Problem)
}

// Problems is all that stands in the way of a load balancer, one sentence each, so that each becomes an event of its own. It is never empty
// as an error.
type Problems []error //nolint:errname // a list of errors, named for what it holds

// Error implements error: the sentences, one after the other.
func (p Problems) Error() string {
	sentences := make([]string, len(p))
	for i, one := range p {
		sentences[i] = one.Error()
	}
	return strings.Join(sentences, "; ")
}

// Unwrap makes errors.Is and errors.As look at each of them.
func (p Problems) Unwrap() []error { return p }
