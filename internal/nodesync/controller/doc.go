// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller runs node sync: it observes both sides, lets the pure package nodesync decide, applies the steps and reports.
//
//	Kubernetes ──► observe.go ──► nodesync.MakePlan ──► apply.go ──► Calico's datastore
//	Calico     ──►                                └───► report.go ──► log, metrics
//
// What a round consists of is in options, which package reconcile runs: the plan names what it needs, which is read,
// and is made again.
//
// One round runs at a time. A round starts when a Kubernetes Node appears or goes, when the last plan asked for it,
// and every resync period; when nothing changes nothing is asked of the outside in between.
package controller
