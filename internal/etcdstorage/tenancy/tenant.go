// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"errors"
	"fmt"
)

const (
	// defaultTxnOps is etcd's default of --max-txn-ops (server/embed/config.go).
	defaultTxnOps = 128
	// maxTxnOps bounds what may be chosen, and with it how deep Txns can nest: the parser recurses once per level.
	maxTxnOps = 4096
	// txnParts is how many times TxnOps the compares and operations of all levels may be. A Txn that nests nothing has three times as many at most;
	// etcd has no such bound, and a request of 2 MiB can then ask for some 300,000 lists in one answer, which the core must hold in memory.
	txnParts = 16
)

// Limits bounds what one request of a tenant may ask for. The zero value holds etcd's defaults.
type Limits struct {
	// TxnOps is the number of compares, of success and of failure operations that a Txn may have; a Txn inside it may have that many less
	// than its parent has. 0 means etcd's default, 128. A value above the core's --max-txn-ops has no effect: the core refuses. All levels together
	// may have 16 times as many compares and operations, which etcd does not bound.
	TxnOps int
}

// MaxTxnOps returns TxnOps or its default.
func (l Limits) MaxTxnOps() int {
	if l.TxnOps == 0 {
		return defaultTxnOps
	}
	return l.TxnOps
}

// MaxTxnParts returns the number of compares and operations that all levels of a Txn may have together.
func (l Limits) MaxTxnParts() int { return txnParts * l.MaxTxnOps() }

// Tenant is everything about a tenant that rewriting a request or a response depends on. It is a value; once a proxy runs, nothing but Revisions
// is another one after the core went back.
type Tenant struct {
	Prefix    Prefix
	Leases    LeaseSpace
	Limits    Limits
	Revisions Revisions
}

// Valid tells whether the tenant has a prefix and a lease space. Nothing may be rewritten for one that has not: it would be everybody's.
func (t *Tenant) Valid() bool { return t != nil && !t.Prefix.IsZero() && !t.Leases.IsZero() }

// Validate says in one sentence why a tenant cannot be served.
func (t *Tenant) Validate() error {
	switch {
	case t == nil || t.Prefix.IsZero():
		return errors.New("the tenant has no prefix")
	case t.Leases.IsZero():
		return errors.New("the tenant has no lease space")
	case t.Limits.TxnOps < 0 || t.Limits.TxnOps > maxTxnOps:
		return fmt.Errorf("the limit of operations in a transaction is %d: it must lie between 0, which means %d, and %d",
			t.Limits.TxnOps, defaultTxnOps, maxTxnOps)
	}
	return nil
}
