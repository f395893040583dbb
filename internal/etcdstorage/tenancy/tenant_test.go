// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	prefix := mustPrefix(t, "/a/")
	leases := tenancy.DeriveLeaseSpace(prefix)
	good := tenancy.Tenant{Prefix: prefix, Leases: leases, Limits: tenancy.Limits{TxnOps: 4096}}
	if err := good.Validate(); err != nil || !good.Valid() {
		t.Errorf("a good tenant: %v", err)
	}
	for sentence, tenant := range map[string]*tenancy.Tenant{
		"the tenant has no prefix":      {Leases: leases},
		"the tenant has no lease space": {Prefix: prefix},
		"the limit of operations in a transaction is -1: it must lie between 0, which means 128, and 4096": {
			Prefix: prefix, Leases: leases, Limits: tenancy.Limits{TxnOps: -1},
		},
		"the limit of operations in a transaction is 4097: it must lie between 0, which means 128, and 4096": {
			Prefix: prefix, Leases: leases, Limits: tenancy.Limits{TxnOps: 4097},
		},
	} {
		if err := tenant.Validate(); err == nil || err.Error() != sentence {
			t.Errorf("%v, want %s", err, sentence)
		}
	}
	var nobody *tenancy.Tenant
	if err := nobody.Validate(); err == nil || nobody.Valid() {
		t.Error("nobody is a valid tenant")
	}
	if (tenancy.Limits{}).MaxTxnOps() != 128 || (tenancy.Limits{TxnOps: 5}).MaxTxnOps() != 5 {
		t.Error("the default of 128 operations is etcd's")
	}
}
