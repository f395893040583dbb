// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// troublePrefix begins the taints that Kubernetes sets for a node in trouble. What they say is judged by the node's condition instead.
const troublePrefix = "node.kubernetes.io/"

// speaks reports whether the node runs Calico's BGP for this cluster: on Windows confd and BIRD do not run, and without an address calico-node
// has not (or not yet) set BGP up.
func (n *Node) speaks() bool { return n.runsBGP() && !n.ForeignAS }

// runsBGP reports whether confd gives the node sessions, in whichever AS. One of an AS of its own is a member of the mesh as every other
// node is, and has external sessions with reflectors that a BGPPeer gives it; it is neither a client nor a reflector.
func (n *Node) runsBGP() bool {
	return (n.IPv4.IsValid() || n.IPv6.IsValid()) && n.Labels[corev1.LabelOSStable] != "windows"
}

// as is the node's AS number.
func (n *Node) as() uint32 { return cmp.Or(n.AS, DefaultASNumber) }

// speakerAS is the AS number that the model gives the node: 0 for the cluster's.
func (n *Node) speakerAS() uint32 {
	if n.ForeignAS {
		return n.as()
	}
	return 0
}

// isReflectorOf reports whether the node is wholly a reflector of the topology.
func (n *Node) isReflectorOf(t *v1alpha1.RouteReflectorTopology) bool {
	return n.marked(t) && n.hasGroupsID(t)
}

// marked reports whether the node has the topology's label, whatever its cluster ID, and the label was not written by somebody else; or no
// label any more, and the cluster ID that was written with it.
func (n *Node) marked(t *v1alpha1.RouteReflectorTopology) bool {
	label, has := n.Labels[v1alpha1.ReflectorLabel]
	return label == t.Name && !n.ForeignMark || !has && n.Written != nil
}

// foreignReflector reports whether somebody else made the node a reflector.
func (n *Node) foreignReflector(t *v1alpha1.RouteReflectorTopology) bool {
	label, has := n.Labels[v1alpha1.ReflectorLabel]
	return has && (label != t.Name || n.ForeignMark) || !has && n.ClusterID != "" && n.Written == nil
}

// isClient reports whether the topology's BGPPeer for clients selects the node, and the node can take it up.
func (n *Node) isClient(t *v1alpha1.RouteReflectorTopology) bool {
	return !n.ForeignAS && n.isSelected(t)
}

// isSelected reports whether the topology's BGPPeer for clients gives the node sessions, whatever its AS.
func (n *Node) isSelected(t *v1alpha1.RouteReflectorTopology) bool {
	return n.runsBGP() && clientsMatcher{t.Spec.ClientSelector}.Evaluate(n.Labels)
}

// unfit says why the node may not be a reflector, whether it is one or not; "" if it may.
func (w candidates) unfit(n *Node) string {
	s := &w.Topology.Spec.Reflectors
	switch {
	case n.Labels[corev1.LabelOSStable] == "windows":
		return "it runs Windows, where Calico has no BIRD"
	case n.ForeignAS:
		return "its AS number is not the cluster's"
	case !n.speaks():
		return "calico-node has given it no BGP address"
	case w.lacksFamily(n) != "":
		return "it has no BGP address of the family " + w.lacksFamily(n) + ", which clients use"
	case n.foreignReflector(&w.Topology) && !n.adoptedBy(&w.Topology):
		return n.whoseReflector(&w.Topology)
	case n.Deleting:
		return "its Node is being deleted"
	case n.departs():
		return "it is marked for removal by an autoscaler"
	case !selects(s.Required, n.Labels):
		return "spec.reflectors.required does not select it"
	case s.Excluded != nil && selects(*s.Excluded, n.Labels):
		return "spec.reflectors.excluded selects it"
	case s.Dedicated && n.Workloads > 0 && !n.marked(&w.Topology):
		// A reflector on which a pod has come to run stays: moving it would hurt that pod as well.
		return fmt.Sprintf("%d workload pods run on it, and spec.reflectors.dedicated allows none", n.Workloads)
	}
	return ""
}

// whoseReflector describes a reflector that is not the topology's.
func (n *Node) whoseReflector(t *v1alpha1.RouteReflectorTopology) string {
	if n.usurps(t) {
		return "it has the label of this topology's reflectors, which this program did not write"
	}
	return "it is a reflector already, and not this topology's"
}

// lacksFamily names the address family that every other client has and the node has not.
func (w candidates) lacksFamily(n *Node) string {
	for _, f := range w.Topology.Spec.IPFamilies {
		if f == corev1.IPv4Protocol && !n.IPv4.IsValid() || f == corev1.IPv6Protocol && !n.IPv6.IsValid() {
			return string(f)
		}
	}
	return ""
}

// departs reports that an autoscaler has marked the node: cluster-autoscaler, or Karpenter with its old or its new taint.
func (n *Node) departs() bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler" || t.Key == "karpenter.sh/disrupted" || t.Key == "karpenter.sh/disruption"
	})
}

// unfitToBecome says why the node may not become a reflector now, beyond what [World.unfit] says.
func (w candidates) unfitToBecome(n *Node) string {
	stable := w.stabilization()
	switch {
	case n.Ready != corev1.ConditionTrue:
		return "its Node is not Ready"
	case w.Now.Sub(n.ReadySince) < stable:
		return fmt.Sprintf("its Node has been Ready for %s of %s (spec.failure.stabilization)", w.Now.Sub(n.ReadySince).Round(time.Second), stable)
	case n.Unschedulable:
		return "it is cordoned"
	}
	for _, taint := range n.Taints {
		if !w.tolerates(taint) {
			return fmt.Sprintf("spec.reflectors.tolerations do not tolerate its taint %s", taint.ToString())
		}
	}
	return ""
}

func (w facts) stabilization() time.Duration {
	if d := w.Topology.Spec.Failure.Stabilization; d != nil {
		return d.Duration
	}
	return 0
}

func (w candidates) tolerates(taint corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, troublePrefix) {
		return true
	}
	return slices.ContainsFunc(w.Topology.Spec.Reflectors.Tolerations, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" && t.Operator == corev1.TolerationOpExists ||
			t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value))
	})
}
