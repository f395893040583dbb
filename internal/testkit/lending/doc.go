// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package lending lets test processes borrow control planes that somebody else has started. A control plane costs three CPU seconds to start and
// fifty packages need one, so that hack/tests keeps a [Pool] and each package borrows from it:
//
//	test process ── Borrow ──► Unix socket ──► Pool: an idle control plane, or a new one
//	      │                                      │
//	      └── ends in any way ── EOF ──────────► reset: etcd as it was at first, then idle, its processes stopped
//
// A borrower has its control plane for itself, kinds of the whole cluster included, and does not clear it: the pool does, in etcd, where nothing is
// left out. kube-apiserver takes that for changes by another kube-apiserver. A control plane that does not come back to its first state is stopped.
package lending
