// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import "slices"

// Cloud are the rights of digitalocean-cloud-controller-manager. Its options are out-of-service and startup-taint.
func Cloud() Component {
	const name, lease, leases = "digitalocean-cloud-controller-manager", "cloud-controller-manager", "coordination.k8s.io"
	const account = "system:cloud-controller-manager"
	election := append(leaderElection(lease+", "+name+"-account"), Rule{
		Group: leases, Resources: "leases", Names: lease, Verbs: "watch", Why: "Who leads.",
	})
	return Component{
		Name: name, Values: "digitaloceanCloudControllerManager", Namespace: "kube-system",
		Account: "cloud-controller-manager", Metrics: true,
		Parts: []Part{
			{File: "base/rbac.yaml", Roles: []Role{
				{
					Name: account, Rules: slices.Concat(cloudEverywhere(), metrics()), Why: "There is no access to Secrets: the " +
						"kubelet hands the token over. Applied over the upstream project's ClusterRole of the same name it takes away " +
						"what nothing here uses.",
				},
				{
					Name: name, In: Own, Rules: election, Why: "Two Leases: that of leader election, and the one that records whose " +
						"account the cluster's droplets are in (docs/adr/0007).",
				},
			}},
			{File: "overlays/out-of-service/rbac.yaml", Option: "out-of-service", If: ".outOfService.enabled", Roles: []Role{
				{
					Name: name, In: "kube-node-lease", Why: "The kubelets' Leases are in a namespace of their own.", Rules: []Rule{{
						Group: leases, Resources: "leases", Verbs: "get, list", Why: "Whether kubelets still renew their Leases, which " +
							"have the names of Nodes: all are listed every eight seconds, and one is read again right before its Node gets " +
							"the taint.",
					}},
				},
				{
					Name: name + "-out-of-service", In: Own, Why: "To create the Lease is allowed as for the others.", Rules: []Rule{{
						Group: leases, Resources: "leases", Names: name + "-out-of-service", Verbs: "get, update",
						Why: "The Lease that records which machines are off, and what needs confirmation.",
					}},
				},
			}},
			{File: "overlays/startup-taint/rbac.yaml", Option: "startup-taint", If: ".volumeStartupTaint", Roles: []Role{{
				Name: account + ":startup-taint", Why: "The taint itself is removed with the rights on Nodes.", Rules: []Rule{{
					Group: "storage.k8s.io", Resources: "csinodes", Verbs: "list, watch",
					Why: "On which machines kubelets have registered the volume driver.",
				}},
			}}},
		},
	}
}

// cloudEverywhere are the rights on what is in all namespaces or in none.
func cloudEverywhere() []Rule {
	return []Rule{
		{
			Resources: "nodes", Verbs: "get, list, watch, update, patch, delete", Why: "Which machines exist (list, watch), " +
				"and one live read right before a Node is given up (get). A new Node gets its provider ID and loses the taint " +
				"(update); labels and the taint of a machine that is off (patch); a Node whose droplet is proven to be gone is " +
				"deleted.",
		},
		{Resources: "nodes/status", Verbs: "patch", Why: "The addresses."},
		{
			Resources: "services", Verbs: "list, watch, patch", Why: "Which load balancers are wanted (list, watch), and the " +
				"annotations that note their ID and type (patch).",
		},
		{
			Resources: "services/status", Verbs: "patch", Why: "The address of the load balancer, and by the same way the " +
				"finalizer that keeps a Service until its load balancer is gone.",
		},
		{
			Resources: "namespaces", Verbs: "get", Why: "Which load balancers of others a namespace may take over, which an " +
				"annotation of it says.",
		},
		{
			Group: "discovery.k8s.io", Resources: "endpointslices", Verbs: "list, watch", Why: "Which Nodes have pods of a " +
				"Service that wants no other targets (annotation do-loadbalancer-local-targets-only).",
		},
		{
			Resources: "events", Verbs: "create, patch", Why: "Events about Nodes, Services and the Lease, which are in many " +
				"namespaces. A patch counts repetitions.",
		},
	}
}
