// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package csi serves the Container Storage Interface (1.13, as Kubernetes 1.37 speaks it) for DigitalOcean's block storage: Identity, Controller and Node. What is to be done is decided by
// package volume; disks of this machine are the business of package blockdevice.
//
// Nothing is kept between requests but what is under way. A request observes, does the next step, and observes again, so that one that is repeated after a crash
// goes on where the last one ended.
package csi
