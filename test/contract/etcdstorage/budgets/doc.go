// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package budgets attacks a core through bin/etcd-storage-proxy, as it is shipped, by load and over time, and holds what both of them take to the
// budgets.
//
// Each attack lasts a second, two in CI, a minute at night (internal/testkit/cases).
package budgets
