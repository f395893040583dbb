// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
)

// Annotations in which the kubernetes datastore keeps what is a field of a Calico Node or of an endpoint in etcd
// (libcalico-go, lib/backend/k8s/resources node.go and lib/backend/k8s/conversion constants.go).
const (
	annotationIPv4      = "projectcalico.org/IPv4Address"
	annotationIPv6      = "projectcalico.org/IPv6Address"
	annotationPodIP     = "cni.projectcalico.org/podIP"
	annotationPodIPs    = "cni.projectcalico.org/podIPs"
	annotationContainer = "cni.projectcalico.org/containerID"
)

// IPAM reads all data of Calico's IPAM, and what uses it. Each kind is of one moment, and the kinds are of several:
// only what two readings show alike is so. IPPools that may not be listed are reported in the data.
func (d *KubernetesAPI) IPAM(ctx context.Context) (ipamcheck.Data, error) {
	r := newIPAMReading()
	for _, part := range []struct {
		kind string
		add  func(*customResource) error
	}{
		{kindHandle, r.addCustomHandle}, {kindBlock, r.addCustomBlock}, {kindAffinity, r.addCustomAffinity},
	} {
		err := d.each(ctx, part.kind, func(object *customResource) error {
			r.note(object.String(), part.add(object))
			return nil
		})
		if err != nil {
			return ipamcheck.Data{}, err
		}
	}
	err := d.each(ctx, kindPool, func(object *customResource) error {
		r.note(object.String(), r.addPool("", object.raw, 0))
		return nil
	})
	if err != nil {
		r.data.PoolsUnread = err.Error()
	}
	if err := d.eachMetadata(ctx, "Kubernetes Nodes", "nodes", "", r.addNodeMetadata); err != nil {
		return ipamcheck.Data{}, err
	}
	if err := d.eachMetadata(ctx, "pods", "pods", "status.phase!=Succeeded,status.phase!=Failed", r.addPodMetadata); err != nil {
		return ipamcheck.Data{}, err
	}
	return r.data, nil
}

// metadataPerPage bounds one answer of a list of metadata.
const metadataPerPage = 2000

// eachMetadata visits the metadata of all Nodes or pods that a field selector selects.
func (d *KubernetesAPI) eachMetadata(ctx context.Context, what, resource, selector string, visit func(metav1.ObjectMeta)) error {
	list := func() *rest.Request {
		return d.client.Get().AbsPath("/api/v1").Resource(resource).Param("fieldSelector", selector).
			SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	return eachItem(ctx, what, metadataPerPage, list, func(raw []byte) error {
		var object metav1.PartialObjectMetadata
		err := json.Unmarshal(raw, &object)
		if err == nil {
			visit(object.ObjectMeta)
		}
		return err
	})
}

func (r *ipamReading) addCustomAffinity(object *customResource) error {
	var spec struct {
		Node, Type, CIDR, State, Deleted string
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return err
	}
	cidr, cidrErr := netip.ParsePrefix(spec.CIDR)
	revision, err := object.revision()
	if err := errors.Join(cidrErr, err); err != nil {
		return err
	}
	r.putAffinity(spec.Type, spec.Node, ipamcheck.Affinity{CIDR: cidr.Masked(), Revision: revision, State: spec.State}, spec.Deleted == strconv.FormatBool(true))
	return nil
}

func (r *ipamReading) addCustomHandle(object *customResource) error {
	var spec struct {
		HandleID string         `json:"handleID"`
		Block    map[string]int `json:"block"`
		Deleted  bool           `json:"deleted"`
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return err
	}
	revision, err := object.revision()
	if err != nil {
		return err
	}
	return r.putHandle(spec.HandleID, spec.Block, revision, spec.Deleted)
}

func (r *ipamReading) addCustomBlock(object *customResource) error {
	revision, err := object.revision()
	if err != nil {
		return err
	}
	stored, err := decodeCustomBlock(object)
	if err == nil {
		err = r.putBlock(stored, revision)
	}
	r.data.UnreadableBlock = r.data.UnreadableBlock || err != nil
	return err
}

func (r *ipamReading) addNodeMetadata(node metav1.ObjectMeta) {
	r.data.Nodes = append(r.data.Nodes, ipamcheck.Node{
		Name: node.Name, BGP: parseBGPAddresses(node.Annotations[annotationIPv4], node.Annotations[annotationIPv6]),
	})
}

// addPodMetadata keeps a pod with addresses as an endpoint. The CNI plugin empties the annotations when it has
// released them.
func (r *ipamReading) addPodMetadata(pod metav1.ObjectMeta) {
	addresses := cmp.Or(pod.Annotations[annotationPodIPs], pod.Annotations[annotationPodIP])
	if addresses == "" {
		return
	}
	key := pod.Namespace + "/" + pod.Name
	r.note("pod "+key, r.putEndpoint(ipamcheck.Endpoint{
		Key: key, Pod: ipamcheck.Pod{Namespace: pod.Namespace, Name: pod.Name}, Sandbox: pod.Annotations[annotationContainer],
	}, strings.Split(addresses, ",")))
}
