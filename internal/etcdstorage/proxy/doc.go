// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package proxy is the data plane of etcd storage: it serves the etcd v3 API to one tenant, inside one key prefix of a core etcd.
//
//	tenant ── TLS, identity ──► routes ──► tenancy/wire: validate, rewrite, assert ──► core etcd
//	       ◄──────────────────── tenancy/wire: check prefix, strip ◄──────────────────
//
// Messages are raw protobuf bytes everywhere on the hot path; generated messages are decoded only for what is rare (a compaction, a status).
// Package h2 is the HTTP/2 of both sides, and says why there is one.
//
// # Default deny
//
// A method is answered only if it has a route in the table that buildRoutes makes, and tenancy.Classify knows it as Forward or Synthetic. All
// else is PermissionDenied with a sentence that names the method. A test walks every service of the linked etcd API.
//
// # How a handler is plugged in
//
// There is one table, method name ("/etcdserverpb.Watch/Watch") → route; kvRoutes, syntheticRoutes, watchRoutes and leaseRoutes return their
// parts of it, once, for New. A route has exactly one of three handlers:
//
//   - forward: two pure functions, for a unary RPC that goes to the core once. They run in connections' readers, must not block, and append to
//     a buffer that they are given. Errors they return are answers or boundary violations (see answer).
//   - unary: func(ctx, call, request) (response, error), in a goroutine of its own; it may call the core any number of times.
//   - stream: func(ServerStream) error, in a goroutine of its own, until it returns; its error becomes the status, nil is OK.
//
// The core is reached through p.up: Unary makes one call, Stream opens a stream. Their errors are status errors that may be returned to the
// tenant as they are: codes and texts are the core's, a lost or unreachable core is Unavailable at once, and a text that holds a key of the core
// is replaced. A stream handler must end soon after p.draining is closed, with errDraining, and when its context ends.
//
// # Failing closed
//
// A request that the wire package cannot vouch for is refused. An answer of the core is rewritten as a whole, and kept until the core's status
// came: the tenant gets all of it or an error. What is outside the boundary is Internal, a log line and a metric (violation). A panic ends one
// RPC (panicked).
//
// # Compaction
//
// A tenant's compact revision is a number of its own, compaction.go; reads and watches below it answer ErrCompacted, the core is not compacted.
// It is kept in one record per tenant below the system prefix, which only ever moves forward and which all replicas watch. A replica that has
// not read the record yet answers reads without a revision, and makes those with one wait.
//
// # Size
//
// quota.go counts the tenant's keys once and follows them by a watch (package quota has the ledger): it knows what the tenant stores, refuses growth beyond
// a quota, and knows what was written since the core's last compaction (history.go). Without a quota nobody waits for it.
//
// # Budgets
//
// budgets.go has the rates, work.go what a request costs. A small request takes its price when it was rewritten (rpc.admitted), then history, then a seat
// (rpc.seated); a large one takes its price when it has its seat (rpc.paid). What the core's response shows is paid afterwards (Proxy.pay),
// and what the core may have done without one (Proxy.unseen), both before the seat is given back. Room in the quota is made as the last step of its
// rewriting. All of that is given back by rpc.release, when the core has answered or will not be asked:
// a tenant that gives up is only counted (rpc.count). Requests whose answer may be large have seats and bytes of their own.
// Units and seats are this replica's share of the tenant's (replicas.go). Answers above 64 KiB are held back
// by the window of their call until there is room in h2.Budget, and are rewritten where they are. Without a limit most of this is not there.
package proxy
