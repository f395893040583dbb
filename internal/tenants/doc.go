// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenants judges EtcdStorages by what etcd-storage-operator has written into their status: one list of
// verdicts, which kubectl mooring explain, doctor and status and the page lay out. It is pure. The core itself is not
// queried.
package tenants
