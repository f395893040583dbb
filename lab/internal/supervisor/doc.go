// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package supervisor starts the processes of a blueprint in the order of their dependencies, tells when they work, restarts those that end, and
// stops them in reverse order.
//
// The life of one process:
//
//	waiting ──dependencies ready──▶ starting ──probe answers──▶ ready
//	                                  ▲   │                       │
//	                                  │   └───────── ends ────────┤
//	                                  └──after a pause── down ◀───┘        (a process that runs once: starting ──ends with 0──▶ done)
//
//	any state ──stop: first what depends on it, then itself──▶ stopped
//
// Nothing outlives the supervisor: each child is the leader of its own process group and carries a parent-death signal, SIGKILL. The kernel ties
// that signal to the thread that forked the child, so all children are started from one goroutine that stays locked to its thread until
// the last child is gone.
package supervisor
