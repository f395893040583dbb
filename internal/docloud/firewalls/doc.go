// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package firewalls keeps the cluster's firewall as it must be: it reads Services and the firewall, lets package firewall decide, and makes at most
// one write per pass.
//
//	Service changes ──> gathered for a moment ──┐
//	every minute ──> read again ────────────────┼──> pass: observe, decide, write
//	something failed ──> later and later ───────┘
//
// Between readings the firewall is remembered, so that a change of Services that matters to nobody costs no call. Before a write it is read again,
// and before anything is closed the Services are read again as well, from the API server itself: a port is never closed on the word of a cache.
// The firewall is never deleted, and one that is not the cluster's is never changed (firewall.Ours).
package firewalls
