// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package outofservice decides which Nodes carry the taint node.kubernetes.io/out-of-service, by which Kubernetes deletes the Pods of a
// machine that does not run and detaches its volumes at once ("Non-graceful node shutdown"). It is pure; package shutdowns reads and writes.
//
// The taint is dangerous where a machine runs after all: its volumes are attached elsewhere while it writes to them. So these have to agree:
//
//	DigitalOcean   calls the droplet off, or responds with 404 for it, in two GETs by ID that are apart; what a list lacks proves nothing
//	the kubelet    has not renewed its Lease for the grace period, by this process's clock
//	Kubernetes     calls the Node not ready
//	the account    is the cluster's, and shows droplets of the cluster
//	the guard      not more than a share of the cluster is off at a time, unless a person has confirmed just these machines
//
// Kubernetes waits for its own grace period before it calls a Node not ready, and acts on the taint only then. What the others say is
// read from the first renewal on that a kubelet misses, so that the taint follows at once. Right before it is set the Node, the Lease and
// the droplet are read again.
//
// It is removed when the droplet is active and the Node is ready. A Node that cannot be ready with the taint, as on a machine that was rebuilt, loses it
// too: when a GET by ID has lately called the droplet active, its kubelet reports (Ready is False, not Unknown) and has renewed its Lease for the grace
// period, and no volume is attached.
//
//	         off, not ready                 proven, let pass                 active, and ready or reporting
//	in service ──────────> waiting: Reason ──────────────────> out of service ──────────────> in service
//	                         │        ^
//	                         └────────┴── mass-guard: waits for a person
package outofservice
