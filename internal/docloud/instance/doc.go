// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package instance decides what a droplet means for its Node: which droplet a Node is, which addresses and metadata it gives, and above all
// whether a Node's machine is gone.
//
// It is pure. [Match] finds the droplet of a Node, [Describe] says what Kubernetes is told of it, [IsShutdown] whether it is off, and [MakePlan]
// gives the verdict on existence for all Nodes of a cluster at once.
//
// A Node that Kubernetes deletes takes its pods and its place in every load balancer with it, and a token of the wrong account responds with 404 for
// every machine. So [MakePlan] says Gone only when all of this holds:
//
//	the account is the one that was recorded for this cluster      else: unknown, for all Nodes
//	some droplet known to be of this cluster is still visible      else: unknown, for all Nodes
//	the newest list of droplets is complete and does not hold it   else: unknown, and the list is asked for
//	the droplet itself was asked for by ID and responded with 404        else: unknown, and it is asked for
//	it was shown once, or its Node is not new ([Established])      else: unknown, until its Node is minutes old
//	not more than a bounded number went within the window          else: unknown, until it is its turn
//
// A real scale-down passes all of these without a person, only at a bounded pace when it is large.
package instance
