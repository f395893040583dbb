// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package watch serves the etcd v3 Watch API of one tenant from few streams to the core etcd. The Hub joins what the tenant's streams ask for:
// identical watches share one watch of the core, and an event is rewritten once however many watchers there are.
//
//	session (a stream of the tenant)            core (a stream to the core etcd)
//	  watcher ──────────── private feed ────────► catch-up stream, one watch on it, used again afterwards
//	  watcher ─┐
//	  watcher ─┴─ group ── feed ────────────────► the shared stream, one for all groups
//
// # The life of a watcher
//
// Each begins with a private feed: the core validates it, its Created answer (with the core's revision) goes to the tenant, and the core replays the
// history. Once it has caught up it becomes a member of the group of its range and options, and the private feed is canceled.
//
// # Positions
//
// A feed's position is the highest revision up to which all its events have been handed on. It moves with the last event of a whole response, and
// with progress answers of the core. A member keeps the position of its private feed as skip: events of the group up to skip are dropped for it, so
// nothing is sent twice. It joins only when its private feed is at or ahead of where the group was when it began to listen to the group, so nothing
// is missed: between the two moments the group's messages wait in the watcher's backlog.
//
// # Progress
//
// The core answers a progress request for a stream of its own only when all watches of that stream are synced, and after their events. That is why
// watches that catch up have streams of their own, and why a tenant's stream is answered from one answer on the shared stream, when all its
// watchers are members there: an answer put together from several streams would be older than events already sent. A catching-up watcher withholds
// the answer, as it does in etcd.
//
// The core drops requests that it cannot answer without a word, so they are repeated while somebody waits. Which request an answer belongs to is
// then unknown, and need not be known. A catch-up stream asks only while its one feed is live, and is used again only when no response is
// outstanding. A group's feed starts "now" and takes the revision R of its Created answer as its position: an answer given before the feed
// existed is not above R. (Were a group's feed to start at a revision, the core would not respond for the shared stream before it has caught
// up, and before that revision exists.)
//
// # Moving to another connection
//
// When the connection of the shared stream was replaced (other certificates), another stream is opened on the newer one, and each group gets a feed
// there, too, from "now" on. What the new feeds bring waits. Once each group has handed on all up to where its new feed began, for which the old
// stream is asked for its progress, the new stream takes over for all groups at once; events that both have brought are dropped. The tenant sees
// nothing of it. Watchers that catch up end on the old connection what they began there.
//
// # Slow readers
//
// What waits is bounded, per session and in all. A private feed is not read while there is no room for its events, so replaying a long
// history goes at the tenant's pace; only so many watchers catch up at the same time, the others wait for their turn, and a session that
// keeps a turn without reading ends. Large responses come from the core in fragments, and are put together to whole revisions for clients
// that want no fragments. The shared stream waits for nobody: a session that overflows its queue ends, and so does the one with the longest
// queue when all together hold too much. All such ends are Unavailable: the client takes up its watches where they were, on private feeds.
//
// # Locks
//
// Hub.mu guards all of it but the sessions' queues and the count of what they hold, which have locks of their own, taken inside Hub.mu in this order.
// Nothing blocks under Hub.mu.
package watch
