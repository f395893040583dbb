// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package routereflector holds what a plan of Calico BGP route reflectors is made of and what it is: the World (nodes,
// BGPPeers, the node-to-node mesh, and what nodes report of their sessions and routes), the facts that are written in
// it, and the Plan with its Steps. Package planner makes one of the other.
package routereflector
