// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of calico-route-reflector-operator. In this version it has the offline preview alone: plan reads files and
// prints what would be written to the cluster, in order, and what the reachability model says of every state between.
package app
