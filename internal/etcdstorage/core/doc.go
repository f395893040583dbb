// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package core is the operator's hand on the core etcd: the records of tenants, their users and roles, and the end of their data. Each method is one
// transaction, or deeds that may be done again.
package core
