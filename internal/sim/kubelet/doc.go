// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet simulates kubelets: machines without containers whose Nodes, Leases and Pods behave towards a real
// API server as those of kubelet 1.37 do. One process carries a thousand of them.
//
// What a machine does, and when it stops doing it:
//
//	          Add                    Freeze                    Destroy
//	(nothing) ───> registering ───> alive <──────> frozen ───────────> gone
//	                    ^             │     Thaw
//	                    └── Restart ──┘
//
//	registering  creates its Node, or adopts the one that exists; tries again until it succeeds
//	alive        renews its Lease, keeps its Node's status true, runs and removes the pods bound to it
//	frozen       does nothing; kube-controller-manager finds that its Lease is stale and marks the Node
//	gone         nothing more is ever written; the Node, its Lease and its pods stay behind for others to clean up
//
// A machine whose Node is deleted under it does not register again by itself, because a kubelet registers once in its
// lifetime: its status patches have nothing to patch, its Lease is collected with the Node, and only [Fleet.Restart]
// brings the Node back.
//
// The fleet shares one watch of Nodes, one watch of Pods, one queue of due heartbeats and two small pools of workers: the
// number of goroutines does not depend on the number of machines.
//
// It is not a kubelet: no containers, volumes, probes, images, evictions, events, static pods or kubelet API.
package kubelet
