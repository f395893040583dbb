// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// ClusterRights are all rights of the operator on cluster-scoped objects, and to Events. Nothing here is unused, and tests run the operator with no
// others. There is none on Secrets or ConfigMaps: tenants grant those by name, in their namespaces.
func ClusterRights() []rbacv1.PolicyRule {
	group := v1alpha1.GroupVersion.Group
	return []rbacv1.PolicyRule{
		rule(group, []string{"etcdstorages"}, "get", "list", "watch", "patch"),
		rule(group, []string{"etcdstorages/status"}, "patch"),
		// The UID of the cluster, by which tenants of several clusters on one core are told apart.
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
		// Events about the EtcdStorages, which are in namespace default since EtcdStorages are in none.
		rule("events.k8s.io", []string{"events"}, "create", "patch"),
	}
}

// NamespaceRights are all its rights in its own namespace. In addition it needs there get, create and update on leases of coordination.k8s.io, for
// leader election.
func NamespaceRights() []rbacv1.PolicyRule {
	all := []string{"get", "list", "watch", "create", "patch", "delete"}
	return []rbacv1.PolicyRule{
		rule("", []string{"secrets", "configmaps", "services"}, all...),
		rule("apps", []string{"deployments"}, all...),
		rule("policy", []string{"poddisruptionbudgets"}, all...),
		rule("networking.k8s.io", []string{"networkpolicies"}, all...),
		// Only for EtcdStorages with spec.issuerRef.
		rule("cert-manager.io", []string{"certificates"}, "get", "create", "patch", "delete"),
		// Whether proxies still exist while an EtcdStorage is being deleted.
		rule("", []string{"pods"}, "list"),
	}
}

// Writes are all writes of the operator: those that its rights grant, and those to the core etcd.
func Writes() []outputs.Write {
	patched := func(kind, field string) outputs.Write {
		return outputs.Write{
			System: outputs.Kubernetes, Kind: kind, Verbs: []string{"patch"}, Fields: []string{field}, Bound: true,
		}
	}
	storages := "etcdstorages." + v1alpha1.GroupVersion.Group
	all := outputs.Narrowed(reconcile.Granted(append(ClusterRights(), NamespaceRights()...)),
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
