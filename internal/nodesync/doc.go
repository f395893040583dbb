// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodesync decides what Calico's datastore may forget about machines that are gone.
//
// It is pure: [MakePlan] turns one [World] (what Kubernetes says, what Calico's datastore holds, what was remembered) into one [Plan]
// (steps in order, refusals with their reasons, what to remember, when to look again). It reads no clock, no client and no environment.
//
// What happens to one Calico Node, from the first look to the last:
//
//	            its Kubernetes Node exists
//	   ┌──────────────── alive ◄──────────────────────────────┐
//	   │ absent from a quorum list                            │ it came back, at any point:
//	   ▼                                                      │ Unfence, nothing more is removed
//	absent ──grace──► due ──every gate──► Fence ──► endpoints ┴─► addresses ──► resources ──► affinities ──► Node
//	   │                                   (each later write holds only while the Calico Node is as the fence left it)
//	   └─ any gate that does not hold: a Refusal that says why, and no step at all
//
// The Calico Node goes last, so that a process that dies midway leaves the mark by which the next one finds the work
// again. It goes even if blocks of the machine stay, because others have addresses there: those are found by their
// affinity, and the memory keeps whose they were. It is not for deciding how a step is written (that is
// internal/calico) nor when to look (that is controller).
package nodesync
