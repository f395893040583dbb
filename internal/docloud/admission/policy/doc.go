// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy says in CEL what package admission says in Go, as far as CEL can, so that the API server refuses most mistakes by itself,
// without a webhook and its certificates.
//
//	table of annotations ─► expressions ─► ValidatingAdmissionPolicy …-annotations   refuses (its binding says Deny)
//	                                   └─► ValidatingAdmissionPolicy …-doubts        warns   (its binding says Warn)
//
// The sentences are those of the webhook and of the controller's events. What refuses is held against [admission.Review] by a test on a real API
// server: for a Service whose annotations are at most [Judged] characters long each, the one refuses exactly what the other refuses, in the same
// words. Not here, since CEL has not got it: certificates by name, DigitalOcean's own opinion, and what depends on Nodes.
//
// What may not change (type, network, network stack) is refused only where the Service itself shows what is: the controller writes the type on
// it, and nothing else. A network that was wrong before must not be kept from being put right, so that its change is a warning.
//
// Both policies ignore their own failures (failurePolicy Ignore): an expression that cannot be evaluated stops nobody.
package policy
