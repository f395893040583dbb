// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/calico"
)

// Where Calico keeps things in etcd (internal/calico/keys.go).
const (
	modelResources   = "/calico/resources/v3/projectcalico.org/"
	modelNodes       = modelResources + "nodes/"
	modelEndpoints   = modelResources + "workloadendpoints/"
	modelInformation = modelResources + "clusterinformations/default"
	modelAffinities  = "/calico/ipam/v2/host/"
	modelBlocks      = "/calico/ipam/v2/assignment/ipv4/block/"
	modelHandles     = "/calico/ipam/v2/handle/"
)

// modelWindowsHandle is the handle under which Calico keeps addresses of a block for Windows (libcalico-go, lib/ipam).
const modelWindowsHandle = "windows-reserved-ipam-handle"

// The values of the keys, as far as anybody here reads them.
type (
	modelNode struct {
		UID         string
		OrchRefs    []calico.OrchRef
		Annotations map[string]string
		// Writes counts what calico-node, kube-controllers and people write, so that each write is another value.
		Writes int
	}
	modelEndpoint struct {
		Node, Orchestrator, Pod string
		Address                 netip.Addr
		Handle                  string
	}
	modelAffinity struct{ State string }
	modelBlock    struct {
		CIDR     netip.Prefix
		AffineTo string
		Sequence uint64
		Assigned map[netip.Addr]modelAssignment
	}
	// modelAssignment is an assigned address with its attributes; Of is "pod" or "tunnel" for what Kubernetes or calico-node took.
	modelAssignment struct {
		Handle   string
		Sequence uint64
		Host, Of string
	}
	modelHandle   struct{ Blocks map[netip.Prefix]int }
	modelResource struct {
		Kind, Host string
		Automatic  bool
	}
	modelClusterInformation struct {
		Ready       bool
		Annotations map[string]string
	}
	// modelGarbage cannot be parsed; the hosts are those whose names stand in it.
	modelGarbage struct {
		Hosts []string
		was   any
	}
)

func modelNodeKey(host string) string             { return modelNodes + host }
func modelEndpointKey(ns, name string) string     { return modelEndpoints + ns + "/" + name }
func modelCIDR(cidr netip.Prefix) string          { return strings.Replace(cidr.String(), "/", "-", 1) }
func modelBlockKey(cidr netip.Prefix) string      { return modelBlocks + modelCIDR(cidr) }
func modelHandleKey(id string) string             { return modelHandles + id }
func modelResourceKey(kind, name string) string   { return modelResourcePrefixes()[kind] + name }
func modelAffinityOf(host string) string          { return modelAffinities + host + "/ipv4/block/" }
func (b modelBlock) free(address netip.Addr) bool { _, taken := b.Assigned[address]; return !taken }

// modelEndpointName is the name of a WorkloadEndpoint: dashes are doubled (libcalico-go, lib/names).
func modelEndpointName(host, orchestrator, pod string) string {
	double := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return double(host) + "-" + orchestrator + "-" + double(pod) + "-eth0"
}

// modelEndpointHost is the host that the key of a WorkloadEndpoint names.
func modelEndpointHost(key string) string { return modelEndpointIDs(key).Node }

func modelEndpointIDs(key string) names.WorkloadEndpointIdentifiers {
	ids, err := names.ParseWorkloadEndpointName(key[strings.LastIndex(key, "/")+1:])
	if err != nil {
		panic(err)
	}
	return ids
}

func modelAffinityKey(host string, cidr netip.Prefix) string {
	return modelAffinityOf(host) + modelCIDR(cidr)
}

func modelResourcePrefixes() map[string]string {
	return map[string]string{
		"FelixConfiguration": modelResources + "felixconfigurations/", "BGPConfiguration": modelResources + "bgpconfigurations/",
		"HostEndpoint": modelResources + "hostendpoints/", "BGPPeer": modelResources + "bgppeers/",
		"CalicoNodeStatus": modelResources + "caliconodestatuses/",
	}
}

// modelKeyCIDR is the CIDR at the end of a block's or an affinity's key.
func modelKeyCIDR(key string) netip.Prefix {
	return netip.MustParsePrefix(strings.Replace(key[strings.LastIndex(key, "/")+1:], "-", "/", 1))
}

