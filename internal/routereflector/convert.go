// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/assumed"
)

// The annotations in which Calico's kubernetes datastore keeps a Calico Node (libcalico-go
// lib/backend/k8s/resources/node.go).
const (
	IPv4Annotation      = "projectcalico.org/IPv4Address"
	IPv6Annotation      = "projectcalico.org/IPv6Address"
	ASNumberAnnotation  = "projectcalico.org/ASNumber"
	ClusterIDAnnotation = "projectcalico.org/RouteReflectorClusterID"
	// LabelsAnnotation has labels, as a JSON object, that Calico's selectors see in addition to the Node's own.
	LabelsAnnotation = "projectcalico.org/labels"
)

// DefaultASNumber is Calico's, where BGPConfiguration default names none.
const DefaultASNumber = assumed.CalicoASNumber

// NodeFrom reads a Kubernetes Node of a cluster with Calico's kubernetes datastore. workloads counts the pods on it
// that are neither static nor a DaemonSet's; as is the cluster's AS number. What an annotation says that Calico would
// not understand counts as absent, as for Calico.
func NodeFrom(n *corev1.Node, workloads int, as uint32) Node {
	out := Node{
		Name:            n.Name,
		UID:             string(n.UID),
		ResourceVersion: n.ResourceVersion,
		Created:         n.CreationTimestamp.Time,
		Annotations:     n.Annotations,
		Taints:          n.Spec.Taints,
		Unschedulable:   n.Spec.Unschedulable,
		Deleting:        n.DeletionTimestamp != nil,
		Workloads:       workloads,
		Ready:           corev1.ConditionUnknown,
		ReadySince:      n.CreationTimestamp.Time,
		IPv4:            address(n.Annotations[IPv4Annotation]),
		IPv6:            address(n.Annotations[IPv6Annotation]),
	}
	if id, err := netip.ParseAddr(n.Annotations[ClusterIDAnnotation]); err == nil && id.Is4() {
		out.ClusterID = id.String()
	}
	out.Labels, out.CalicoLabel = calicoLabels(n)
	out.AS = as
	if own, err := strconv.ParseUint(n.Annotations[ASNumberAnnotation], 10, 32); err == nil {
		out.AS, out.ForeignAS = uint32(own), uint32(own) != as
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.ReadySince = c.Status, c.LastTransitionTime.Time
		}
	}
	return out
}

