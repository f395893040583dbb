// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps a cluster's BGP route reflectors as its RouteReflectorTopologies want them. Its rounds are those of package reconcile: it observes, lets
// package routereflector plan, reports, carries out at most one step of the plan, or several that are about one client each, and asks nodes for their sessions.
//
//	informers ── observe.go ──► World ── planner.MakePlan ──► Plan ── report.go ──► status, Events ──► apply.go ──► writes
//	                 ▲            live reads that it needs ◄──────┘ └── witnesses ──► sessions.go ──► CalicoNodeStatuses ──┐
//	                 └─────────────────────────────────────────────────────────────────────────────────────────────────────┘
//
// What the next process must know is in the topology's status, which is written before the first step. What is kept in memory can be lost: since when something
// has been seen, to measure time-outs, what reflectors said a moment ago, which is asked again, and what was written and informers may not show yet.
package controller
