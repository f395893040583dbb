// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package firewall decides what the cluster's firewall must be: the one that PUBLIC_ACCESS_FIREWALL_NAME and _TAGS name, and that lets the world
// reach what the cluster's Services serve on its droplets, and nothing else.
//
// It is pure: the same values always give the same answer, in whatever order they come. Its questions:
//
//   - [Desired]: what must the firewall be, given all Services and the firewall there is?
//   - [Ours]: is the firewall of that name the cluster's, or somebody else's?
//   - [Diff]: does what is differ from what must be? Nothing is sent unless it does. [Closes] reports whether a port would be closed.
//
// What the upstream project opens, Mooring opens (digitalocean-cloud-controller-manager v0.1.68, firewall_controller.go), with these differences:
//
//   - a Service that cannot be understood stops itself only. What the firewall opens for it stays as it is, nothing more and nothing less: closing
//     its ports because of a typing error would be an outage, and opening them by a guess would be a hole;
//   - the ports of a load balancer are open for its source ranges or allow rules only, if it has any (the upstream project's issue 911);
//   - the annotation firewall-managed counts for load balancers too (likewise).
package firewall
