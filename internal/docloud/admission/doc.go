// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission decides whether the API server is to take a Service of type LoadBalancer.
//
// It is pure, and it has no opinion of its own: what is wrong with a Service is what package loadbalancer says to the controller, in the same
// sentences, so that what is admitted is what the controller can make. [Review] decides with the Service alone. What it lets through may be worth
// a [Question] to DigitalOcean, which takes a request without making anything of it; [Draft] is that request, and [Decision.With] the decision
// after the answer.
//
// What is never refused, because a person at 3 a.m. must be able to write:
//
//   - deletions, updates of the status, Services of another type or class, disowned ones, those that are going, and what the controller writes;
//   - a mistake that was there before: a change is refused for what it brings, not for what it finds;
//   - anything that DigitalOcean's limits, failures and slowness have to do with: that is a warning.
//
// Package policy says as much of this in CEL as CEL can say.
package admission
