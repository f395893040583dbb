// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import "slices"

// CalicoGroup is the API group of Calico's objects in the kubernetes datastore.
const CalicoGroup = "crd.projectcalico.org"

// Right is one right in Kubernetes that node sync uses. What its rounds may write and what its doctor asks for follow
// from the list of them.
type Right struct {
	Group, Resource string
	// Name is of the one object it is about, "" for all.
	Name string
	Verb string
	// Own reports that it is about objects in the controller's own namespace.
	Own bool
	// In is the namespace of a role in another one, "" for any other right.
	In string
	// For says what it is for, and is empty for what a controller cannot do without.
	For string
	// Optional says that the roles that are shipped leave it out.
	Optional bool
}

// String is the right as kubectl auth can-i takes it, more or less.
func (r Right) String() string {
	resource := r.Kind()
	if r.Name != "" {
		resource += "/" + r.Name
	}
	if r.In != "" {
		resource += " in namespace " + r.In
	}
	return r.Verb + " " + resource
}

// Kind is the resource with its group.
func (r Right) Kind() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// to is the right with each of the verbs.
func (r Right) to(verbs ...string) (out []Right) {
	for _, r.Verb = range verbs {
		out = append(out, r)
	}
	return out
}

// Rights lists what config/calico-node-sync gives its service account, with Calico's data in etcd or in Kubernetes; a
// test compares the two.
func Rights(inKubernetes bool) []Right {
	const (
		metrics, leftovers = "asking who reads /metrics", "removing leftovers of deleted pods on existing machines"
		remember, events   = "saving over restarts since when Nodes are absent", "Events"
		leases             = "coordination.k8s.io"
	)
	out := slices.Concat(
		Right{Resource: "nodes"}.to("get", "list", "watch"),
		Right{Resource: "pods"}.to("list"), Right{Resource: "pods", For: leftovers}.to("get"),
		Right{Group: leases, Resource: "leases", In: "kube-node-lease", For: leftovers}.to("get"),
		Right{Resource: "namespaces", Name: "kube-system"}.to("get"),
		Right{Group: "authentication.k8s.io", Resource: "tokenreviews", For: metrics}.to("create"),
		Right{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", For: metrics}.to("create"),
		Right{Group: leases, Resource: "leases", Own: true}.to("create"),
		Right{Group: leases, Resource: "leases", Name: "calico-node-sync.nodes.mooring.dev", Own: true}.to("get", "update"),
		Right{Resource: "configmaps", Name: "calico-node-sync-state", Own: true, For: remember}.to("get", "update"),
		// The journal as the manifests have it: what cannot be kept is not removed.
		Right{Resource: "configmaps", Own: true}.to("create"),
		Right{Resource: "configmaps", Own: true, For: "keeping the journal in ConfigMaps"}.to("list", "delete"),
		Right{Resource: "events", Own: true, For: events}.to("create", "patch"),
		Right{Group: "events.k8s.io", Resource: "events", Own: true, For: events}.to("create", "patch"),
		Right{Group: "apps", Resource: "deployments", Name: "calico-node-sync", Own: true, For: events}.to("get"),
	)
	if !inKubernetes {
		return out
	}
	out = append(out, calicoRight("clusterinformations", "default").to("get")...)
	out = append(out, calicoRight("ipamconfigs", "default").to("get")...)
	for _, resource := range []string{"blockaffinities", "ipamblocks", "ipamhandles"} {
		out = append(out, calicoRight(resource, "").to("get", "list", "update", "delete")...)
	}
	out = append(out, calicoRight("hostendpoints", "").to("get", "list", "delete")...)
	for _, resource := range []string{"bgppeers", "caliconodestatuses", "bgpconfigurations", "felixconfigurations"} {
		right := calicoRight(resource, "")
		out = append(out, right.to("get", "list")...)
		right.For = "--also-remove"
		out = append(out, right.to("delete")...)
	}
	return out
}

// calicoRight is a right on Calico's own objects in the kubernetes datastore.
func calicoRight(resource, name string) Right {
	return Right{Group: CalicoGroup, Resource: resource, Name: name}
}

// RestorableResources are those of Calico's objects that are removed, and put back from the journal, in both datastores.
func RestorableResources() []string {
	return []string{
		"hostendpoints", "bgppeers", "caliconodestatuses", "bgpconfigurations", "felixconfigurations",
		"ipamhandles", "ipamblocks", "blockaffinities",
	}
}

// RestoreRights lists what putting back from the journal needs beside [Rights]; a test compares it with
// config/calico-node-sync/samples/restore-rights.yaml.
func RestoreRights(inKubernetes bool) (out []Right) {
	if !inKubernetes {
		return nil
	}
	for _, resource := range RestorableResources() {
		out = append(out, calicoRight(resource, "").to("create")...)
	}
	out = append(out, calicoRight("ippools", "").to("list")...)
	for i := range out {
		out[i].Optional = true
	}
	return out
}
