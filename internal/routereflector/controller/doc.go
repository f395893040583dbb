// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller keeps a cluster's BGP route reflectors as its RouteReflectorTopologies want them: it observes, lets package routereflector
// plan, carries out at most one step of the plan, and reports.
//
//	informers ── observe.go ──► World ── routereflector.Make ──► Plan ── apply.go ──► one write
//	                 ▲                                             │ └─── report.go ──► status, Events, metrics
//	CalicoNodeStatus └────────────── sessions.go ◄── witnesses ────┘
//
// Nothing that matters is kept in memory: after each write, and after each restart, the plan is made again from what the cluster holds. What is
// kept is when something was first seen, to measure time-outs, and what reflectors said a moment ago, which is asked again if it is lost.
package controller
