// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumes compares what Kubernetes and DigitalOcean say of each volume: its claim, Pod, machine and droplet. It is pure; the plugin reads.
//
// What a list lacks proves nothing: a volume is gone if a GET by its ID responded with 404 while others of the cluster are visible. What was
// not queried is neither fine nor wrong.
package volumes
