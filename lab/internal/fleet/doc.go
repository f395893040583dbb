// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet is the nodes process: it makes the cluster follow the list of machines.
//
// For each machine of the list there is a simulated kubelet and what calico-node and the CNI plugin of that machine write. Nothing is remembered
// that the list, the API server and Calico's datastore do not say, so the process may be killed at any moment.
//
//	in the list, running      its kubelet registers and keeps its Node; its calico-node starts; its pods exist
//	in the list, frozen       nothing is heard of it
//	in the list, off          nothing is heard of it; when it is switched on again it boots: its kubelet and calico-node start again
//	not in the list           nothing is ever heard of it again
//	list missing or damaged   nothing changes: absence is never evidence
//
// In a lab with a cloud each machine is a droplet, the process of the simulated cloud writes the list, and Mooring's cloud controller manager
// initializes the Nodes and deletes those of droplets that are gone. In a lab without one this process deletes the Nodes of machines that are
// gone, as a person would: only those with the label of this package, after a live read of the Node, with its UID as the precondition. What Calico
// holds of such a machine stays: removing it is the job of Mooring's calico-node-sync.
package fleet
