// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package calicostatus plays the part of calico-node on many nodes as far as BGP sessions go: it watches Nodes, BGPPeers, BGPConfiguration and
// CalicoNodeStatuses on a real API server, follows confd's rules for which sessions there are, lets each take its time to come up, and fills in
// CalicoNodeStatuses as calico-node's reporter does.
//
// It shares no code with the program that it tests. What it knows of confd and BIRD:
//
//   - a node with a cluster ID is not a member of the mesh, and the others leave it out;
//   - a BGPPeer gives a session to each pair of a node that it is for and a node that it selects, the reverse included;
//   - where a pair has both, the session of the mesh stays and the other one never comes up;
//   - a change of a node's cluster ID restarts all of its sessions;
//   - a route goes over sessions that are up: from its node to the mesh and to the peers of BGPPeers, and on from reflectors by RFC 4456, with the
//     cluster list checked on client sessions alone and every path passed on, since Calico's template has add paths on;
//   - a status is written only when it has changed, and lastUpdated with it (node/pkg/status/reporter.go); libcalico-go moves labels of the
//     object into its annotation at the same time.
package calicostatus
