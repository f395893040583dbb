// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package ui decides what the page of `kubectl mooring ui` shows: a [World], which is what was read of a cluster, becomes a [Page], of which every
// list and every text is bounded, however large the cluster and however hostile the names in it. It is pure. The page's script draws a Page and
// decides nothing.
package ui
