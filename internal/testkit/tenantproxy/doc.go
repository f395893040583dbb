// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantproxy starts what stands between a tenant and a core etcd: etcd-storage-proxy in this process or as its own binary, and
// etcd's grpc-proxy, which the suites are measured against. It also has a relay that cuts connections.
//
// It is apart from testkit because it links the proxy, whose own tests use testkit.
package tenantproxy
