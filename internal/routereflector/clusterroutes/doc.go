// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package clusterroutes says which IP pools' routes between nodes BGP carries: route reflectors are of use for those
// alone. It is pure.
//
// Calico has two programs that can write such routes into the kernel, Felix and BIRD, and two settings that choose,
// spec.programClusterRoutes of FelixConfiguration and of BGPConfiguration (Calico's design/cluster-route-programming).
// Nothing in Calico notices when they choose both for a pool, or none.
package clusterroutes
