// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import rbacv1 "k8s.io/api/rbac/v1"

// CalicoGroups are the API groups in which Calico's kinds may be served; the operator uses one of them, and finds out which at the start.
func CalicoGroups() []string { return []string{"projectcalico.org", "crd.projectcalico.org"} }

// Rights are all rights of the operator on cluster-scoped objects and pods where Calico keeps its data in the API server. Nothing here is
// unused, and a test runs the operator with no others.
// In addition it needs, in its own namespace, get, create and update on leases of coordination.k8s.io and create on events of the core group, for
// leader election; and where metrics are served over TLS to authorized clients, create on tokenreviews and subjectaccessreviews.
func Rights() []rbacv1.PolicyRule {
	return append(commonRights(),
		// The label and Calico's annotation, in one patch.
		right([]string{""}, []string{"nodes"}, "patch"),
		right(CalicoGroups(), []string{"bgppeers"}, "list", "watch", "create", "patch", "delete"),
		// The switch of the mesh. It is never deleted.
		right(CalicoGroups(), []string{"bgpconfigurations"}, "list", "watch", "create", "patch"),
		// Questions to calico-node.
		right(CalicoGroups(), []string{"caliconodestatuses"}, "list", "watch", "create", "delete"),
		// Whether the filters that topologies name are there.
		right(CalicoGroups(), []string{"bgpfilters"}, "list", "watch"),
		// Whether BGP carries routes between nodes, before a topology is enabled.
		right(CalicoGroups(), []string{"felixconfigurations", "ippools"}, "list"),
		// Whether the datastore may be written to.
		right(CalicoGroups(), []string{"clusterinformations"}, "get", "list", "watch"),
	)
}

// EtcdRights are the same where Calico keeps its data in etcd, which asks for rights of its own: read and write below /calico/.
func EtcdRights() []rbacv1.PolicyRule {
	cluster := right([]string{""}, []string{"namespaces"}, "get")
	// Its UID tells clusters apart.
	cluster.ResourceNames = []string{"kube-system"}
	return append(commonRights(), cluster)
}

func right(groups []string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs}
}

// commonRights are those that both datastores need.
func commonRights() []rbacv1.PolicyRule {
	own, core := []string{"bgp.mooring.dev"}, []string{""}
	return []rbacv1.PolicyRule{
		// The topologies, the finalizer on them and their status.
		right(own, []string{"routereflectortopologies"}, "list", "watch", "patch"),
		right(own, []string{"routereflectortopologies/status"}, "update"),
		// Which nodes there are, and in which condition.
		right(core, []string{"nodes"}, "list", "watch"),
		// Which nodes have workloads. Not used where every topology has reflectors.avoidWorkloads false and reflectors.dedicated false.
		right(core, []string{"pods"}, "list", "watch"),
		// Events about the topologies, which are in namespace default since topologies are in none.
		right([]string{"events.k8s.io"}, []string{"events"}, "create", "patch"),
	}
}
