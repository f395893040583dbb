// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package fidelity shows that API servers cannot tell a proxied tenant from an etcd of their own: the tests that k8s.io/apiserver exports for
// storage run on an etcd3 store and on the watch cache over the proxy, and a real kube-apiserver lives on a tenant alongside another.
//
// What these tests demand that no store outside Kubernetes' own packages can give is left out by name, with the reason (omitted).
package fidelity
