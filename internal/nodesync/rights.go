// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"strings"

	"github.com/mooring-dev/mooring/internal/rights"
)

// Right is one right in Kubernetes that node sync uses, as its doctor asks for it.
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

// Rights lists what node sync uses, with Calico's data in etcd or in Kubernetes.
func Rights(inKubernetes bool) (out []Right) {
	list := rights.NodeSync()
	for _, part := range list.Parts {
		if part.Option != "" && !inKubernetes {
			continue
		}
		for _, role := range part.Roles {
			for _, rule := range role.Rules {
				out = append(out, spread(role, rule, part.Option == "restore")...)
			}
		}
	}
	return out
}

// spread returns a rule as a right for each verb on each resource.
func spread(role rights.Role, rule rights.Rule, optional bool) (out []Right) {
	in := strings.TrimSuffix(role.In, rights.Own)
	for _, group := range rights.List(rule.Group) {
		for _, resource := range rights.List(rule.Resources) {
			for _, verb := range rights.List(rule.Verbs) {
				out = append(out, Right{
					Group: group, Resource: resource, Name: rule.Names, Verb: verb, Own: role.In == rights.Own, In: in,
					For: rule.For, Optional: optional,
				})
			}
		}
	}
	return out
}

// RestorableResources are those of Calico's objects that are removed, and put back from the journal, in both datastores.
func RestorableResources() (out []string) {
	for _, right := range Rights(true) {
		if right.Optional && right.Verb == "create" {
			out = append(out, right.Resource)
		}
	}
	return out
}
