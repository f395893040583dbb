// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// Draft is what the controller would send for a Service, but for what depends on Nodes, which a Service has no part in: Nodes of the input are
// not looked at, and there are no problems about them. The request has the droplets of the load balancer there is, none for a new one. A stack
// that follows from Nodes is left out, so that DigitalOcean chooses.
func Draft(in loadbalancer.Input) (loadbalancer.Result, error) {
	in.Nodes, in.AllSelected = []*corev1.Node{ideal()}, true
	result, err := loadbalancer.Desired(in)
	result.Targets, result.LeftOut = nil, nil
	if err != nil {
		return result, err
	}
	r := &result.Request
	r.DropletIDs = nil
	if in.Observed != nil {
		r.DropletIDs = in.Observed.DropletIDs
		return result, nil
	}
	asked := in.Cluster.Effective(in.Service).Annotations[annotation.NetworkStack] != ""
	if r.Type == annotation.TypeRegionalNetwork && r.Network == annotation.NetworkExternal && !asked {
		r.NetworkStack = ""
	}
	return result, nil
}

// ideal is a Node that can be a target of every load balancer. Its addresses are those that documents use (RFC 5737, RFC 3849).
func ideal() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "any"}, Spec: corev1.NodeSpec{ProviderID: providerid.Format(1)},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"},
			{Type: corev1.NodeExternalIP, Address: "2001:db8::1"},
		}},
	}
}
