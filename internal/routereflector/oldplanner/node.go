// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

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

// lives reports whether routes through the node are counted on: its Node is Ready, and its witnesses have not lost it.
func (n *Node) lives() bool { return n.Ready == corev1.ConditionTrue && !n.Dead }

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

// whoseReflector describes a reflector that is not the topology's.
func (n *Node) whoseReflector(t *v1alpha1.RouteReflectorTopology) string {
	if n.usurps(t) {
		return "it has the label of this topology's reflectors, which this program did not write"
	}
	return "it is a reflector already, and not this topology's"
}

// departs says that an autoscaler has marked the node: cluster-autoscaler, or Karpenter with its old or its new taint.
func (n *Node) departs() bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler" || t.Key == "karpenter.sh/disrupted" || t.Key == "karpenter.sh/disruption"
	})
}

// retires says that somebody has cordoned the node, which is what comes before it is drained, restarted or deleted. Anyone who means to keep a reflector
// through that says so with an annotation.
func (n *Node) retires() bool {
	_, keep := n.Annotations[v1alpha1.KeepAnnotation]
	return n.Unschedulable && !keep
}
