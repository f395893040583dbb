// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
)

// virtualPrefix is where affinities of load balancers stand (libcalico-go, lib/backend/model block_affinity.go).
const virtualPrefix = "/calico/ipam/v2/" + model.IPAMAffinityTypeVirtual + "/"

// IPAM reads all data of Calico's IPAM, and what uses it, at one revision of the store, page by page. Pods are
// Kubernetes' and are not read. What cannot be parsed is named in Unreadable.
func (d *Etcd) IPAM(ctx context.Context) (ipamcheck.Data, error) {
	now, err := d.get(ctx, clusterInformationKey, clientv3.WithCountOnly())
	if err != nil {
		return ipamcheck.Data{}, fmt.Errorf("reading the revision of Calico's etcd: %w", err)
	}
	r := newIPAMReading()
	for _, part := range []struct {
		what, prefix string
		page         int64
		add          func(key string, value []byte, revision int64) error
	}{
		{"IPPools", poolPrefix, keysPerPage, r.addPool},
		{"Calico Nodes", nodePrefix, keysPerPage, r.addNode},
		{"block affinities", affinityPrefix, smallValuesPerPage, r.addAffinity},
		{"affinities of load balancers", virtualPrefix, smallValuesPerPage, r.addAffinity},
		{"IPAM handles", handlePrefix, smallValuesPerPage, r.addHandle},
		{"IPAM blocks", blockPrefix, keysPerPage, r.addBlock},
		{"workload endpoints", endpointPrefix, smallValuesPerPage, r.addEndpoint},
	} {
		err := d.eachPage(ctx, now.Header.Revision, part.prefix, func(key string, value []byte, modified int64) {
			r.note(key, part.add(key, value, modified))
		}, clientv3.WithLimit(part.page))
		if err != nil {
			return ipamcheck.Data{}, fmt.Errorf("reading %s: %w", part.what, err)
		}
	}
	return r.data, nil
}

// smallValuesPerPage is how many values of less than a kilobyte one answer has. With each page etcd counts all keys
// that are left.
const smallValuesPerPage = 5_000

// ipamReading collects what is read.
type ipamReading struct {
	data ipamcheck.Data
	// texts are texts that occur many times, each once, and ones are the counts of handles that have one address in a
	// block.
	texts map[string]string
	ones  map[string]map[netip.Prefix]int
}

func newIPAMReading() *ipamReading {
	return &ipamReading{texts: map[string]string{}, ones: map[string]map[netip.Prefix]int{}}
}

// once returns the text, in the memory of the first that was the same.
func (r *ipamReading) once(text string) string {
	if known, ok := r.texts[text]; ok {
		return known
	}
	text = strings.Clone(text)
	r.texts[text] = text
	return text
}

// note names what could not be parsed.
func (r *ipamReading) note(key string, err error) {
	if err != nil {
		r.data.Unreadable = append(r.data.Unreadable, key)
	}
}

