// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancers keeps the load balancers of Services. It answers what Kubernetes' service controller (k8s.io/cloud-provider) asks, and keeps
// load balancers as they must be by itself: the framework's calls only say that something may have changed.
//
// What is done is decided by package loadbalancer. One Service passes through
//
//	controller.go   the framework's call, or the loop's, begins a pass
//	observe.go      what the plan needs is read
//	apply.go        the plan's step is taken; then the plan is made again, until it ends
//	report.go       events, metrics, and what the framework and the loop are told
package balancers
