// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package machines answers what Kubernetes' controllers of Nodes ask about droplets (k8s.io/cloud-provider, InstancesV2). What may be concluded is
// decided by package instance:
//
//	instances.go   the framework's questions
//	snapshot.go    one list of droplets for all who ask
//	guard.go       what may be believed of the answers; account.go keeps the record of whose they are
//	waiting.go     Nodes that wait for their droplet or its addresses, and the look at the token
//	report.go      events, metrics and the log
package machines
