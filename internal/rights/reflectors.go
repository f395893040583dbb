// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import "slices"

// CalicoGroups are the API groups in which Calico's kinds may be served. The route reflectors' operator uses one of
// them, and finds out which at its start.
const CalicoGroups = "projectcalico.org, crd.projectcalico.org"

// Reflectors are the rights of calico-route-reflector-operator. Its options are kubernetes and etcdv3, Calico's
// datastore, and environment, the variables of the operator of 2020.
func Reflectors() Component {
	const name, group = "calico-route-reflector-operator", "bgp.mooring.dev"
	everywhere := []Rule{
		{
			Group: group, Resources: "routereflectortopologies", Verbs: "list, watch, patch",
			Why: "The topologies (list, watch), and the finalizer that keeps one until the mesh is back (patch).",
		},
		{Group: group, Resources: "routereflectortopologies/status", Verbs: "update", Why: "The status of topologies."},
		{Resources: "nodes", Verbs: "list, watch", Why: "Which nodes there are, and in which condition."},
		{
			Resources: "pods", Verbs: "list, watch", Why: "Which nodes have workloads. Read only if a topology has " +
				"reflectors.avoidWorkloads, which is the default, or reflectors.dedicated.",
		},
		{
			Group: "events.k8s.io", Resources: "events", Verbs: "create, patch", Why: "Events about topologies. They are in " +
				"the namespace default since topologies are in none. A patch counts repetitions.",
		},
	}
	own := append(leaderElection(name+".bgp.mooring.dev"),
		Rule{Resources: "events", Verbs: "create", Plumbing: true, Why: "Events about leader election."})
	return Component{
		Name: name, Values: "calicoRouteReflectorOperator", Namespace: "mooring-system", Account: name, Metrics: true,
		Parts: []Part{
			{File: "base/rbac.yaml", Roles: []Role{
				{
					Name: "mooring-" + name, Rules: slices.Concat(everywhere, metrics()),
					Why: "What the datastore needs is in its overlay. There is no access to Secrets.",
				},
				{Name: name, In: Own, Why: "What is its own, in its own namespace.", Rules: own},
			}},
			{File: "overlays/kubernetes/rbac.yaml", Option: "kubernetes", If: `eq .datastore "kubernetes"`, Roles: []Role{{
				Name: "mooring-" + name + "-datastore", Rules: reflectorsInKubernetes(), Why: "Calico's kinds are served as " +
					"projectcalico.org/v3, by Calico's API server or as its native CRDs, or as crd.projectcalico.org/v1. The " +
					"program uses one of the two, finds out which at its start, and again when a request finds nothing, so it " +
					"has the same rights on both.",
			}}},
			{File: "overlays/etcdv3/rbac.yaml", Option: "etcdv3", If: `eq .datastore "etcdv3"`, Roles: []Role{{
				Name: "mooring-" + name + "-datastore", Why: "With this datastore Calico's objects, the roles of nodes among " +
					"them, are in etcd, for which the mounted certificate is the right. No Node is written.",
				Rules: []Rule{{
					Resources: "namespaces", Names: "kube-system", Verbs: "get", Why: "The UID of kube-system tells clusters " +
						"apart, so that an etcd of another cluster is never written.",
				}},
			}}},
			{File: "overlays/environment/rbac.yaml", Option: "environment", If: NotInChart, Roles: environment(name)},
		},
	}
}

// environment are the roles for variables of the operator of 2020.
func environment(name string) []Role {
	return []Role{
		{
			Name: "mooring-" + name + "-environment", Why: "What the variables need, and nothing else does.",
			Rules: []Rule{{
				Group: "bgp.mooring.dev", Resources: "routereflectortopologies", Verbs: "create",
				Why: "The topology that the variables describe, once.",
			}},
		},
		{
			Name: name + "-environment", In: Own, Why: "What the variables need in the program's namespace.",
			Rules: []Rule{{
				Group: "coordination.k8s.io", Resources: "leases", Names: name + "-environment", Verbs: "get",
				Why: "Whether the topology has been created: this Lease records it.",
			}},
		},
	}
}

// reflectorsInKubernetes are the rights on Calico's datastore in the API server.
func reflectorsInKubernetes() []Rule {
	return []Rule{
		{
			Resources: "nodes", Verbs: "patch", Why: "The label and Calico's annotation of a reflector, in one patch. RBAC " +
				"cannot name keys. Nodes are never written in another way.",
		},
		{
			Group: CalicoGroups, Resources: "bgppeers", Verbs: "list, watch, create, patch, delete", Why: "All are read, since " +
				"the model that checks each write counts on sessions of others, too. Those with the topology's label are " +
				"written, and deleted by UID and resourceVersion.",
		},
		{
			Group: CalicoGroups, Resources: "bgpconfigurations", Verbs: "list, watch, create, patch",
			Why: "The switch of the node-to-node mesh, in default. RBAC cannot tie a create to a name.",
		},
		{
			Group: CalicoGroups, Resources: "caliconodestatuses", Verbs: "list, watch, create, delete",
			Why: "Status requests to calico-node: which sessions it has. They are made for a step and deleted after it.",
		},
		{
			Group: CalicoGroups, Resources: "bgpfilters", Verbs: "list, watch",
			Why: "Whether the filters that topologies name exist; only their names are kept.",
		},
		{
			Group: CalicoGroups, Resources: "felixconfigurations, ippools", Verbs: "list",
			Why: "Whether BGP carries routes between nodes, before a topology is enabled.",
		},
		{
			Group: CalicoGroups, Resources: "clusterinformations", Verbs: "get, list, watch",
			Why: "Whether the datastore is open for changes.",
		},
	}
}
