// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package predecessor reads the environment variables of the calico-route-reflector-operator of 2020 and says which RouteReflectorTopology they
// stand for in a cluster, what is to be adopted there, and what of them cannot be had. It is pure: the environment and the cluster are handed in.
package predecessor
