// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
)

// blockSketch is as much of a block as tells who uses it (libcalico-go, lib/backend/model AllocationBlock). All blocks
// of a datastore are looked through so; parsing all of each takes many times as long.
type blockSketch struct {
	CIDR     string `json:"cidr"`
	Affinity string `json:"affinity"`
	// HostAffinity is how versions before 2.2 wrote it.
	HostAffinity string            `json:"hostAffinity"`
	Attributes   []attributeSketch `json:"attributes"`
}

// attributeSketch is what a block says of addresses of one owner.
type attributeSketch struct {
	Handle string      `json:"handle_id"`
	Owner  ownerSketch `json:"secondary"`
}

// ownerSketch is whose an address is.
type ownerSketch struct {
	Node, Namespace, Pod, Type string
	// More reports that there are other attributes than Calico's CNI plugin writes for a pod.
	More bool
}

// ownerOf sketches what an allocation says of its owner.
func ownerOf(attributes map[string]string) (o ownerSketch) {
	for name, value := range attributes {
		o.set(name, value)
	}
	return o
}

func (o *ownerSketch) set(name, value string) {
	switch name {
	case model.IPAMBlockAttributeNode:
		o.Node = value
	case model.IPAMBlockAttributeNamespace:
		o.Namespace = value
	case model.IPAMBlockAttributePod:
		o.Pod = value
	case model.IPAMBlockAttributeType:
		o.Type, o.More = value, true
	case model.IPAMBlockAttributeTimestamp:
	default:
		o.More = true
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *ownerSketch) UnmarshalJSON(value []byte) error {
	var attributes map[string]string
	err := json.Unmarshal(value, &attributes)
	*o = ownerOf(attributes)
	return err
}

// ofKubernetes reports that an address was assigned to a pod, or to a host for its tunnels, which calico-node does
// (node/pkg/allocateip).
func (o ownerSketch) ofKubernetes() bool {
	return o.Pod != "" || strings.HasSuffix(o.Type, "TunnelAddress")
}

// ofPod reports that an assignment says nothing else of itself than what Calico's CNI plugin writes for a pod
// (cni-plugin, pkg/ipamplugin): an attribute that this program does not know may mean that the address outlives its pod.
func (o ownerSketch) ofPod() bool {
	return !o.More && o.Node != "" && o.Namespace != "" && o.Pod != ""
}

// sketchBlock reads a block as etcd holds it. The texts in it are parts of one: what is kept of them must be cloned.
func sketchBlock(value []byte) (b blockSketch, err error) {
	j := jsonText{text: string(value)}
	if j.block(&b) && j.end() {
		return b, nil
	}
	b = blockSketch{}
	err = json.Unmarshal(value, &b)
	return b, err
}

// sketchCustomBlock reads a block as the API server returns it.
func sketchCustomBlock(raw []byte) (blockSketch, error) {
	var object struct {
		Spec blockSketch `json:"spec"`
	}
	j := jsonText{text: string(raw)}
	read := j.object(func(name string) bool {
		if name == "spec" {
			return j.block(&object.Spec)
		}
		return j.skip()
	}, "spec")
	if read && j.end() {
		return object.Spec, nil
	}
	object.Spec = blockSketch{}
	err := json.Unmarshal(raw, &object)
	return object.Spec, err
}

func (j *jsonText) block(b *blockSketch) bool {
	return j.object(func(name string) bool {
		switch name {
		case "cidr":
			return j.str(&b.CIDR)
		case "affinity":
			return j.str(&b.Affinity)
		case "hostAffinity":
			return j.str(&b.HostAffinity)
		case "attributes":
			b.Attributes = make([]attributeSketch, 0, strings.Count(j.text, `"handle_id"`))
			return j.list('[', ']', func() bool {
				b.Attributes = append(b.Attributes, attributeSketch{})
				return j.attribute(&b.Attributes[len(b.Attributes)-1])
			})
		}
		return j.skip()
	}, "cidr", "affinity", "hostAffinity", "attributes")
}

func (j *jsonText) attribute(a *attributeSketch) bool {
	return j.object(func(name string) bool {
		switch name {
		case "handle_id":
			return j.str(&a.Handle)
		case "secondary":
			return j.owner(&a.Owner)
		}
		return j.skip()
	}, "handle_id", "secondary")
}

// isPlain reports that an attribute says nothing but what Calico's CNI plugin writes for a pod, as nearly all do. False
// says nothing.
func isPlain(attribute []byte) bool {
	var a attributeSketch
	j := jsonText{text: string(attribute)}
	return j.object(func(name string) bool {
		return name == "handle_id" && j.str(&a.Handle) || name == "secondary" && j.owner(&a.Owner)
	}, "handle_id", "secondary") && j.end() && !a.Owner.More
}

// owner leaves to encoding/json what names an attribute twice.
func (j *jsonText) owner(o *ownerSketch) bool {
	return j.object(func(name string) bool {
		var value string
		read := j.str(&value)
		o.set(name, value)
		return read
	}, model.IPAMBlockAttributeNode, model.IPAMBlockAttributeNamespace, model.IPAMBlockAttributePod, model.IPAMBlockAttributeType)
}
