// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package balancertest holds tests and nothing else: the framework's own service controller and Mooring's load balancers, on a real API server,
// against the simulator of DigitalOcean. It is a package of its own so that its Nodes and Services do not meet those of other tests.
package balancertest
