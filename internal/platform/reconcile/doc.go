// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcile runs controllers, all in the same way. A controller says what it reads, what it decides and how it writes; what is around that is here:
//
//	Add ──────────────────────────┐
//	Mark ──> debounced ──> Keys ──┼──> queue ──> Gate ──> round ──> when again, and not before
//	resync, by chance ──> Keys ───┘                └── Drain waits for it
//
//	round:  Observe ──> Plan ──> Needs? ──> Satisfy ──> Plan ──> Save ──> Trusted? ──> Apply, step by step ──> Report
//	                     ^                     │                       │
//	                     ├── each need once ───┘                       │
//	                     └── Again: with what came of the steps ───────┘
//
// What is promised to a controller:
//
//   - The last result says when the next round over a key is. A rest is not cut short by marks, and looks between rounds are
//     made by who makes rounds.
//   - Rounds over one key never overlap, also those that somebody else asks for and waits for (Call).
//   - A need is satisfied at most once in a round, and one that cannot be satisfied does not end the round: the planner decides without, and the round
//     is made again.
//   - What a plan remembers is saved before its first step, and then it is asked whose the cluster is. If either fails, only steps are made that
//     are always right.
//   - Steps of one subject are made in their order, and the first that is not done stops those of that subject alone.
//   - Steps that all others depend on are made first and alone, and if one of them is not done none is.
//   - Within a round nothing is written that the controller has not declared (package outputs).
//   - A note is told once for as long as it holds. A round that failed does not know what has stopped to hold.
package reconcile
