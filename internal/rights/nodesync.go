// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package rights

import "slices"

// CalicoGroup is the API group of Calico's objects that calico-node-sync uses in the kubernetes datastore.
const CalicoGroup = "crd.projectcalico.org"

// leftovers is the use of what only the removal of leftovers of Pods needs.
const leftovers = "removing leftovers of deleted pods on existing machines"

// NodeSync are the rights of calico-node-sync. Its options are kubernetes, Calico's datastore, and restore, to create
// what was removed.
func NodeSync() Component {
	const name = "calico-node-sync"
	everywhere := []Rule{
		{
			Resources: "nodes", Verbs: "get, list, watch",
			Why: "Which machines exist: the watch, and the live read before anything is removed.",
		},
		{Resources: "pods", Verbs: "get", For: leftovers, Why: "The live read of a pod whose address is to be released."},
		{
			Resources: "pods", Verbs: "list", Why: "Whether pods of a Node that was deleted still run: queried live for that " +
				"Node, never watched for all. Which pods exist, by name alone, at each sweep.",
		},
		{
			Resources: "namespaces", Names: "kube-system", Verbs: "get", Why: "The UID of kube-system tells clusters apart, so " +
				"that one cluster's list never judges another's datastore.",
		},
	}
	return Component{
		Name: name, Values: "calicoNodeSync", Namespace: "mooring-system", Account: name, Metrics: true,
		Parts: []Part{
			{File: "base/rbac.yaml", Roles: []Role{
				{
					Name: "mooring-" + name, Rules: slices.Concat(everywhere, metrics()), Why: "There is no write on Nodes or Pods " +
						"and no access to Secrets: the credentials of Calico's etcd are mounted.",
				},
				{Name: name, In: Own, Why: "What is its own, in its own namespace.", Rules: ownOfNodeSync(name)},
			}},
			{File: "leases/rbac.yaml", Roles: []Role{{
				Name: name, In: "kube-node-lease", Why: "The kubelets' Leases are in a namespace of their own.",
				Rules: []Rule{{
					Group: "coordination.k8s.io", Resources: "leases", Verbs: "get", For: leftovers, Why: "Whether the kubelet of a " +
						"machine works, before an address of a pod that is gone is released there. Its Lease has the name of the Node.",
				}},
			}}},
			{File: "overlays/kubernetes/rbac.yaml", Option: "kubernetes", If: `eq .datastore "kubernetes"`, Roles: []Role{{
				Name: "mooring-" + name + "-datastore", Rules: nodeSyncInKubernetes(), Why: "With this datastore a Calico node is " +
					"the Kubernetes Node and its endpoints are the pods, which are never written; what remains to be removed is its " +
					"share of the IPAM, and resources about it alone. Nothing is ever created, and no object is deleted but by its " +
					"name, UID and resourceVersion.",
			}}},
			{
				File: "samples/restore-rights.yaml", Option: "restore", If: `and (eq .datastore "kubernetes") .restoreRights`,
				Roles: []Role{restore(name)},
			},
		},
	}
}

// ownOfNodeSync are the rights in its own namespace.
func ownOfNodeSync(name string) []Rule {
	const events = "Events"
	return append(leaderElection(name+".nodes.mooring.dev"),
		Rule{
			Resources: "configmaps", Verbs: "create", Why: "The state and the journal. ConfigMaps of the journal are " +
				"immutable, so no right to change them is needed.",
		},
		Rule{
			Resources: "configmaps", Names: name + "-state", Verbs: "get, update",
			For: "saving over restarts since when Nodes are absent", Why: "Since when Nodes are absent, so that a restart does " +
				"not begin grace periods again; people confirm there what the mass guard holds back.",
		},
		Rule{
			Resources: "configmaps", Verbs: "list, delete", If: `eq .journal.mode "configmaps"`,
			For: "keeping the journal in ConfigMaps", Why: "The journal: which entries exist, and which are old enough to " +
				"delete. RBAC knows no prefixes, so this holds for all ConfigMaps of this namespace; the program touches those " +
				"with its label, its name and the UID that it has listed. With --journal=folder or none it needs neither.",
		},
		Rule{
			Group: ", events.k8s.io", Resources: "events", Verbs: "create, patch", For: events, Plumbing: true,
			Why: "Events about the Deployment below; of leader election, about the Lease (the core group). A patch counts " +
				"repetitions.",
		},
		Rule{
			Group: "apps", Resources: "deployments", Names: name, Verbs: "get", For: events, Plumbing: true,
			Why: "Its UID, by which kubectl describe finds the Events.",
		})
}

// nodeSyncInKubernetes are the rights on Calico's datastore in the API server.
func nodeSyncInKubernetes() []Rule {
	const looked = "bgppeers, caliconodestatuses, bgpconfigurations, felixconfigurations"
	return []Rule{
		{
			Group: CalicoGroup, Resources: "clusterinformations", Names: "default", Verbs: "get",
			Why: "Whether the datastore is open for changes.",
		},
		{
			Group: CalicoGroup, Resources: "ipamconfigs", Names: "default", Verbs: "get",
			Why: "For how long a released address must not be assigned again.",
		},
		{
			Group: CalicoGroup, Resources: "blockaffinities, ipamblocks", Verbs: "get, list, update, delete", Why: "A release " +
				"rewrites a block (update) or removes it when empty (delete); an affinity is first set to be deleted, then removed.",
		},
		{
			Group: CalicoGroup, Resources: "ipamhandles", Verbs: "get, list, update, delete", Why: "A release lowers a " +
				"handle's count, or removes the handle with its last address. All are listed to find handles of no address.",
		},
		{
			Group: CalicoGroup, Resources: "hostendpoints", Verbs: "get, list, delete", Why: "Those that kube-controllers " +
				"made for the host are removed; users' only with --also-remove=HostEndpoint.",
		},
		{Group: CalicoGroup, Resources: looked, Verbs: "get, list", Why: "Which are about one host alone."},
		{
			Group: CalicoGroup, Resources: looked, Verbs: "delete", For: "--also-remove", Why: "Removed only with " +
				"--also-remove=BGPPeer and so on, each of which needs its delete. Of configurations that is node.<name> and " +
				"never default, which RBAC cannot say: it knows no beginnings of names.",
		},
	}
}

// restore is the role to create what was removed.
func restore(name string) Role {
	return Role{
		Name: "mooring-" + name + "-restore", Why: "For `kubectl mooring restore` with Calico's data in the Kubernetes API: " +
			"what the controller needs to put back what it has removed, and does not need to remove it. Not part of any overlay: " +
			"with it, who may patch ConfigMap calico-node-sync-state can have such objects made, as far as the journal holds " +
			"them. Apply it when something is to be put back, and delete it afterwards; or run `calico-node-sync restore` with " +
			"an account of your own that has these rights.",
		Rules: []Rule{
			{
				Group: CalicoGroup, Resources: "hostendpoints, bgppeers, caliconodestatuses, bgpconfigurations, felixconfigurations",
				Verbs: "create", Why: "Users' objects that --also-remove took along.",
			},
			{
				Group: CalicoGroup, Resources: "ipamhandles, ipamblocks, blockaffinities", Verbs: "create",
				Why: "An address of a pod's leftovers, with its handle; its block and the machine's claim, if they are gone.",
			},
			{
				Group: CalicoGroup, Resources: "ippools", Verbs: "list",
				Why: "A block is made again only if a pool still has it.",
			},
		},
	}
}