// calicoLabels are the Node's labels with those of Mooring's that only [LabelsAnnotation] has; added reports that the
// reflectors' is one of them. Other labels of the annotation are left out: a kubelet may write it, and must not
// become eligible by it.
func calicoLabels(n *corev1.Node) (labels map[string]string, added bool) {
	text, has := n.Annotations[LabelsAnnotation]
	var more map[string]string
	if !has || json.Unmarshal([]byte(text), &more) != nil {
		return n.Labels, false
	}
	labels = n.Labels
	for _, key := range RoleLabels() {
		value, has := more[key]
		if _, own := n.Labels[key]; !has || own {
			continue
		}
		if len(labels) == len(n.Labels) { // none was added yet
			labels = maps.Clone(n.Labels)
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[key] = value
		added = added || key == v1alpha1.ReflectorLabel
	}
	return labels, added
}

// address reads an address with or without the length of its network; the zero Addr if it is neither.
func address(text string) netip.Addr {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr()
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// PeerFrom reads a BGPPeer. parse parses Calico's selectors. The error names the BGPPeer and the field.
func PeerFrom(p *calicov3.BGPPeer, parse func(string) (Matcher, error)) (Peer, error) {
	s := p.Spec
	out := Peer{
		Name:            p.Name,
		UID:             string(p.UID),
		ResourceVersion: p.ResourceVersion,
		Topology:        p.Labels[v1alpha1.TopologyLabel],
		Node:            s.Node,
		OneWay:          s.ReversePeering != nil && *s.ReversePeering == calicov3.ReversePeeringManual,
		PeerSpec: PeerSpec{
			NodeSelector: s.NodeSelector, PeerSelector: s.PeerSelector, Filters: strings.Join(s.Filters, ","),
			SourceAddress: string(s.SourceAddress), Other: usesOtherFields(s),
		},
	}
	if s.PeerIP != "" {
		out.ASNumber = uint32(s.ASNumber)
		if s.LocalASNumber != nil {
			out.LocalASNumber = uint32(*s.LocalASNumber)
		}
	}
	if out.SourceAddress == "" {
		out.SourceAddress = string(calicov3.SourceAddressUseNodeIP)
	}
	if s.MaxRestartTime != nil {
		out.MaxRestartSeconds = int64(s.MaxRestartTime.Seconds())
	}
	if s.Password != nil && s.Password.SecretKeyRef != nil {
		out.PasswordSecret, out.PasswordKey = s.Password.SecretKeyRef.Name, s.Password.SecretKeyRef.Key
	}
	if s.TTLSecurity != nil {
		out.TTLSecurity = int32(*s.TTLSecurity)
	}
	if s.PeerIP != "" {
		if out.PeerIP = peerAddress(s.PeerIP); !out.PeerIP.IsValid() {
			return Peer{}, fmt.Errorf("BGPPeer %s: spec.peerIP %q is not an address", p.Name, s.PeerIP)
		}
	}
	for _, selector := range []struct {
		field, text string
		into        *Matcher
	}{{"nodeSelector", s.NodeSelector, &out.NodeMatcher}, {"peerSelector", s.PeerSelector, &out.PeerMatcher}} {
		if selector.text == "" {
			continue
		}
		m, err := parse(selector.text)
		if err != nil {
			return Peer{}, fmt.Errorf("BGPPeer %s: spec.%s %q: %w", p.Name, selector.field, selector.text, err)
		}
		*selector.into = m
	}
	return out, nil
}

// Spec is the BGPPeer's spec as Calico has it, the reverse of [PeerFrom] for what topologies write.
func (s PeerSpec) Spec() calicov3.BGPPeerSpec {
	out := calicov3.BGPPeerSpec{
		NodeSelector:  s.NodeSelector,
		PeerSelector:  s.PeerSelector,
		SourceAddress: calicov3.SourceAddress(s.SourceAddress),
	}
	if s.MaxRestartSeconds != 0 {
		out.MaxRestartTime = &metav1.Duration{Duration: time.Duration(s.MaxRestartSeconds) * time.Second}
	}
	if s.PasswordSecret != "" {
		out.Password = &calicov3.BGPPassword{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.PasswordSecret}, Key: s.PasswordKey,
		}}
	}
	if s.TTLSecurity != 0 {
		hops := uint8(min(max(s.TTLSecurity, 0), math.MaxUint8))
		out.TTLSecurity = &hops
	}
	if s.Filters != "" {
		out.Filters = strings.Split(s.Filters, ",")
	}
	return out
}

// usesOtherFields reports that the spec has something that topologies never write.
func usesOtherFields(s calicov3.BGPPeerSpec) bool {
	return s.ASNumber != 0 || s.LocalASNumber != nil || s.KeepOriginalNextHop || s.NumAllowedLocalASNumbers != nil || s.ReachableBy != "" ||
		s.LocalWorkloadSelector != "" ||
		s.NextHopMode != nil && string(*s.NextHopMode) != "Auto" ||
		s.ReversePeering != nil && *s.ReversePeering != calicov3.ReversePeeringAuto
}

// peerAddress reads an address with or without a port.
func peerAddress(text string) netip.Addr {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr()
	}
	return address(text)
}

// MeshFrom reads BGPConfiguration default. nil is one that does not exist, with which the mesh is on.
func MeshFrom(c *calicov3.BGPConfiguration) Mesh {
	if c == nil {
		return Mesh{On: true}
	}
	on := c.Spec.NodeToNodeMeshEnabled
	return Mesh{Exists: true, UID: string(c.UID), ResourceVersion: c.ResourceVersion, On: on == nil || *on}
}

