// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancers keeps the load balancers of Services. It answers what Kubernetes' service controller (k8s.io/cloud-provider) asks, and keeps
// load balancers as they must be by itself: the framework's calls only say that something may have changed.
//
// What is done is decided by package loadbalancer, one step at a time. Each reconcile of a Service is a round of package reconcile,
// also one that the framework asks for:
//
//	controller.go   the framework's call, or the queue, begins a round; what it may write is declared here
//	observe.go      what is at hand, the plan, and what the plan needs
//	apply.go        the plan's step is made; then the plan is made again with what came of it, until it ends
//	report.go       events, metrics, and when to look again
package balancers
