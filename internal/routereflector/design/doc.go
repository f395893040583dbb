// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package design decides which groups of reflectors there shall be, with which cluster IDs, and which BGPPeers they
// need. It names no node: see package choose for that.
package design
