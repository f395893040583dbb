// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Speaks reports whether the node runs Calico's BGP for this cluster: on Windows confd and BIRD do not run, and without
// an address calico-node has not (or not yet) set BGP up.
func (n *Node) Speaks() bool { return n.RunsBGP() && !n.ForeignAS }

// RunsBGP reports whether confd gives the node sessions, in whichever AS. One of an AS of its own is a member of the
// mesh as every other node is, and has external sessions with reflectors that a BGPPeer gives it; it is neither a
// client nor a reflector.
func (n *Node) RunsBGP() bool {
	return (n.IPv4.IsValid() || n.IPv6.IsValid()) && n.Labels[corev1.LabelOSStable] != "windows"
}

// Number is the node's AS number.
func (n *Node) Number() uint32 { return cmp.Or(n.AS, DefaultASNumber) }

// speakerAS is the AS number that the model gives the node: 0 for the cluster's.
func (n *Node) speakerAS() uint32 {
	if n.ForeignAS {
		return n.Number()
	}
	return 0
}

// Lives reports whether routes through the node are counted on: its Node is Ready, and its witnesses have not lost it.
func (n *Node) Lives() bool { return n.Ready == corev1.ConditionTrue && !n.Dead }

// IsReflectorOf reports whether the node is wholly a reflector of the topology.
func (n *Node) IsReflectorOf(t *v1alpha1.RouteReflectorTopology) bool {
	return n.Marked(t) && n.hasGroupsID(t)
}

// Marked reports whether the node has the topology's label, whatever its cluster ID, and the label was not written by
// somebody else; or no label any more, and the cluster ID that was written with it.
func (n *Node) Marked(t *v1alpha1.RouteReflectorTopology) bool {
	label, has := n.Labels[v1alpha1.ReflectorLabel]
	return label == t.Name && !n.ForeignMark || !has && n.Written != nil
}

// ForeignReflector reports whether somebody else made the node a reflector.
func (n *Node) ForeignReflector(t *v1alpha1.RouteReflectorTopology) bool {
	label, has := n.Labels[v1alpha1.ReflectorLabel]
	return has && (label != t.Name || n.ForeignMark) || !has && n.ClusterID != "" && n.Written == nil
}

// IsClient reports whether the topology's BGPPeer for clients selects the node, and the node can take it up.
func (n *Node) IsClient(t *v1alpha1.RouteReflectorTopology) bool {
	return !n.ForeignAS && n.IsSelected(t)
}

// IsSelected reports whether the topology's BGPPeer for clients gives the node sessions, whatever its AS.
func (n *Node) IsSelected(t *v1alpha1.RouteReflectorTopology) bool {
	return n.RunsBGP() && ClientsMatcher{t.Spec.ClientSelector}.Evaluate(n.Labels)
}

// WhoseReflector describes a reflector that is not the topology's.
func (n *Node) WhoseReflector(t *v1alpha1.RouteReflectorTopology) string {
	if n.Usurps(t) {
		return "it has the label of this topology's reflectors, which this program did not write"
	}
	return "it is a reflector already, and not this topology's"
}

// Departs says that an autoscaler has marked the node: cluster-autoscaler, or Karpenter with its old or its new taint.
func (n *Node) Departs() bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler" || t.Key == "karpenter.sh/disrupted" ||
			t.Key == "karpenter.sh/disruption"
	})
}

// Retires says that somebody has cordoned the node, which is what comes before it is drained, restarted or deleted.
// Anyone who means to keep a reflector through that says so with an annotation.
func (n *Node) Retires() bool {
	_, keep := n.Annotations[v1alpha1.KeepAnnotation]
	return n.Unschedulable && !keep
}
