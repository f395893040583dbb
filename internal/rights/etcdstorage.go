// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import "slices"

// EtcdStorage are the rights of etcd-storage-operator.
func EtcdStorage() Component {
	const name, group, all = "etcd-storage-operator", "etcd.mooring.dev", "get, list, watch, create, patch, delete"
	everywhere := []Rule{
		{
			Group: group, Resources: "etcdstorages", Verbs: "get, list, watch, patch",
			Why: "The EtcdStorages, and the finalizer on them (patch).",
		},
		{Group: group, Resources: "etcdstorages/status", Verbs: "patch", Why: "The status of EtcdStorages."},
		{
			Resources: "namespaces", Names: "kube-system", Verbs: "get",
			Why: "The UID of kube-system tells the clusters on one core apart.",
		},
		{
			Group: "events.k8s.io", Resources: "events", Verbs: "create, patch", Why: "Events about EtcdStorages. They are in " +
				"the namespace default since EtcdStorages are in none.",
		},
	}
	own := []Rule{
		{
			Resources: "secrets, configmaps, services", Verbs: all,
			Why: "What serves the tenants, with their keys, and the core's credentials.",
		},
		{Group: "apps", Resources: "deployments", Verbs: all, Why: "The proxies."},
		{Group: "policy", Resources: "poddisruptionbudgets", Verbs: all, Why: "How many proxies a drain may stop."},
		{Group: "networking.k8s.io", Resources: "networkpolicies", Verbs: all, Why: "Who reaches the proxies."},
		{
			Group: "cert-manager.io", Resources: "certificates", Verbs: "get, create, patch, delete",
			Why: "Only for EtcdStorages with spec.issuerRef.",
		},
		{Resources: "pods", Verbs: "list", Why: "Whether proxies still exist while an EtcdStorage is being deleted."},
	}
	election := append(leaderElection(name+"."+group),
		Rule{Resources: "events", Verbs: "create", Plumbing: true, Why: "Events about leader election."})
	return Component{
		Name: name, Values: "etcdStorageOperator", Namespace: "kube-apiserver-storage", Account: name, Metrics: true,
		Parts: []Part{{File: "base/rbac.yaml", Roles: []Role{
			{
				Name: "mooring-" + name, Rules: slices.Concat(everywhere, metrics()), Why: "There is no right on Secrets and " +
					"ConfigMaps outside of the operator's namespace: tenants grant those, each by its name.",
			},
			{Name: name, In: Own, Why: "All that it makes is in its own namespace.", Rules: slices.Concat(own, election)},
		}}},
	}
}
