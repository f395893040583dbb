// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cni compares what Calico's own CNI plugin writes with what the simulator of package caliconode writes. The plugin, with calico-ipam, is
// bin/calico-cni, built from the Calico of go.mod with the versions that Calico pins. Both go through the same history of pods, and after every step
// each key and value of the one datastore must be in the other: in etcd, and with the kubernetes datastore every object of Calico's kinds, Node and
// pod. [natural] lists the fields that differ by nature.
//
// The plugin makes real interfaces. So the test process moves into network and mount namespaces of its own, in which its etcd and API servers run as
// well (TestMain); each pod has a network namespace. All of them end with the process. It needs root, and is skipped where it may not make them.
package cni
