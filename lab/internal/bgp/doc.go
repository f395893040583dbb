// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package bgp is the lab's BGP network: what Calico's data path does with routes, for real, on one machine.
//
//	netns     a network namespace that nobody has to clean up
//	fabric    one namespace for each machine, on a bridge
//	speaker   for each machine Debian's bird and bird6, inside, and Calico's confd and status reporter (agent), outside
//	network   the process that makes all that follow the lab's machines, and the socket on which it is asked
//	birdc     questions to a BIRD
//	probe     packets between all pairs of pods, and what became of them
//	scenario  changes of route reflectors under a probe, by the operator
//	command   `lab probe` and `lab scenario`
//	e2e       the scenarios as tests
//
// The control plane and confd stay where they are; only bird is inside a machine's namespace. So nothing has to be routed between the two.
package bgp
