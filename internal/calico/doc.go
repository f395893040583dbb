// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package calico is the one adapter to Calico's datastores.
//
// It reads through libcalico-go's data model, whole sets of objects at one revision, and says which values it could not parse instead of
// leaving them out (libcalico-go's own List drops them in silence, so that "not listed" would look like "not there").
//
// It writes by its own small transactions, because no call of libcalico-go is safe for the purpose: Nodes().Delete destroys a node's
// endpoints, addresses and configuration before it looks at its precondition. Every destructive write here is one etcd transaction that
// holds only if the Calico Node is as the caller saw it (the [Guard]) and the object is as the caller saw it.
//
// It decides nothing: what to remove is decided by the components' pure packages.
package calico
