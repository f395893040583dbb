// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// What the informers keep of a Node is a fraction of it, and all that plans are made of.
func TestTrimmedNodes(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{corev1.LabelTopologyZone: "a"}, CreationTimestamp: metav1.NewTime(then()),
		Annotations: map[string]string{
			routereflector.IPv4Annotation: "10.0.0.1/24", routereflector.IPv6Annotation: "fd00::1/64", routereflector.ASNumberAnnotation: "64513",
			routereflector.ClusterIDAnnotation: "244.0.0.1", v1alpha1.KeepAnnotation: "", "somebody/else": strings.Repeat("x", 500),
			routereflector.LabelsAnnotation: `{"bgp.mooring.dev/reflector":"main"}`,
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}},
	}}
	node.Spec.Unschedulable = true
	node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(then()), Message: strings.Repeat("x", 100)},
	}
	for range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("i", 100)}})
	}
	trimmed, err := trimNode(node.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := trimmed.(*corev1.Node)
	if !ok {
		t.Fatalf("it is a %T", trimmed)
	}
	want, got := routereflector.NodeFrom(node, 3, 64512), routereflector.NodeFrom(kept, 3, 64512)
	delete(want.Annotations, "somebody/else")
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("a plan would see another node: %s", diff)
	}
	whole, _ := json.Marshal(node)
	part, _ := json.Marshal(kept)
	if len(part) > len(whole)/5 || kept.ManagedFields != nil || len(kept.Status.Images) != 0 {
		t.Errorf("of %d bytes %d are kept", len(whole), len(part))
	}
}

// Of a CalicoNodeStatus that is not ours, and of a filter, nothing is kept but that it is there: either may be large.
func TestTrimmedCalicoObjects(t *testing.T) {
	t.Parallel()
	status := calicov3.NewCalicoNodeStatus()
	status.Name = "somebodys"
	status.Status.Routes.RoutesV4 = make([]calicov3.CalicoNodeRoute, 1000)
	trimmed, err := trimStatus(status.DeepCopy())
	if kept, ok := trimmed.(*calicov3.CalicoNodeStatus); err != nil || !ok || len(kept.Status.Routes.RoutesV4) != 0 {
		t.Errorf("%v, %v", trimmed, err)
	}
	status.Labels = map[string]string{v1alpha1.TopologyLabel: "main"}
	trimmed, err = trimStatus(status.DeepCopy())
	if kept, ok := trimmed.(*calicov3.CalicoNodeStatus); err != nil || !ok || len(kept.Status.Routes.RoutesV4) != 1000 {
		t.Errorf("ours is trimmed, too: %v, %v", trimmed, err)
	}
	filter := calicov3.NewBGPFilter()
	filter.Name, filter.Spec.ExportV4 = "f", make([]calicov3.BGPFilterRuleV4, 100)
	trimmed, err = nameOnly(filter)
	if kept, ok := trimmed.(*calicov3.BGPFilter); err != nil || !ok || kept.Name != "f" || len(kept.Spec.ExportV4) != 0 {
		t.Errorf("%v, %v", trimmed, err)
	}
}
