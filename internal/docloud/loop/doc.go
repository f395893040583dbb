// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package loop is the loop of this component's controllers: keys in a queue, each passed over by one worker at a time, again when it said so, after a
// failure later each time, and all of them every now and then and when something has changed that concerns all.
//
//	Add ───────────────────────────┐
//	Mark ──> debounced ──> Keys ───┼──> queue ──> Gate ──> Pass ──> Result: when again
//	resync, by chance ───> Keys ───┘                 └── Drain waits for it
package loop
