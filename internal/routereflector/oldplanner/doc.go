// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package routereflector decides which nodes of a cluster reflect Calico's BGP routes, and in which order the cluster gets from where it is
// to where it should be without losing a packet. It is pure: [Make] is a function of a [World].
//
//	World ── groups.go: the design ── candidates.go: who may be a reflector ── choose.go: who shall be ── steps.go: the writes, in order
//	                                                                                                          │
//	Plan  ◄── gates.go: what the first write waits for ◄── check.go: each write against the model of package reachability
//
// A plan is made again from the cluster's state before every write, so that a process may die between any two of them. The order of the steps,
// and that a reflector's label and cluster ID are written at once, follows what every other order was measured to cost.
package oldplanner
