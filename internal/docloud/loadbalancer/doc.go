// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer decides what the load balancer of a Service must be, and what is done next to make it so.
//
// It is pure: the same values always give the same answer, down to the byte. [MakePlan] is the whole of it: from a [World], which holds all that was
// read and all that is remembered, it makes a [Plan], which says what to read, which step to take, or how the pass ends. Its questions, in
// their order:
//
//   - [NeedsOf]: what has to be read in addition to the Service and the Nodes?
//   - [Identify]: which load balancer of the account is this Service's, and is the one in its way somebody else's?
//   - [Desired]: what must be sent? [Request] is the body, [Result] also holds warnings, the nodes left out, and what to write on the Service.
//   - [Diff]: does what is differ from what must be? Nothing is sent unless it does.
//   - [Publish]: what does the Service's status show?
//   - [MayDelete]: may the load balancer be deleted with its Service?
//
// What the upstream project sends, Mooring sends: the rules are those of digitalocean-cloud-controller-manager v0.1.68, checked against vectors of
// its output (test/contract/digitalocean). Where they differ on purpose, docs/components/cloud-differences.md says so.
package loadbalancer
