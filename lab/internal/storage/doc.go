// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package storage runs the product's volume driver in a lab with real machines (`lab up --real-nodes 2 --with digitalocean-csi-driver`): its
// manifest, as released, with Kubernetes' own programs alongside it (manifest.go), and images of all of these (images.go, pack.go).
//
// Volumes are the simulator's (package disks of the product's module): sparse files, and loop devices once they are attached. A machine sees
// the links to its devices where udev makes them on a droplet, in /dev/disk/by-id, and finds the metadata service at 169.254.169.254.
package storage
