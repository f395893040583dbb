// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloud is the simulated DigitalOcean of a lab: one process with the API, the metadata service and an administrator's interface, each on
// a port of its own.
//
// What exists there is the truth, and is written to a file before anybody is told of it, so that the process may be killed at any moment. A
// droplet with the tag of the cluster is a machine: as soon as it is active it is in machines.json, which the nodes process follows. One further
// droplet, without the tag, stands for the machine of the control plane: what the metadata service speaks of.
//
//	lab droplet … ──admin──> simulator ──machines.json──> nodes process ──Node──> API server
//	                             ^                                                    ^
//	                             └───API── digitalocean-cloud-controller-manager ─────┘
package cloud
