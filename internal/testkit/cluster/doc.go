// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster gives a test a Kubernetes API of its own, and runs stories on it.
//
// A [Cluster] is either simulated, in this process, or a real kube-apiserver. Any client works on both: controller-runtime's with its caches, client-go's,
// Calico's. The simulated one costs a millisecond; it does what the programs of this repository rely on: uid and resourceVersion as preconditions, server-side
// apply with its conflicts, generations, the status subresource, finalizers, graceful deletion of pods, lists and watches with one revision for all kinds. It
// does not authorize, admit, allocate, or default built-in kinds. TestBothAgree compares it with a real kube-apiserver, operation by operation: anyone who
// relies on something more adds it there first.
//
// controller-runtime's fake client was tried first. It counts resourceVersions for each object, and its watches begin now rather than at a revision: a cache
// that lists and then watches loses what happens between the two. It also checks neither preconditions of a deletion nor the uid in a patch.
//
// A [Story] is a body that runs a program from one state of a cluster to another. It runs once on a real API server, and on simulated ones with every
// [Death]: the process dies before or after each of its writes, and another one takes over. With MOORING_CASES=ci or night every death also runs on a
// real API server.
package cluster
