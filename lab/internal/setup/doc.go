// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package setup prepares a cluster that has just been born, once and as its administrator: Calico's custom resources, the rights of the simulated
// machines and of the product's component, and Calico's first objects. All of it is idempotent; a second start of a lab finds it done.
package setup
