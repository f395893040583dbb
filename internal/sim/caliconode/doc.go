// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package caliconode writes to a Calico datastore, etcd v3 or Kubernetes, what Calico v3.31 writes on behalf of a machine,
// without a machine: calico-node when it starts, and the CNI and IPAM plugins when a pod comes and goes.
//
//	[Datastore.Initialize]  what is there once per cluster: ClusterInformation, tiers, Felix defaults, IP pools
//	[Datastore.Start]       what calico-node writes at every start: Node, Felix configuration, tunnel addresses
//	[PodNetwork.Add], Del   what the plugins write: IPAM allocation, WorkloadEndpoint
//	Agent.Leave..., Borrow  the debris that crashes and races leave behind in real clusters
//
// Everything goes through libcalico-go, the library that Calico's own binaries use, with the arguments that they use; the
// comments say where it is otherwise. Package test/contract/calico/cni compares what PodNetwork, BorrowAddress and Crowd write
// with what Calico's own CNI plugin writes. What calico-node writes later and all the time (routes, Felix and BIRD status) is
// not simulated, since the datastore of a Kubernetes cluster does not contain it by default.
//
// libcalico-go logs to logrus' standard logger at level info, which is global to the process and therefore left to main:
// this package does not touch it.
package caliconode
