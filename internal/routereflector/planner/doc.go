// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package planner makes the plan of a topology. Each part of it is a result, made of the World and of results before it
// by a package that knows nothing of those after it:
//
//	health ── which reflectors are in trouble or lost, and whether the observed state is believed
//	rank   ── who may be a reflector, and how well each node suits
//	design ── which groups, cluster IDs and BGPPeers there shall be
//	refuse ── why nothing is planned
//	choose ── who shall be a reflector
//	next   ── which writes come next
//	model  ── what BGP makes of each of them; one that breaks something ends the plan
//	gate   ── what the first write waits for, and whose word is needed
//
// The World and the Plan are package routereflector's. Equal Worlds give equal Plans, whatever the order of their
// lists.
package planner
