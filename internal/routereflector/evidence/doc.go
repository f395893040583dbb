// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package evidence judges what nodes have said of their sessions and routes: of what it holds, and for how long it counts. It is pure: time is an argument.
package evidence
