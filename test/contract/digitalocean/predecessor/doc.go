// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package predecessor holds the cloud component against vectors of what its upstream project, DigitalOcean's own cloud controller manager, does:
// the request for a load balancer, the metadata of a Node, and the request for the firewall, for thousands of inputs.
//
// The vectors are not part of the repository (see testkit.Shared); without them the tests are skipped. What differs on purpose stands in
// one list, waivers_test.go (of firewalls: firewall_waivers_test.go), with its reason.
package predecessor
