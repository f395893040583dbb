// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package attacked runs a kube-apiserver and a sample-apiserver, both upstream's own, on two tenants of a core that a third tenant attacks with each RPC in
// turn, under the budgets that are shipped.
//
// Each attack lasts 2 seconds, 80 at night (internal/testkit/cases): then all of them take half an hour.
package attacked
