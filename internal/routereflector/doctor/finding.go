// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
)

// Evidence is what is judged. The order of its lists does not matter.
type Evidence struct {
	Nodes []routereflector.Node
	Peers []routereflector.Peer
	Mesh  routereflector.Mesh
	// Etcd reports that Calico keeps its data in etcd: annotations of Kubernetes' Nodes are nothing to it there.
	Etcd bool
	// InvalidIDs is what stands in the place of the cluster ID of Calico Nodes in etcd and is none, by name.
	InvalidIDs map[string]string
	// Topologies are the cluster's, with the records of what the operator wrote. NoTopologies is why they could not be read, "" if they were.
	Topologies   []v1alpha1.RouteReflectorTopology
	NoTopologies string
	// Routes decide whether BGP carries routes between nodes, nil if they were not looked for. NoRoutes is why they could not be read, "" if they were.
	Routes   *clusterroutes.Settings
	NoRoutes string
	// Templates are BIRD's, nil if they were not looked for. NoTemplates is why they could not be read, "" if they were.
	Templates   *birdtemplates.Installation
	NoTemplates string
	// Policies are Calico's GlobalNetworkPolicies, nil if they were not looked for. NoPolicies is why they could not be
	// read, "" if they were.
	Policies   []calicov3.GlobalNetworkPolicy
	NoPolicies string
	// Unread are sentences about objects that cannot be read.
	Unread []string
}

// examined is the evidence with what the model makes of it.
type examined struct {
	Evidence
	families []routereflector.Family
	// reflectors are the nodes with a cluster ID, by index.
	reflectors []int32
}

// Findings makes every check. The worst findings come first, then the order of the checks holds; equal evidence gives equal findings.
// The names of the checks stand in JSON and MUST NOT change.
func Findings(e Evidence) []finding.Finding {
	e.Nodes = slices.SortedFunc(slices.Values(e.Nodes), func(a, b routereflector.Node) int { return strings.Compare(a.Name, b.Name) })
	e.Peers = slices.SortedFunc(slices.Values(e.Peers), func(a, b routereflector.Peer) int { return strings.Compare(a.Name, b.Name) })
	x := examined{Evidence: e, families: routereflector.Families(e.Nodes, e.Peers, e.Mesh.On)}
	for i := range e.Nodes {
		if e.Nodes[i].ClusterID != "" {
			x.reflectors = append(x.reflectors, int32(i))
		}
	}
	return finding.Make([]finding.Check[examined]{
		{Name: "cluster-routes", Find: clusterRoutes},
		{Name: "reachability", Find: reachable},
		{Name: "addresses", Find: addresses},
		{Name: "paths", Find: paths},
		{Name: "mesh", Find: mesh},
		{Name: "redundancy", Find: redundancy},
		{Name: "zones", Find: zones},
		{Name: "session-options", Find: options},
		{Name: "selectors", Find: selectors},
		{Name: "cluster-ids", Find: clusterIDs},
		{Name: "as-numbers", Find: asNumbers},
		{Name: "foreign-marks", Find: foreignMarks},
		{Name: "owners", Find: owners},
		{Name: "bgppeers", Find: peers},
		{Name: "external-peers", Find: external},
		{Name: "bird-templates", Find: templates},
		{Name: "bgp-port", Find: bgpPort},
		{Name: "unreadable", Find: unread},
	}, x)
}