func (r *ipamReading) addPool(_ string, value []byte, _ int64) error {
	var pool struct {
		Spec struct {
			CIDR string `json:"cidr"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(value, &pool); err != nil {
		return err
	}
	cidr, err := netip.ParsePrefix(pool.Spec.CIDR)
	if err == nil {
		r.data.Pools = append(r.data.Pools, cidr.Masked())
	}
	return err
}

func (r *ipamReading) addNode(key string, value []byte, revision int64) error {
	node, err := parseCalicoNode(strings.TrimPrefix(key, nodePrefix), value)
	if err == nil {
		r.data.Nodes = append(r.data.Nodes, ipamcheck.Node{Name: node.Name, Revision: revision, BGP: ownAddresses(node)})
	}
	return err
}

func (r *ipamReading) addAffinity(key string, value []byte, revision int64) error {
	k, ok := model.BlockAffinityListOptions{}.KeyFromDefaultPath(key).(model.BlockAffinityKey)
	if !ok {
		return fmt.Errorf("%s is not the key of an affinity", key)
	}
	cidr, err := fromCalicoNet(k.CIDR)
	if err != nil {
		return err
	}
	var affinity model.BlockAffinity
	if err := json.Unmarshal(value, &affinity); err != nil {
		return err
	}
	r.putAffinity(k.AffinityType, k.Host, ipamcheck.Affinity{CIDR: cidr, Revision: revision, State: string(affinity.State)}, affinity.Deleted)
	return nil
}

// putAffinity keeps an affinity unless it is marked as deleted.
func (r *ipamReading) putAffinity(kind, host string, a ipamcheck.Affinity, deleted bool) {
	if a.Host = host; kind == model.IPAMAffinityTypeVirtual {
		a.Host = kind + ":" + host
	}
	if !deleted {
		r.data.Affinities = append(r.data.Affinities, a)
	}
}

func (r *ipamReading) addHandle(key string, value []byte, revision int64) error {
	var handle model.IPAMHandle
	if err := json.Unmarshal(value, &handle); err != nil {
		return err
	}
	return r.putHandle(strings.TrimPrefix(key, handlePrefix), handle.Block, revision, handle.Deleted)
}

// putHandle keeps a handle unless it is marked as deleted. Its ID is without what an old Windows CNI plugin left
// behind its end; see handleOf.
func (r *ipamReading) putHandle(id string, counts map[string]int, revision int64, deleted bool) error {
	id, _, _ = strings.Cut(id, "\r")
	parsed, err := r.counts(counts)
	if err == nil && !deleted {
		r.data.Handles = append(r.data.Handles, ipamcheck.Handle{ID: r.once(id), Revision: revision, Counts: parsed})
	}
	return err
}

// counts are those of a handle. Nearly all handles have one address, and those of a block share their counts, which
// nobody changes.
func (r *ipamReading) counts(stored map[string]int) (map[netip.Prefix]int, error) {
	counts := make(map[netip.Prefix]int, len(stored))
	for text, n := range stored {
		one := len(stored) == 1 && n == 1
		if known := r.ones[text]; one && known != nil {
			return known, nil
		}
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("reading block %q of a handle: %w", text, err)
		}
		counts[cidr.Masked()] = n
		if one {
			r.ones[text] = counts
		}
	}
	return counts, nil
}

func (r *ipamReading) addBlock(key string, value []byte, revision int64) error {
	k, ok := model.BlockListOptions{}.KeyFromDefaultPath(key).(model.BlockKey)
	if !ok {
		return fmt.Errorf("%s is not the key of a block", key)
	}
	stored, err := decodeBlock(k, value)
	if err == nil {
		err = r.putBlock(stored, revision)
	}
	r.data.UnreadableBlock = r.data.UnreadableBlock || err != nil
	return err
}

// putBlock keeps a block unless it is marked as deleted.
func (r *ipamReading) putBlock(stored *storedBlock, revision int64) error {
	b, err := translateBlock(stored)
	if err != nil || stored.Deleted {
		return err
	}
	block := ipamcheck.Block{CIDR: b.CIDR, AffineTo: b.AffineTo, Revision: revision}
	for _, a := range b.Allocations {
		block.Allocations = append(block.Allocations, ipamcheck.Allocation{
			Address: a.Address, Handle: r.once(a.Handle), Sequence: a.Sequence, Host: r.once(a.Host),
			Pod:      ipamcheck.Pod{Namespace: r.once(a.Attributes[model.IPAMBlockAttributeNamespace]), Name: r.once(a.Attributes[model.IPAMBlockAttributePod])},
			Cooling:  !a.ReleasedAt.IsZero(),
			Reserved: strings.EqualFold(a.Handle, ipam.WindowsReservedHandle),
			Shared:   a.VirtualMachine != "" || a.AlternateHost != "" || a.Unknown != "",
		})
	}
	for _, ordinal := range stored.Unallocated {
		address, ok := netip.AddrFromSlice(stored.OrdinalToIP(ordinal).IP)
		if !ok {
			return fmt.Errorf("position %d has no address", ordinal)
		}
		block.Free = append(block.Free, address.Unmap())
	}
	r.data.Blocks = append(r.data.Blocks, block)
	return nil
}

// endpointSketch is as much of a WorkloadEndpoint as is compared. Parsing all of it takes many times as long.
type endpointSketch struct {
	Spec struct {
		Orchestrator string   `json:"orchestrator"`
		Node         string   `json:"node"`
		Pod          string   `json:"pod"`
		ContainerID  string   `json:"containerID"`
		IPNetworks   []string `json:"ipNetworks"`
	} `json:"spec"`
}

// sketchEndpoint reads an endpoint as etcd holds it. As in a blockSketch, what is kept of the texts must be cloned.
func sketchEndpoint(value []byte) (e endpointSketch, err error) {
	j := jsonText{text: string(value)}
	read := j.object(func(name string) bool { return name == "spec" && j.endpoint(&e) || name != "spec" && j.skip() }, "spec")
	if read && j.end() {
		return e, nil
	}
	e = endpointSketch{}
	err = json.Unmarshal(value, &e)
	return e, err
}

func (j *jsonText) endpoint(e *endpointSketch) bool {
	return j.object(func(name string) bool {
		switch name {
		case "orchestrator":
			return j.str(&e.Spec.Orchestrator)
		case "node":
			return j.str(&e.Spec.Node)
		case "pod":
			return j.str(&e.Spec.Pod)
		case "containerID":
			return j.str(&e.Spec.ContainerID)
		case "ipNetworks":
			return j.list('[', ']', func() bool {
				e.Spec.IPNetworks = append(e.Spec.IPNetworks, "")
				return j.str(&e.Spec.IPNetworks[len(e.Spec.IPNetworks)-1])
			})
		}
		return j.skip()
	}, "orchestrator", "node", "pod", "containerID", "ipNetworks")
}

func (r *ipamReading) addEndpoint(key string, value []byte, revision int64) error {
	sketch, err := sketchEndpoint(value)
	if err != nil {
		return err
	}
	if sketch.Spec.Orchestrator != orchestratorKubernetes {
		return nil
	}
	namespace, _, _ := strings.Cut(strings.TrimPrefix(key, endpointPrefix), "/")
	return r.putEndpoint(ipamcheck.Endpoint{
		Key: strings.TrimPrefix(key, endpointPrefix), Revision: revision, Host: r.once(sketch.Spec.Node),
		Sandbox: strings.Clone(sketch.Spec.ContainerID),
		Pod:     ipamcheck.Pod{Namespace: r.once(namespace), Name: r.once(sketch.Spec.Pod)},
	}, sketch.Spec.IPNetworks)
}

func (r *ipamReading) putEndpoint(e ipamcheck.Endpoint, networks []string) error {
	for _, text := range networks {
		text, _, _ = strings.Cut(text, "/")
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("reading an address of endpoint %s: %w", e.Key, err)
		}
		e.Addresses = append(e.Addresses, address)
	}
	r.data.Endpoints = append(r.data.Endpoints, e)
	return nil
}

// parseBGPAddresses are the addresses of a Node as calico-node writes them, each with its prefix length.
func parseBGPAddresses(v4, v6 string) []netip.Addr {
	return ownAddresses(&libapiv3.Node{Spec: libapiv3.NodeSpec{BGP: &libapiv3.NodeBGPSpec{IPv4Address: v4, IPv6Address: v6}}})
}
