// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package shutdowns sets the taint node.kubernetes.io/out-of-service on Nodes whose machines do not run, and removes it when they are back. Package
// outofservice decides; what is here reads and writes:
//
//	controller.go  when a reconcile is due, and what it consists of
//	observe.go     Nodes, the list of droplets, GETs by ID, kubelets' Leases: what this process has seen of each machine
//	record.go      the Lease that keeps what was decided, for the next leader and for people
//	apply.go       the two writes to Nodes
//	depart.go      a Node whose machine is gone waits for its volumes
//	report.go      Events, metrics and the log
package shutdowns
