// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver tests the controller of digitalocean-csi-driver on a real API server: the real program and the real
// sidecars, with the objects, arguments and rights of the manifest, and a simulated DigitalOcean. It needs neither
// kubelet nor root, so that `make matrix` runs it on each version of kube-apiserver.
//
// The lab's kube-controller-manager binds claims and removes finalizers. The test itself writes what kubelet and the
// attach-detach controller write: Node, CSINode and VolumeAttachment. Volumes that are mounted are tested in
// lab/internal/storage/e2e.
package driver
