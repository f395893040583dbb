// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package startuptaint

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

const (
	// driver is the name of the volume driver.
	driver = "dobs.csi.digitalocean.com"
	// Key is that of the taint. Kubelets are configured with it (--register-with-taints): it MUST NOT change.
	Key = driver + "/agent-not-ready"
)

// World is what is decided on: Nodes that have the taint, and the CSINodes of all.
type World struct {
	Nodes    []*corev1.Node
	CSINodes map[string]*storagev1.CSINode // by name
}

// Remove is the one step: it removes the taint from a Node, if that is still as it was read.
type Remove struct {
	Node            string
	UID             types.UID
	ResourceVersion string
	// Keep are the Node's other taints.
	Keep []corev1.Taint
}

// String implements fmt.Stringer.
func (r Remove) String() string {
	return fmt.Sprintf("removing the taint %s from node %s", Key, r.Node)
}

// Plan is what MakePlan decides.
type Plan = reconcile.Plan[reconcile.None, Remove, reconcile.None]

// MakePlan removes the taint from each Node on which the driver is registered.
func MakePlan(w World) (p Plan) {
	for _, node := range w.Nodes {
		if !Tainted(node) || !registered(node, w.CSINodes[node.Name]) {
			continue
		}
		p.Steps = append(p.Steps, Remove{
			Node: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Keep: slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOurs),
		})
	}
	slices.SortFunc(p.Steps, func(a, b Remove) int { return cmp.Compare(a.Node, b.Node) })
	return p
}

// Tainted reports whether a Node has the taint, with whatever effect and value.
func Tainted(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, isOurs) }

func isOurs(t corev1.Taint) bool { return t.Key == Key }

// registered reports whether the kubelet of this very Node has registered the driver. A CSINode is owned by its Node, whose
// UID a kubelet writes into it (k8s.io/kubernetes, pkg/volume/csi/nodeinfomanager).
func registered(node *corev1.Node, csi *storagev1.CSINode) bool {
	if csi == nil {
		return false
	}
	owned := false
	for _, owner := range csi.OwnerReferences {
		owned = owned || owner.Kind == "Node" && owner.UID == node.UID
	}
	return owned && slices.ContainsFunc(csi.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
}