// modelText is a stored value as text: equal values have equal texts.
func modelText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// names reports that a host's name stands somewhere in it.
func (g modelGarbage) names(host string) bool {
	return slices.ContainsFunc(g.Hosts, func(text string) bool { return strings.Contains(text, host) })
}

// empty reports whether a block holds nothing but what Calico reserves for Windows.
func (b modelBlock) empty() bool {
	for _, a := range b.Assigned {
		if !strings.EqualFold(a.Handle, modelWindowsHandle) {
			return false
		}
	}
	return true
}

func (b modelBlock) with(address netip.Addr, a modelAssignment) modelBlock {
	b.Assigned = maps.Clone(b.Assigned)
	b.Assigned[address] = a
	b.Sequence++
	return b
}

func (b modelBlock) without(addresses ...netip.Addr) modelBlock {
	b.Assigned = maps.Clone(b.Assigned)
	for _, address := range addresses {
		delete(b.Assigned, address)
	}
	b.Sequence++
	return b
}

func (h modelHandle) plus(cidr netip.Prefix, n int) modelHandle {
	h.Blocks = maps.Clone(h.Blocks)
	if h.Blocks == nil {
		h.Blocks = map[netip.Prefix]int{}
	}
	if h.Blocks[cidr] += n; h.Blocks[cidr] <= 0 {
		delete(h.Blocks, cidr)
	}
	return h
}

func (n modelNode) annotated(annotation, value string) modelNode {
	n.Annotations = maps.Clone(n.Annotations)
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotation] = value
	if value == "" {
		delete(n.Annotations, annotation)
	}
	return n
}

// encodeModel is a value of the model as Calico stores it.
func encodeModel(key string, value any) string {
	var written any
	name := key[strings.LastIndex(key, "/")+1:]
	switch v := value.(type) {
	case string:
		return v
	case modelGarbage:
		return "{" + strings.Join(v.Hosts, " ")
	case modelNode:
		node := &libapiv3.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(v.UID), Annotations: v.Annotations, Generation: int64(v.Writes)}}
		for _, ref := range v.OrchRefs {
			node.Spec.OrchRefs = append(node.Spec.OrchRefs, libapiv3.OrchRef{NodeName: ref.NodeName, Orchestrator: ref.Orchestrator})
		}
		written = node
	case modelEndpoint:
		written = &libapiv3.WorkloadEndpoint{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
			Spec:       libapiv3.WorkloadEndpointSpec{Node: v.Node, Orchestrator: v.Orchestrator, Pod: v.Pod, ContainerID: modelContainer(v.Handle)},
		}
	case modelAffinity:
		written = &model.BlockAffinity{State: model.BlockAffinityState(v.State)}
	case modelHandle:
		blocks := map[string]int{}
		for cidr, n := range v.Blocks {
			blocks[cidr.String()] = n
		}
		written = &model.IPAMHandle{HandleID: name, Block: blocks}
	case modelResource:
		written = encodeResource(name, v)
	case modelClusterInformation:
		written = &apiv3.ClusterInformation{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: v.Annotations}, Spec: apiv3.ClusterInformationSpec{DatastoreReady: &v.Ready},
		}
	case modelBlock:
		written = encodeBlock(v)
	}
	text, err := json.Marshal(written)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func encodeResource(name string, v modelResource) any {
	if v.Kind == "FelixConfiguration" {
		return &apiv3.FelixConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiv3.FelixConfigurationSpec{DefaultEndpointToHostAction: "Return"},
		}
	}
	h := &apiv3.HostEndpoint{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiv3.HostEndpointSpec{Node: v.Host}}
	if v.Automatic {
		h.Labels = map[string]string{"projectcalico.org/created-by": "calico-kube-controllers"}
	}
	return h
}

