// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package startuptaint_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/startuptaint"
	"github.com/mooring-dev/mooring/internal/testkit/laws"
)

const volumes = "dobs.csi.digitalocean.com"

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

// tainted is a Node that a kubelet has registered with the taint and others.
func tainted(name string, uid types.UID, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid},
		Spec:       corev1.NodeSpec{Taints: append(taints, taint(startuptaint.Key, corev1.TaintEffectNoExecute))},
	}
}

// registration is the CSINode that the kubelet of a Node writes.
func registration(name string, owner types.UID, drivers ...string) *storagev1.CSINode {
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: owner}},
	}}
	for _, d := range drivers {
		csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: d, NodeID: "1"})
	}
	return csi
}

func TestTheTaintGoesWhenTheDriverIsRegistered(t *testing.T) {
	t.Parallel()
	other := taint("node.kubernetes.io/not-ready", corev1.TaintEffectNoSchedule)
	for name, c := range map[string]struct {
		node *corev1.Node
		csi  *storagev1.CSINode
		want string
	}{
		"registered":               {tainted("a", "1"), registration("a", "1", volumes), "[]"},
		"beside other drivers":     {tainted("a", "1", other), registration("a", "1", "nfs.example", volumes), "[node.kubernetes.io/not-ready]"},
		"with two effects":         {tainted("a", "1", taint(startuptaint.Key, corev1.TaintEffectNoSchedule)), registration("a", "1", volumes), "[]"},
		"no registration":          {tainted("a", "1"), nil, ""},
		"another driver":           {tainted("a", "1"), registration("a", "1", "nfs.example"), ""},
		"no driver":                {tainted("a", "1"), registration("a", "1"), ""},
		"an earlier node's":        {tainted("a", "2"), registration("a", "1", volumes), ""},
		"nobody's":                 {tainted("a", "1"), &storagev1.CSINode{Spec: registration("a", "1", volumes).Spec}, ""},
		"without the taint":        {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}, registration("a", "1", volumes), ""},
		"another's start-up taint": {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint("ebs.example/agent-not-ready", "NoExecute")}}}, registration("a", "1", volumes), ""},
	} {
		got := ""
		for _, s := range startuptaint.MakePlan(startuptaint.World{Nodes: []*corev1.Node{c.node}, CSINodes: map[string]*storagev1.CSINode{"a": c.csi}}).Steps {
			var keep []string
			for _, k := range s.Keep {
				keep = append(keep, k.Key)
			}
			got += fmt.Sprint(keep)
		}
		if got != c.want {
			t.Errorf("%s: keeps %q, want %q", name, got, c.want)
		}
	}
}

func TestLaws(t *testing.T) {
	t.Parallel()
	laws.Planner[startuptaint.World, startuptaint.Remove]{
		Draw: draw,
		Plan: func(w startuptaint.World) laws.Plan[startuptaint.World, startuptaint.Remove] {
			return laws.Plan[startuptaint.World, startuptaint.Remove]{Steps: startuptaint.MakePlan(w).Steps}
		},
		Apply: func(w startuptaint.World, r startuptaint.Remove) startuptaint.World {
			after := startuptaint.World{CSINodes: w.CSINodes}
			for _, node := range w.Nodes {
				if node.UID == r.UID {
					node = node.DeepCopy()
					node.Spec.Taints = r.Keep
				}
				after.Nodes = append(after.Nodes, node)
			}
			return after
		},
		Shuffle: func(t *rapid.T, w startuptaint.World) startuptaint.World {
			return startuptaint.World{Nodes: rapid.Permutation(w.Nodes).Draw(t, "order"), CSINodes: maps.Clone(w.CSINodes)}
		},
		Owned: func(w startuptaint.World, r startuptaint.Remove) bool {
			i := slices.IndexFunc(w.Nodes, func(n *corev1.Node) bool { return n.UID == r.UID })
			others := slices.DeleteFunc(slices.Clone(w.Nodes[i].Spec.Taints), func(t corev1.Taint) bool { return t.Key == startuptaint.Key })
			return cmp.Diff(others, r.Keep) == ""
		},
		Same:   func(a, b startuptaint.World) string { return cmp.Diff(a, b) },
		Rounds: 10, Quiet: 1,
	}.Check(t)
}

func draw(t *rapid.T) startuptaint.World {
	w := startuptaint.World{CSINodes: map[string]*storagev1.CSINode{}}
	uid := rapid.SampledFrom([]types.UID{"x", "y"})
	for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
		name := fmt.Sprint("n", i)
		var taints []corev1.Taint
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", startuptaint.Key}), 0, 3, rapid.ID).Draw(t, "taints") {
			taints = append(taints, taint(key, corev1.TaintEffectNoSchedule))
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name) + uid.Draw(t, "node")}, Spec: corev1.NodeSpec{Taints: taints}}
		w.Nodes = append(w.Nodes, node)
		if rapid.Bool().Draw(t, "has a CSINode") {
			drivers := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"nfs.example", volumes}), 0, 2, rapid.ID).Draw(t, "drivers")
			w.CSINodes[name] = registration(name, types.UID(name)+uid.Draw(t, "owner"), drivers...)
		}
	}
	return w
}
