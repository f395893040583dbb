// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Name is the name of the topology that is made of the variables. MUST NOT change: BGPPeers are named after it.
const Name = "main"

// Names of the old operator's BGPPeers.
const (
	meshPeer   = "rrs-to-rrs"
	simplePeer = "peer-to-rrs-1"
	multiPeers = "peer-to-rrs-*"
)

// Limits of a topology, by the CRD.
const (
	leastReflectors, mostReflectors = 2, 6
	mostInZone                      = 10
)

// Result is what the variables come to in a cluster.
type Result struct {
	// Topology is what stands for the variables, with its defaults. It is of use only if there are no Problems.
	Topology v1alpha1.RouteReflectorTopology
	// Problems are sentences about what cannot be had; Notes about what is otherwise than it was.
	Problems, Notes []string
}

// Topology says what the settings come to in a cluster of these nodes and BGPPeers. What the old operator has left there is adopted, in a plan that
// waits for a person.
func (s Settings) Topology(nodes []routereflector.Node, peers []routereflector.Peer, mesh routereflector.Mesh) Result {
	r := Result{Topology: v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: Name}}}
	spec := &r.Topology.Spec
	old := s.reflectors(nodes)
	spec.ClusterID = s.chooseID(old, &r)
	spec.Reflectors.Required.MatchExpressions = s.required()
	if s.zoneLabel != "" {
		s.zoned(nodes, spec, &r)
	} else {
		s.counted(nodes, len(old), spec, &r)
	}
	// The old operator never touched the mesh. Where it is off already, it comes back before the topology is given up.
	spec.Mesh = v1alpha1.MeshManage
	if mesh.On {
		spec.Mesh = v1alpha1.MeshObserve
		r.note("the node-to-node mesh is on and stays so, as the old operator never turned it off (spec.mesh: Observe)")
	}
	if len(old) > 0 {
		s.adopt(peers, spec)
		spec.Rollout.Mode = v1alpha1.RolloutManual
		r.note("%d reflectors of the old operator are to be adopted; nothing is written until spec.rollout.approvedPlan names the plan (status.plan.hash)", len(old))
	}
	if s.wait > 0 {
		r.note("%s is not needed: sessions are checked, without a fixed wait", WaitTimeout)
	}
	v1alpha1.SetDefaults(&r.Topology)
	return r
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *Result) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

// reflectors are the nodes that the old operator has made reflectors: its label and a cluster ID, and not our label.
func (s Settings) reflectors(nodes []routereflector.Node) []routereflector.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n routereflector.Node) bool {
		value, has := n.Labels[s.nodeLabel.key]
		_, ours := n.Labels[v1alpha1.ReflectorLabel]
		return ours || !has || n.ClusterID == "" || !s.multi && value != s.nodeLabel.value
	})
}

// chooseID is the ID that the variables name, or where no reflector has that the one that most have: the others have to change theirs.
func (s Settings) chooseID(old []routereflector.Node, r *Result) string {
	id, count := s.oneID(), map[string]int{}
	for _, n := range old {
		count[n.ClusterID]++
	}
	if len(old) > 0 && count[id] == 0 {
		ids := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
		id = ids[0]
	}
	if others := len(old) - count[id]; others > 0 {
		r.note("all reflectors share one cluster ID, %s; %d of %d have another one now, and lose their own pods' traffic for some seconds when it changes, one at a time",
			id, others, len(old))
	} else if s.multi && len(old) == 0 {
		r.note("all reflectors share one cluster ID, %s, in place of one each by %s", id, s.clusterID)
	}
	return id
}

// required excludes nodes with an incompatible label. Each of the old list was enough, so none of them may be there.
func (s Settings) required() []metav1.LabelSelectorRequirement {
	var out []metav1.LabelSelectorRequirement
	for _, l := range s.incompatible {
		if l.any {
			out = append(out, metav1.LabelSelectorRequirement{Key: l.key, Operator: metav1.LabelSelectorOpDoesNotExist})
			continue
		}
		out = append(out, metav1.LabelSelectorRequirement{Key: l.key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{l.value}})
	}
	return out
}

// zoned gives each zone its number, by the old formula. multi counted all nodes and divided by the zones, rounded up.
func (s Settings) zoned(nodes []routereflector.Node, spec *v1alpha1.RouteReflectorTopologySpec, r *Result) {
	spec.TopologyKeys = []string{s.zoneLabel}
	zones := 1
	if s.multi {
		all := map[string]bool{}
		for _, n := range nodes {
			if zone, has := n.Labels[s.zoneLabel]; has {
				all[zone] = true
			}
		}
		zones = max(len(all), 1)
	}
	least, most := ceil(s.min, zones), ceil(s.max, zones)
	if most > mostInZone {
		r.problem("%s %d: a zone has at most %d reflectors", Max, s.max, mostInZone)
	}
	if s.ratio%permille != 0 {
		r.problem("%s %q: with %s it must be a whole number of thousandths", Ratio, s.ratioText, ZoneLabel)
	}
	spec.Sizing.PerZone = &v1alpha1.PerZone{Min: int32(least), Max: int32(most), RatioPermille: int32(s.ratio / permille)}
	if zones > 1 {
		r.note("%s and %s are divided by the %d zones that there are now (spec.sizing.perZone)", Min, Max, zones)
	}
}

// counted is a number for the whole cluster: that of the reflectors that there are, or by the old formula. It does not follow the size of
// the cluster.
func (s Settings) counted(nodes []routereflector.Node, old int, spec *v1alpha1.RouteReflectorTopologySpec, r *Result) {
	number := old
	if old == 0 {
		eligible := 0
		for i := range nodes {
			if s.eligible(&nodes[i]) {
				eligible++
			}
		}
		number = min(max(ceil(eligible*s.ratio, million), s.min), s.max)
	}
	if old == 0 && s.min > mostReflectors {
		r.problem("%s %d: every client has a session with every reflector, so that a topology has at most %d", Min, s.min, mostReflectors)
	}
	redundancy := int32(min(max(number, leastReflectors), mostReflectors))
	spec.Redundancy = &redundancy
	if int(redundancy) != number {
		r.note("there are %d reflectors in place of %d (spec.redundancy is from %d to %d)", redundancy, number, leastReflectors, mostReflectors)
	}
}

// eligible reports that the old operator would have counted the node.
func (s Settings) eligible(n *routereflector.Node) bool {
	return n.Ready == corev1.ConditionTrue && !n.Unschedulable && (n.IPv4.IsValid() || n.IPv6.IsValid()) &&
		!slices.ContainsFunc(s.incompatible, func(l label) bool {
			value, has := n.Labels[l.key]
			return has && (l.any || value == l.value)
		})
}

// adopt names what the old operator has left.
func (s Settings) adopt(peers []routereflector.Peer, spec *v1alpha1.RouteReflectorTopologySpec) {
	spec.Adopt = &v1alpha1.Adoption{BGPPeers: []string{meshPeer, simplePeer}}
	if s.multi || slices.ContainsFunc(peers, func(p routereflector.Peer) bool {
		return p.Name != simplePeer && strings.HasPrefix(p.Name, strings.TrimSuffix(multiPeers, "*"))
	}) {
		spec.Adopt.BGPPeers = []string{meshPeer, multiPeers}
	}
	if s.multi {
		spec.Adopt.Nodes.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: s.nodeLabel.key, Operator: metav1.LabelSelectorOpExists}}
	} else {
		spec.Adopt.Nodes.MatchLabels = map[string]string{s.nodeLabel.key: s.nodeLabel.value}
	}
}

func ceil(a, b int) int { return (a + b - 1) / b }
