// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor says what stands in the way of calico-node-sync in a cluster, and what its operator should know alongside.
//
// It is pure: [Findings] turns one [Evidence] (what was read, and what could not be read and why) into findings, the worst first. It makes no
// call and reads no clock; internal/nodesync/app gathers the evidence.
//
// Nothing here is decided twice: what is held back and why is the plan's to say ([nodesync.Plan]), and is only explained here.
package doctor
