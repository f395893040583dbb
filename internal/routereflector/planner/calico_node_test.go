// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/refuse"
)

func kubernetesNode(name string, since time.Time) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("k-" + name), ResourceVersion: "7",
			Labels: map[string]string{
				"of": "kubernetes", v1alpha1.ReflectorLabel: "copied", v1alpha1.GroupLabel: "2", v1alpha1.ClientLabel: "1", v1alpha1.JoinsLabel: "2",
			},
			Annotations: map[string]string{v1alpha1.KeepAnnotation: "true", rr.IPv4Annotation: "192.0.2.9/24", rr.ClusterIDAnnotation: "244.0.0.9", rr.ASNumberAnnotation: "65000"},
		},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "dedicated"}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
		}},
	}
}

// Each fact comes from the side that knows it: what confd and Calico's selectors read from the Calico Node, the machine's condition from the Kubernetes
// Node.
func TestNodesFromBothSides(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k := kubernetesNode("worker-1", since)
	c := rr.CalicoNode{
		Name: "calico-1", UID: "c-1", ResourceVersion: "42", Labels: map[string]string{"of": "calico"}, Kubernetes: "worker-1",
		IPv4: netip.MustParseAddr("192.0.2.1"), IPv6: netip.MustParseAddr("2001:db8::1"), ClusterID: "244.0.0.1", ASNumber: 64513,
	}
	got, present, referenced := rr.NodesFrom([]rr.CalicoNode{c}, []corev1.Node{k}, map[string]int{"worker-1": 3, "calico-1": 9}, rr.DefaultASNumber)
	want := []rr.Node{{
		Name: "calico-1", UID: "c-1." + string(k.UID), ResourceVersion: "42", Labels: c.Labels, Annotations: k.Annotations, Taints: k.Spec.Taints, Unschedulable: true,
		Ready: corev1.ConditionTrue, ReadySince: since, IPv4: c.IPv4, IPv6: c.IPv6, ClusterID: "244.0.0.1", ForeignAS: true, AS: 64513, Workloads: 3,
	}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || present != 1 || referenced != 1 {
		t.Errorf("%d of %d; (-want +got):\n%s", present, referenced, diff)
	}
	c.ASNumber = rr.DefaultASNumber
	if got, _, _ := rr.NodesFrom([]rr.CalicoNode{c}, []corev1.Node{k}, nil, rr.DefaultASNumber); got[0].ForeignAS {
		t.Error("the cluster's own AS number counts as another")
	}
}

// Who has no counterpart on the other side, or an ambiguous one, is a node all the same, and never one that could become a reflector.
func TestNodesFromOneSide(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	address := netip.MustParseAddr("192.0.2.1")
	for name, c := range map[string]struct {
		calico []rr.CalicoNode
		nodes  []string
		// ready are the names of nodes that have a Kubernetes Node's condition, silent those whose condition is unknown.
		ready, silent       []string
		present, referenced int
	}{
		"a host outside the cluster": {calico: []rr.CalicoNode{{Name: "host", Foreign: true}}, nodes: []string{"host"}, silent: []string{"host"}},
		"a machine that is gone": {
			calico: []rr.CalicoNode{{Name: "a", Kubernetes: "a"}, {Name: "b", Kubernetes: "b"}}, nodes: []string{"b"},
			ready: []string{"b"}, silent: []string{"a"}, present: 1, referenced: 2,
		},
		"without an orchRef": {calico: []rr.CalicoNode{{Name: "a"}}, nodes: []string{"a"}, ready: []string{"a"}},
		"without an orchRef, by a name that is somebody else's": {
			calico: []rr.CalicoNode{{Name: "a"}, {Name: "b", Kubernetes: "a"}}, nodes: []string{"a"},
			ready: []string{"b"}, silent: []string{"a"}, present: 1, referenced: 1,
		},
		"two of one name": {
			calico: []rr.CalicoNode{{Name: "old", Kubernetes: "a"}, {Name: "a", Kubernetes: "a"}}, nodes: []string{"a"},
			ready: []string{"a"}, silent: []string{"old"}, present: 2, referenced: 2,
		},
		"two, neither of the name": {
			calico: []rr.CalicoNode{{Name: "x", Kubernetes: "a"}, {Name: "y", Kubernetes: "a"}}, nodes: []string{"a"},
			silent: []string{"x", "y"}, present: 2, referenced: 2,
		},
		"calico-node has not started": {nodes: []string{"new"}, ready: []string{"new"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range c.calico {
				c.calico[i].IPv4 = address
			}
			var kubernetes []corev1.Node
			for _, n := range c.nodes {
				kubernetes = append(kubernetes, kubernetesNode(n, since))
			}
			nodes, present, referenced := rr.NodesFrom(c.calico, kubernetes, nil, rr.DefaultASNumber)
			var ready, silent []string
			for _, n := range nodes {
				if n.Ready == corev1.ConditionTrue {
					ready = append(ready, n.Name)
				} else {
					silent = append(silent, n.Name)
				}
				if n.ReadySince.IsZero() != (n.Ready != corev1.ConditionTrue) {
					t.Errorf("%s is %s since %s", n.Name, n.Ready, n.ReadySince)
				}
				if len(c.calico) == 0 && (n.Speaks() || n.ClusterID != "" || n.Labels[v1alpha1.ReflectorLabel] != "" || len(n.Labels) != 1) {
					t.Errorf("without a Calico Node it is %+v", n)
				}
			}
			slices.Sort(ready)
			slices.Sort(silent)
			if !slices.Equal(ready, c.ready) || !slices.Equal(silent, c.silent) || present != c.present || referenced != c.referenced {
				t.Errorf("ready %v, silent %v, %d of %d present; want %v, %v, %d of %d",
					ready, silent, present, referenced, c.ready, c.silent, c.present, c.referenced)
			}
		})
	}
}

// Nothing is planned for a datastore that is another cluster's, by its record or by its nodes.
func TestForeignDatastore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		binding *rr.Binding
		want    string
	}{
		"part of the cluster":     {binding: nil},
		"bound":                   {binding: &rr.Binding{Cluster: "a", Recorded: "a", Referenced: 9}},
		"bound to another":        {binding: &rr.Binding{Cluster: "a", Recorded: "b", Present: 9, Referenced: 9}, want: "belongs to the cluster whose namespace kube-system has UID b, and this one's has a"},
		"not bound, and ours":     {binding: &rr.Binding{Cluster: "a", Present: 5, Referenced: 10}},
		"not bound, few are ours": {binding: &rr.Binding{Cluster: "a", Present: 4, Referenced: 10}, want: "of 10 Calico Nodes that name a Kubernetes Node, 4 name one that there is"},
		"not bound, and empty":    {binding: &rr.Binding{Cluster: "a"}, want: "annotate Calico's ClusterInformation with " + rr.BindingAnnotation + "=a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refuse.Binding(new(rr.World{Binding: c.binding}))
			switch {
			case c.want == "" && r != nil:
				t.Errorf("refused: %s", r.Message)
			case c.want != "" && (r == nil || r.Reason != rr.ReasonForeignDatastore || !strings.Contains(r.Message, c.want)):
				t.Errorf("the refusal is %+v, want %q", r, c.want)
			}
		})
	}
	w := rr.World{Binding: &rr.Binding{Cluster: "a", Recorded: "b"}, DatastoreReady: true}
	w.Topology.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if p := MakePlan(w); len(p.Steps) > 0 || len(p.Refusals) == 0 || p.Refusals[0].Reason != "ForeignDatastore" {
		t.Errorf("a topology that is deleted has the plan %+v", p)
	}
}
