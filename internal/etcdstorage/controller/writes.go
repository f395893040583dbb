// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/rights"
)

// Writes are all writes of the operator: those that its rights grant, and those to the core etcd.
func Writes() []outputs.Write {
	patched := func(kind, field string) outputs.Write {
		return outputs.Write{
			System: outputs.Kubernetes, Kind: kind, Verbs: []string{"patch"}, Fields: []string{field}, Bound: true,
		}
	}
	storages := "etcdstorages." + v1alpha1.GroupVersion.Group
	all := outputs.Narrowed(reconcile.Granted(rights.Rounds(rights.EtcdStorage().Roles())),
		patched(storages, outputs.Field("metadata", "finalizers")), patched(storages+"/status", outputs.Field("status")))
	for service, rpcs := range map[string][]string{
		"KV":    {"Txn", "Compact"},
		"Lease": {"LeaseRevoke"},
		"Auth": {
			"UserAdd", "UserDelete", "UserGrantRole", "UserRevokeRole",
			"RoleAdd", "RoleDelete", "RoleGrantPermission", "RoleRevokePermission",
		},
		"Maintenance": {"Defragment", "Alarm"},
	} {
		all = append(all, outputs.Write{System: outputs.CoreEtcd, Kind: service, Verbs: rpcs})
	}
	return all
}
