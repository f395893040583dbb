// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package reachability models how routes travel between BIRD daemons that are configured by Calico's confd: which session reflects what to
// whom, and how many paths arrive. It is pure, and it is what a plan for route reflectors is checked with after every single write.
//
// The rules are those of Calico's bird.cfg template and of BIRD 1.6 as measured with it:
//
//   - each speaker announces its own prefix on all of its sessions;
//   - a session whose two ends do not agree about their AS numbers never comes up, and keeps every other session of the two down;
//   - a speaker without a cluster ID passes nothing on. (With a session to another AS it does, but never to where that gives a path to a node that
//     has none: the other AS refuses what it has announced itself, and in a mesh all have each other. So where nodes of another AS are in the mesh,
//     there are more paths than the model counts, and routes for the same pairs;)
//   - a session is a client session at a speaker exactly if the speaker has a cluster ID and the other end has not the same one, as far as the
//     speaker knows: of a peer that a BGPPeer gives it by address it does not know the ID;
//   - a route from a client goes to all other sessions, a route from a non-client to client sessions alone (RFC 4456, section 6);
//   - anyone who reflects a route, from an internal session to another, adds its cluster ID to the route's cluster list; a client session neither
//     takes in nor sends out a route whose list has the speaker's own ID, a non-client session takes in any;
//   - a session between different AS is external: the speaker with a cluster ID is not a reflector on it, but a router that passes on what it has by other sessions,
//     and to all of these what it has by it. Who finds its own AS number in the path of such a route refuses it;
//   - "add paths on": not the best path but every path is passed on, so that paths multiply with every way through the reflectors.
//
// The node-to-node mesh is not held as sessions, of which there would be a million for a thousand nodes: its members reach each other.
package reachability
