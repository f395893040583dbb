// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package next lists the writes that come next on the way to a choice, each of which is safe once the one before it has
// settled. It does not say whether they may be done now: see packages model and gate.
package next