func encodeBlock(v modelBlock) *model.AllocationBlock {
	affinity := "host:" + v.AffineTo
	if strings.HasPrefix(v.AffineTo, "virtual:") {
		affinity = v.AffineTo
	}
	b := &model.AllocationBlock{
		CIDR: cnet.MustParseCIDR(v.CIDR.String()), Affinity: &affinity, SequenceNumber: v.Sequence, SequenceNumberForAllocation: map[string]uint64{},
		Unallocated: []int{}, Attributes: []model.AllocationAttribute{},
	}
	ordinal := 0
	for address := v.CIDR.Addr(); v.CIDR.Contains(address); address = address.Next() {
		if a, taken := v.Assigned[address]; taken {
			index := len(b.Attributes)
			attribute := model.AllocationAttribute{AttrSecondary: map[string]string{}}
			if a.Handle != "" {
				attribute.AttrPrimary = &a.Handle
			}
			maps.Copy(attribute.AttrSecondary, encodeAttributes(a))
			b.Attributes = append(b.Attributes, attribute)
			b.Allocations = append(b.Allocations, &index)
			b.SequenceNumberForAllocation[fmt.Sprint(ordinal)] = a.Sequence
		} else {
			b.Allocations = append(b.Allocations, nil)
			b.Unallocated = append(b.Unallocated, ordinal)
		}
		ordinal++
	}
	return b
}

func encodeAttributes(a modelAssignment) map[string]string {
	out := map[string]string{}
	if a.Host != "" {
		out[model.IPAMBlockAttributeNode] = a.Host
	}
	switch a.Of {
	case "pod":
		out[model.IPAMBlockAttributeNamespace], out[model.IPAMBlockAttributePod] = "ns", modelPodOf(a)
	case "tunnel":
		out[model.IPAMBlockAttributeType] = model.IPAMBlockAttributeTypeIPIP
	}
	return out
}

// decodeModel is what calico.Etcd has written under a key, as a value of the model; what it never writes is text.
func decodeModel(key, raw string) any {
	parse := func(into any) {
		if err := json.Unmarshal([]byte(raw), into); err != nil {
			panic(err)
		}
	}
	switch {
	case strings.HasPrefix(key, modelNodes):
		var stored libapiv3.Node
		parse(&stored)
		node := modelNode{UID: string(stored.UID), Annotations: stored.Annotations, Writes: int(stored.Generation)}
		for _, ref := range stored.Spec.OrchRefs {
			node.OrchRefs = append(node.OrchRefs, calico.OrchRef{Orchestrator: ref.Orchestrator, NodeName: ref.NodeName})
		}
		return node
	case key == modelInformation:
		var stored apiv3.ClusterInformation
		parse(&stored)
		return modelClusterInformation{Ready: *stored.Spec.DatastoreReady, Annotations: stored.Annotations}
	case strings.HasPrefix(key, modelHandles):
		var stored model.IPAMHandle
		parse(&stored)
		handle := modelHandle{Blocks: map[netip.Prefix]int{}}
		for cidr, n := range stored.Block {
			handle.Blocks[netip.MustParsePrefix(cidr)] = n
		}
		return handle
	case strings.HasPrefix(key, modelBlocks):
		var stored model.AllocationBlock
		parse(&stored)
		return decodeBlock(modelKeyCIDR(key), stored)
	}
	return raw
}

func decodeBlock(cidr netip.Prefix, stored model.AllocationBlock) modelBlock {
	b := modelBlock{CIDR: cidr, AffineTo: strings.TrimPrefix(*stored.Affinity, "host:"), Sequence: stored.SequenceNumber, Assigned: map[netip.Addr]modelAssignment{}}
	address := cidr.Addr()
	for ordinal, index := range stored.Allocations {
		if index != nil {
			attribute := stored.Attributes[*index]
			a := modelAssignment{
				Sequence: stored.SequenceNumberForAllocation[fmt.Sprint(ordinal)], Host: attribute.AttrSecondary[model.IPAMBlockAttributeNode],
			}
			if attribute.AttrPrimary != nil {
				a.Handle = *attribute.AttrPrimary
			}
			if attribute.AttrSecondary[model.IPAMBlockAttributeType] != "" {
				a.Of = "tunnel"
			} else if attribute.AttrSecondary[model.IPAMBlockAttributePod] != "" {
				a.Of = "pod"
			}
			b.Assigned[address] = a
		}
		address = address.Next()
	}
	return b
}
