// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cluster gives a test a Kubernetes API of its own, and runs stories on it.
//
// A [Cluster] is either simulated, in this process, or a real kube-apiserver. Any client works on both: controller-runtime's with its caches, client-go's,
// Calico's. The simulated one costs a millisecond; it does what the programs of this repository rely on: uid and resourceVersion as preconditions, server-side
// apply with its conflicts, generations, the status subresource, finalizers, graceful deletion of pods, lists and watches with one revision for all kinds. It
// does not authorize or allocate, and of defaults, admission and validation of built-in kinds it has what TestBothAgree shows. That test plays the same
// operations on it and on a real kube-apiserver: anyone who relies on something more adds it there first. Known to be missing: defaults of pods and
// workloads, validation of specs, creation by PUT (501), lists of custom kinds that are maps for server-side apply, pages of a list as of one revision.
//
// controller-runtime's fake client was tried first. It counts resourceVersions for each object, and its watches begin now rather than at a revision: a cache
// that lists and then watches loses what happens between the two. It also checks neither preconditions of a deletion nor the uid in a patch.
//
// A [Story] is a body that runs a program from one state of a cluster to another. It runs once on a real API server, and on simulated ones with every
// [Death]: the process dies before or after each of its writes, and another one takes over. With MOORING_CASES=ci or night every death also runs on a
// real API server.
package cluster
