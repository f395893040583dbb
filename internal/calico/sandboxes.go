// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostDoubled bounds the pods of which PodHoldings.Doubled are: what one look does not find another one does.
const mostDoubled = 1000

// containerOf is the container ID in a handle, "" for none.
func containerOf(handle string) string {
	if dot := strings.LastIndexByte(handle, '.'); dot >= 0 {
		return handle[dot+1:]
	}
	return ""
}

// podName is the namespace and the name of a pod.
type podName struct{ namespace, pod string }

// sandboxes finds pods of which a second host or a second container is seen, and keeps twenty bytes of every other.
type sandboxes struct {
	seed   maphash.Seed
	first  map[uint64]firstSeen
	hosts  []string
	known  map[string]uint32 // the number of a host in hosts
	blocks []netip.Prefix
	// doubled are their hosts, and again the blocks in which their addresses were seen.
	doubled map[podName]map[string]bool
	again   map[netip.Prefix]bool
}

// firstSeen is where a pod was seen first.
type firstSeen struct {
	host      uint32
	container uint32 // a hash, 0 for no address yet
	block     uint32 // its number in blocks
}

func newSandboxes() *sandboxes {
	return &sandboxes{
		seed: maphash.MakeSeed(), first: map[uint64]firstSeen{}, known: map[string]uint32{}, blocks: []netip.Prefix{{}},
		doubled: map[podName]map[string]bool{}, again: map[netip.Prefix]bool{},
	}
}

// see notes an endpoint, or with a container an address of the last of the blocks.
func (s *sandboxes) see(of podName, host, container string) {
	if s == nil {
		return
	}
	number, known := s.known[host]
	if !known {
		number = uint32(len(s.hosts))
		host = strings.Clone(host)
		s.known[host], s.hosts = number, append(s.hosts, host)
	}
	now := firstSeen{host: number}
	if container != "" {
		now.container, now.block = uint32(maphash.String(s.seed, container))|1, uint32(len(s.blocks)-1)
	}
	key := maphash.Comparable(s.seed, of)
	first, seen := s.first[key]
	if !seen || first.container == 0 && first.host == now.host {
		s.first[key], first = now, now
	}
	same := first.host == now.host && (now.container == 0 || first.container == now.container)
	if s.doubled[of] == nil {
		if same {
			return
		}
		if len(s.doubled) == mostDoubled {
			return
		}
		of = podName{strings.Clone(of.namespace), strings.Clone(of.pod)}
		s.doubled[of] = map[string]bool{}
	}
	s.doubled[of][s.hosts[number]], s.doubled[of][s.hosts[first.host]] = true, true
	s.again[s.blocks[now.block]], s.again[s.blocks[first.block]] = true, true
}

// inBlock begins a block.
func (s *sandboxes) inBlock(cidr string) {
	if s == nil {
		return
	}
	if prefix, err := netip.ParsePrefix(cidr); err == nil {
		s.blocks = append(s.blocks, prefix.Masked())
	}
}

// toRead are the blocks to be read again.
func (s *sandboxes) toRead() []netip.Prefix {
	delete(s.again, netip.Prefix{})
	return slices.SortedFunc(maps.Keys(s.again), func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
}

// addresses are those of the doubled pods in a block.
func (s *sandboxes) addresses(block Block) (found []Sandboxed) {
	for _, a := range block.Allocations {
		host, namespace, pod, ok := a.ofPod()
		if hosts := s.doubled[podName{namespace, pod}]; ok && hosts != nil && containerOf(a.Handle) != "" {
			hosts[host] = true
			found = append(found, Sandboxed{Container: containerOf(a.Handle), Leftover: Leftover{
				Host: host, Namespace: namespace, Pod: pod, Block: block.CIDR,
				Reservation: Assignment{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence},
			}})
		}
	}
	return found
}

// readDoubled reads what there is of the doubled pods: their addresses, and their endpoints with the container IDs.
func (d *Etcd) readDoubled(ctx context.Context, revision int64, s *sandboxes) (found []Sandboxed, err error) {
	var reads []clientv3.Op
	for _, cidr := range s.toRead() {
		key, err := blockKey(cidr)
		if err != nil {
			return nil, err
		}
		reads = append(reads, clientv3.OpGet(key, clientv3.WithRev(revision)))
	}
	err = d.readMany(ctx, reads, func(_ int, kv *mvccpb.KeyValue) {
		if k, ok := (model.BlockListOptions{}).KeyFromDefaultPath(string(kv.Key)).(model.BlockKey); ok {
			if block, err := parseBlock(k, kv.Value); err == nil {
				found = append(found, s.addresses(block)...)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("reading blocks of pods with several sandboxes: %w", err)
	}
	reads = nil
	read := map[string]bool{}
	for _, of := range slices.SortedFunc(maps.Keys(s.doubled), func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod))
	}) {
		for _, host := range slices.Sorted(maps.Keys(s.doubled[of])) {
			ids := names.WorkloadEndpointIdentifiers{Node: host, Orchestrator: orchestratorKubernetes, Pod: of.pod}
			if prefix, err := ids.CalculateWorkloadEndpointName(true); err == nil {
				key := endpointKey(of.namespace, prefix)
				reads = append(reads, clientv3.OpGet(key, clientv3.WithPrefix(), clientv3.WithRev(revision)))
			}
		}
	}
	err = d.readMany(ctx, reads, func(_ int, kv *mvccpb.KeyValue) {
		key := string(kv.Key)
		namespace, name, _ := strings.Cut(strings.TrimPrefix(key, endpointPrefix), "/")
		wep, ok := parseEndpoint(namespace, name, kv.Value)
		// The prefix of pod "a" is one of pod "a-b" as well.
		of := podName{namespace, ""}
		if ok && wep.Spec.Orchestrator == orchestratorKubernetes {
			of.pod = wep.Spec.Pod
		}
		if read[key] || s.doubled[of] == nil {
			return
		}
		read[key] = true
		found = append(found, Sandboxed{Container: wep.Spec.ContainerID, Leftover: Leftover{
			Host: wep.Spec.Node, Namespace: namespace, Pod: wep.Spec.Pod,
			Endpoint: EndpointRef{Namespace: namespace, Name: name, Revision: kv.ModRevision},
		}})
	})
	if err != nil {
		return nil, fmt.Errorf("reading endpoints of pods with several sandboxes: %w", err)
	}
	return found, nil
}

// readDoubled reads the addresses that there are of the doubled pods. Their endpoints are the pods themselves.
func (d *KubernetesAPI) readDoubled(ctx context.Context, s *sandboxes) (found []Sandboxed, err error) {
	for _, cidr := range s.toRead() {
		object, err := d.read(ctx, kindBlock, resourceName(cidr))
		if err != nil {
			return nil, fmt.Errorf("reading a block of pods with several sandboxes: %w", err)
		}
		if object == nil {
			continue
		}
		if block, err := readBlock(object); err == nil {
			found = append(found, s.addresses(block)...)
		}
	}
	return found, nil
}