// IsWorkload reports that a pod would suffer if its node became a reflector, and is not there for the node's own sake:
// it belongs to no DaemonSet and is not static.
func IsWorkload(p *corev1.Pod) bool {
	if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static || p.Spec.NodeName == "" {
		return false
	}
	owner := metav1.GetControllerOf(p)
	return owner == nil || owner.Kind != "DaemonSet"
}

// ASNumberFrom is the cluster's AS number by BGPConfiguration default, which may be nil.
func ASNumberFrom(c *calicov3.BGPConfiguration) uint32 {
	if c == nil || c.Spec.ASNumber == nil {
		return DefaultASNumber
	}
	return uint32(*c.Spec.ASNumber)
}

// SightingFrom reads a CalicoNodeStatus. It says nothing, and ok is false, before calico-node has filled it in.
func SightingFrom(s *calicov3.CalicoNodeStatus) (sighting Sighting, ok bool) {
	if s.Status.LastUpdated.IsZero() {
		return Sighting{}, false
	}
	out := Sighting{
		Node:        s.Spec.Node,
		At:          s.Status.LastUpdated.Time,
		Established: map[netip.Addr]bool{},
		Mesh:        map[netip.Addr]bool{},
		Others:      map[netip.Addr]string{},
	}
	for _, p := range slices.Concat(s.Status.BGP.PeersV4, s.Status.BGP.PeersV6) {
		a, err := netip.ParseAddr(p.PeerIP)
		switch up, mesh := p.State == calicov3.BGPSessionStateEstablished, p.Type == calicov3.BGPPeerTypeNodeMesh; {
		case err != nil || mesh && !up:
		case mesh:
			out.Mesh[a] = true
		case up:
			out.Established[a] = true
		default:
			out.Others[a] = string(p.State)
		}
	}
	if slices.Contains(s.Spec.Classes, calicov3.NodeStatusClassTypeRoutes) {
		out.Routes = routesFrom(slices.Concat(s.Status.Routes.RoutesV4, s.Status.Routes.RoutesV6))
	}
	return out, true
}

// unusable are what calico-node gives as the interface of a route that carries nothing
// (node/pkg/status/populators/route.go).
func unusable(networkInterface string) bool {
	return networkInterface == "unreachable" || networkInterface == "blackhole"
}

// routesFrom keeps the routes that were learned from other nodes. BIRD lists every path, so that a destination comes up
// once for each peer that brings it, in use or not.
func routesFrom(list []calicov3.CalicoNodeRoute) *Routes {
	out := &Routes{Mesh: map[netip.Addr][]netip.Prefix{}, By: map[netip.Addr][]netip.Prefix{}}
	for _, r := range list {
		d, err := netip.ParsePrefix(r.Destination)
		if err != nil || unusable(r.Interface) {
			continue
		}
		from, err := netip.ParseAddr(r.LearnedFrom.PeerIP)
		switch r.LearnedFrom.SourceType {
		case calicov3.RouteSourceTypeNodeMesh:
			out.Mesh[from] = append(out.Mesh[from], d)
		case calicov3.RouteSourceTypeBGPPeer:
			if err == nil {
				out.By[from] = append(out.By[from], d)
			}
		case calicov3.RouteSourceTypeKernel, calicov3.RouteSourceTypeStatic, calicov3.RouteSourceTypeDirect:
		}
	}
	sorted := func(list []netip.Prefix) []netip.Prefix {
		slices.SortFunc(list, netip.Prefix.Compare)
		return slices.Compact(list)
	}
	for _, by := range []map[netip.Addr][]netip.Prefix{out.Mesh, out.By} {
		for a, list := range by {
			by[a] = sorted(list)
		}
	}
	return out
}
