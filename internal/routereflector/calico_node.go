// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// CalicoNode is a Calico Node of a datastore that keeps them alongside Kubernetes' Nodes, which is etcdv3.
type CalicoNode struct {
	Name, UID string
	// ResourceVersion is the revision of the object's key.
	ResourceVersion string
	// Labels are the Calico Node's own, among them those of the Kubernetes Node that kube-controllers copies there.
	Labels map[string]string
	// Kubernetes is the name of the Kubernetes Node by the orchRef, "" where there is none. Foreign says that another
	// orchestrator is named.
	Kubernetes string
	Foreign    bool
	// IPv4 and IPv6 are the BGP addresses; the zero Addr where there is none.
	IPv4, IPv6 netip.Addr
	// ASNumber is the node's own, 0 for the cluster's.
	ASNumber uint32
	// ClusterID is the route reflector cluster ID, "" if none. InvalidID is what stands in its place if that is not an
	// IPv4 address: Calico's own tools write no such thing, and confd gives it to BIRD, which refuses its whole
	// configuration.
	ClusterID, InvalidID string
}

// NodesFrom joins what the two sides know of nodes, in a cluster with Calico's etcdv3 datastore. Labels, addresses, AS
// number and cluster ID are the Calico Node's, which is where Calico's selectors and confd read them, and so are name
// and resourceVersion; readiness, taints, annotations, deletion and workloads are the Kubernetes Node's. workloads is
// by the name in Kubernetes; as is the cluster's AS number.
//
// A Calico Node without a Kubernetes Node, such as a host outside the cluster or a machine that is gone, is a node
// whose condition is unknown: it never becomes a reflector, and nobody waits for its sessions. Its ReadySince is zero:
// since when, the caller must remember. Of several Calico Nodes that name the same Kubernetes Node that holds for all
// but the one of its name. A Kubernetes Node without a Calico Node is a node without an address. present counts the
// Calico Nodes that name a Kubernetes Node that there is, referenced those that name one at all.
func NodesFrom(calico []CalicoNode, kubernetes []corev1.Node, workloads map[string]int,
	as uint32) (nodes []Node, present, referenced int) {
	byName := make(map[string]*corev1.Node, len(kubernetes))
	for i := range kubernetes {
		byName[kubernetes[i].Name] = &kubernetes[i]
	}
	claims := map[string]int{}
	for i := range calico {
		claims[calico[i].Kubernetes]++
	}
	taken := make(map[string]bool, len(calico))
	nodes = make([]Node, 0, len(calico))
	for i := range calico {
		c := &calico[i]
		name := c.Kubernetes
		if name != "" {
			referenced++
		} else if !c.Foreign && claims[c.Name] == 0 {
			name = c.Name // calico-node was started without the name of its Kubernetes Node
		}
		k := byName[name]
		if k != nil && c.Kubernetes != "" {
			present++
		}
		if k != nil && claims[c.Kubernetes] > 1 && c.Kubernetes != "" && c.Name != k.Name {
			k = nil
		}
		taken[name], taken[c.Name] = true, true
		nodes = append(nodes, c.joined(k, workloads[name], as))
	}
	for i := range kubernetes {
		if n := &kubernetes[i]; !taken[n.Name] {
			alone := NodeFrom(n, workloads[n.Name], as)
			alone.IPv4, alone.IPv6, alone.ClusterID, alone.ForeignAS, alone.AS = netip.Addr{}, netip.Addr{}, "", false, as
			alone.Labels, alone.CalicoLabel = withoutRole(alone.Labels), false
			nodes = append(nodes, alone)
		}
	}
	return nodes, present, referenced
}

// joined is the Calico Node with what its Kubernetes Node says, which may be nil.
func (c *CalicoNode) joined(k *corev1.Node, workloads int, as uint32) Node {
	out := Node{Ready: corev1.ConditionUnknown}
	uid := ""
	if k != nil {
		out = NodeFrom(k, workloads, as)
		uid = string(k.UID)
	}
	out.Name, out.ResourceVersion, out.Labels, out.CalicoLabel = c.Name, c.ResourceVersion, c.Labels, false
	// calico-node keeps the Calico Node of a machine that was made again under its name, so that its UID alone would
	// say that nothing has changed.
	out.UID = c.UID + "." + uid
	out.IPv4, out.IPv6, out.ClusterID, out.ForeignAS = c.IPv4, c.IPv6, c.ClusterID, c.ASNumber != 0 && c.ASNumber != as
	out.AS = cmp.Or(c.ASNumber, as)
	return out
}

// withoutRole is labels without Mooring's labels of reflectors and groups, which mean nothing on a Kubernetes Node that
// is not a Calico Node.
func withoutRole(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	for _, key := range RoleLabels() {
		delete(out, key)
	}
	return out
}

// RoleLabels are Mooring's labels of nodes. The operator writes no others.
func RoleLabels() []string {
	return []string{v1alpha1.ReflectorLabel, v1alpha1.GroupLabel, v1alpha1.ClientLabel, v1alpha1.JoinsLabel}
}

// Binding returns which cluster a datastore alongside Kubernetes belongs to, by the record that all of Mooring's
// components keep in it.
type Binding struct {
	// Cluster is the UID of this cluster's namespace kube-system; Recorded is the one that stands in the datastore, ""
	// if none does.
	Cluster, Recorded string
	// Present of Referenced Calico Nodes that name a Kubernetes Node name one that there is.
	Present, Referenced int
}

// Refusal reports that the datastore is another cluster's by its record, or without one by its nodes: a wrong endpoint,
// or a kubeconfig of the wrong cluster. It is nil if nothing speaks for that, or if there is no binding.
func (b *Binding) Refusal() *Refusal {
	switch {
	case b == nil || b.Recorded == b.Cluster && b.Cluster != "":
		return nil
	case b.Recorded != "":
		return Refuse(ReasonForeignDatastore,
			"Calico's etcd belongs to the cluster whose namespace kube-system has UID %s, and this one's has %s; check the "+
				"endpoints, or if the cluster was created again on purpose, remove annotation %s from Calico's ClusterInformation",
			b.Recorded, b.Cluster, BindingAnnotation)
	case b.Present == 0 || 2*b.Present < b.Referenced:
		return Refuse(ReasonForeignDatastore,
			"Calico's etcd does not look like this cluster's: of %d Calico Nodes that name a Kubernetes Node, %d name one "+
				"that there is; check the endpoints, or if they are right, annotate Calico's ClusterInformation with %s=%s",
			b.Referenced, b.Present, BindingAnnotation, b.Cluster)
	}
	return nil
}

// BindingAnnotation on Calico's ClusterInformation holds the UID of kube-system of the cluster that an etcd belongs to.
// calico-node-sync reads and writes the same. MUST NOT change.
const BindingAnnotation = "nodes.mooring.dev/cluster-uid"
