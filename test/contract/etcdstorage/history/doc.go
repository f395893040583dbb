// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package history shows that failures between a tenant and its etcd change nothing but the time that things take: while proxies are killed and
// connections cut, the history of all clients stays linearizable, and watches that resume lose and repeat nothing.
//
// MOORING_HISTORY_SECONDS says how long clients work (8).
package history
