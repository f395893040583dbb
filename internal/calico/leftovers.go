// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/names"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// PodHoldings is what the datastore holds under the names of pods.
type PodHoldings struct {
	// Leftovers are those of pods that are not alive: the first mostLeftovers in the order in which the datastore has them, so that another
	// look finds the same. They bound what a check of a datastore keeps in memory of which every pod seems gone.
	Leftovers []Leftover
	// Doubled are what living pods hold that have something of several sandboxes or hosts.
	Doubled []Sandboxed
	// Count is how many addresses and endpoints name a pod, whether it is alive or not.
	Count int

	seen *sandboxes
}

// mostLeftovers bounds PodHoldings.Leftovers.
const mostLeftovers = 20_000

func (p *PodHoldings) keep(l Leftover) {
	if len(p.Leftovers) < mostLeftovers {
		p.Leftovers = append(p.Leftovers, l)
	}
}

// HeldAddress is an assigned address as it stands in its block, for the journal. Its JSON form MUST stay readable.
type HeldAddress struct {
	Block    netip.Prefix `json:"block"`
	Address  netip.Addr   `json:"address"`
	Handle   string       `json:"handle"`
	Sequence uint64       `json:"sequence"`
	// Attributes are what anyone who assigned the address wrote with it (libcalico-go, lib/backend/model IPAMBlockAttribute constants).
	Attributes map[string]string `json:"attributes,omitempty"`
}

// alivePod tells whether a pod is alive, for a scan.
type alivePod func(namespace, name string) bool

// PodHoldings looks, at the given store revision, for addresses and endpoints of Kubernetes whose pod alive does not know. Endpoints are
// looked at by their keys alone, and blocks page by page; a block that cannot be parsed holds no leftover. It returns the leftovers in no
// certain order.
func (d *Etcd) PodHoldings(ctx context.Context, revision int64, alive func(namespace, name string) bool) (PodHoldings, error) {
	found := PodHoldings{seen: newSandboxes()}
	err := d.eachPage(ctx, revision, endpointPrefix, func(key string, _ []byte, modified int64) { found.addEndpoint(key, modified, alive) },
		clientv3.WithKeysOnly(), clientv3.WithLimit(bareKeysPerPage))
	if err != nil {
		return PodHoldings{}, fmt.Errorf("reading the keys of workload endpoints: %w", err)
	}
	if err := d.eachPage(ctx, revision, blockPrefix, func(_ string, value []byte, _ int64) { found.addBlock(value, alive) }); err != nil {
		return PodHoldings{}, fmt.Errorf("reading IPAM blocks: %w", err)
	}
	found.Doubled, err = d.readDoubled(ctx, revision, found.seen)
	found.seen = nil
	return found, err
}

// PodHoldings looks for addresses whose pod alive does not know: all blocks, page by page. An endpoint is the pod itself in this datastore,
// and never a leftover. The revision is not used, as for Hosts.
func (d *KubernetesAPI) PodHoldings(ctx context.Context, _ int64, alive func(namespace, name string) bool) (PodHoldings, error) {
	found := PodHoldings{seen: newSandboxes()}
	err := d.eachRaw(ctx, kindBlock, func(raw []byte) error {
		var object struct {
			Spec json.RawMessage `json:"spec"`
		}
		if json.Unmarshal(raw, &object) == nil {
			found.addBlock(object.Spec, alive)
		}
		return nil
	})
	if err != nil {
		return PodHoldings{}, err
	}
	found.Doubled, err = d.readDoubled(ctx, found.seen)
	found.seen = nil
	return found, err
}

// addEndpoint notes the endpoint of a key, if its pod is not alive.
func (p *PodHoldings) addEndpoint(key string, revision int64, alive alivePod) {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, endpointPrefix), "/")
	ids, err := names.ParseWorkloadEndpointName(name)
	if err != nil || ids.Orchestrator != orchestratorKubernetes || ids.Node == "" || ids.Pod == "" || namespace == "" {
		return
	}
	p.Count++
	if alive(namespace, ids.Pod) {
		p.seen.see(podName{namespace, ids.Pod}, ids.Node, "")
		return
	}
	p.keep(Leftover{
		Host: ids.Node, Namespace: namespace, Pod: ids.Pod, Endpoint: EndpointRef{Namespace: namespace, Name: name, Revision: revision},
	})
}

// addBlock notes the addresses of a block whose pod is not alive. Only a block with a candidate is taken apart as a whole.
func (p *PodHoldings) addBlock(value []byte, alive alivePod) {
	sketch, err := sketchBlock(value)
	if err != nil {
		return
	}
	candidates := false
	p.seen.inBlock(sketch.CIDR)
	for _, a := range sketch.Attributes {
		if of := a.Owner; of.ofPod() && a.Handle != "" {
			p.Count++
			if alive(of.Namespace, of.Pod) {
				p.seen.see(podName{of.Namespace, of.Pod}, of.Node, containerOf(a.Handle))
			} else {
				candidates = true
			}
		}
	}
	if !candidates || len(p.Leftovers) == mostLeftovers {
		return
	}
	cidr, err := netip.ParsePrefix(sketch.CIDR)
	if err != nil {
		return
	}
	block, err := parseBlock(blockModelKey(cidr.Masked()), value)
	if err != nil {
		return
	}
	for _, a := range block.Allocations {
		host, namespace, pod, ok := a.ofPod()
		if !ok || alive(namespace, pod) {
			continue
		}
		p.keep(Leftover{
			Host: host, Namespace: namespace, Pod: pod, Block: block.CIDR,
			Reservation: Assignment{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence},
		})
	}
}

// ofPod is the pod of an address that can be released by its handle and has no other owner.
func (a Allocation) ofPod() (host, namespace, pod string, ok bool) {
	of := ownerOf(a.Attributes)
	return of.Node, of.Namespace, of.Pod, of.ofPod() && a.Handle != "" && a.Unknown == "" && a.AlternateHost == ""
}

// DescribeLeftovers reads what is to be removed as it stands now, for the journal: endpoints byte for byte, and addresses with their
// attributes. What has changed or gone is left out: the write that follows does not hold then.
func (d *Etcd) DescribeLeftovers(ctx context.Context, leftovers []Leftover) (objects []Object, addresses []HeldAddress, err error) {
	addresses, err = heldOf(leftovers, func(cidr netip.Prefix) (Block, error) {
		_, stored, _, err := d.readBlock(ctx, cidr)
		if err != nil || stored == nil {
			return Block{}, err
		}
		return translateBlock(stored)
	})
	if err != nil {
		return nil, nil, err
	}
	for _, l := range leftovers {
		if l.Endpoint.Name != "" {
			key := endpointKey(l.Endpoint.Namespace, l.Endpoint.Name)
			resp, err := d.get(ctx, key)
			if err != nil {
				return nil, nil, fmt.Errorf("reading %s: %w", key, err)
			}
			for _, kv := range resp.Kvs {
				objects = append(objects, Object{Key: key, Revision: kv.ModRevision, Value: string(kv.Value)})
			}
		}
	}
	return objects, addresses, nil
}

// DescribeLeftovers reads what is to be removed as it stands now, for the journal: there are only addresses.
func (d *KubernetesAPI) DescribeLeftovers(ctx context.Context, leftovers []Leftover) (objects []Object, addresses []HeldAddress, err error) {
	addresses, err = heldOf(leftovers, func(cidr netip.Prefix) (Block, error) {
		object, err := d.read(ctx, kindBlock, resourceName(cidr))
		if err != nil || object == nil {
			return Block{}, err
		}
		return readBlock(object)
	})
	return nil, addresses, err
}

// heldOf are those of the leftovers that are addresses as they stand in their blocks, without those that are others by now. Each block is read once.
func heldOf(leftovers []Leftover, read func(netip.Prefix) (Block, error)) (held []HeldAddress, err error) {
	blocks := map[netip.Prefix]Block{}
	for _, l := range leftovers {
		if l.Endpoint.Name != "" {
			continue
		}
		block, known := blocks[l.Block]
		if !known {
			if block, err = read(l.Block); err != nil {
				return nil, err
			}
			blocks[l.Block] = block
		}
		for _, a := range block.Allocations {
			if a.Address == l.Address && a.Handle == l.Handle && a.Sequence == l.Sequence {
				held = append(held, heldAddress(block, a))
			}
		}
	}
	return held, nil
}

func heldAddress(block Block, a Allocation) HeldAddress {
	return HeldAddress{Block: block.CIDR, Address: a.Address, Handle: a.Handle, Sequence: a.Sequence, Attributes: a.Attributes}
}

// MachineUID is the UID of the host's Calico Node, "" if there is none.
func (d *Etcd) MachineUID(ctx context.Context, host string) (string, error) {
	resp, err := d.get(ctx, nodeKey(host))
	if err != nil {
		return "", fmt.Errorf("reading Calico Node %s: %w", host, err)
	}
	if len(resp.Kvs) == 0 {
		return "", nil
	}
	node, err := nodeOf(nodeKey(host), resp.Kvs[0].Value)
	if err != nil {
		return "", fmt.Errorf("parsing Calico Node %s: %w", host, err)
	}
	return string(node.UID), nil
}

// MachineUID is the UID of the Kubernetes Node, which is the Calico Node here; "" if there is none.
func (d *KubernetesAPI) MachineUID(ctx context.Context, host string) (string, error) {
	raw, err := do(ctx, d.client.Get().AbsPath("/api/v1").Resource("nodes").Name(host).SetHeader("Accept", nodeMetadata))
	if isAbsent(err, host) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading Kubernetes Node %s: %w", host, err)
	}
	object, err := parseCustomResource("Node", raw)
	if err != nil {
		return "", err
	}
	return string(object.metadata.UID), nil
}

// RemoveLeftovers removes endpoints, or frees addresses of one block with their handles, all or none, of an existing machine: the Calico
// Node must still be as the guard says, each of them as it was seen, and so the endpoints of Living. An endpoint that
// cannot be parsed, or says that it is another machine's than its key says, is an error: it was found by its key alone.
func (d *Etcd) RemoveLeftovers(ctx context.Context, guard Guard, leftovers []Leftover) error {
	if guard.Revision == 0 {
		return fmt.Errorf("removing leftovers of %s needs the revision at which its Calico Node was seen", guard.Host)
	}
	endpoints, block, assignments, err := sortLeftovers(leftovers)
	switch {
	case err != nil:
		return err
	case len(endpoints) > 0:
		if err := d.readEndpoints(ctx, guard.Host, endpoints); err != nil {
			return err
		}
		return d.DeleteEndpoints(ctx, guard, endpoints)
	}
	living := map[string]int64{}
	for _, l := range leftovers {
		if l.Living.Name != "" {
			living[endpointKey(l.Living.Namespace, l.Living.Name)] = l.Living.Revision
		}
	}
	if err := d.releaseAddresses(ctx, guard, living, block, assignments); err != nil {
		return fmt.Errorf("releasing addresses of %s in block %s: %w", guard.Host, block, err)
	}
	return nil
}

// readEndpoints is an error if one of the endpoints cannot be parsed or is not of the host. One that is absent is for the write to find.
func (d *Etcd) readEndpoints(ctx context.Context, host string, endpoints []EndpointRef) error {
	for _, e := range endpoints {
		key := endpointKey(e.Namespace, e.Name)
		resp, err := d.get(ctx, key)
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		for _, kv := range resp.Kvs {
			if wep, ok := parseEndpoint(e.Namespace, e.Name, kv.Value); !ok || wep.Spec.Node != host {
				return fmt.Errorf("%s cannot be parsed, or is of another machine than its key says: repair or remove it", key)
			}
		}
	}
	return nil
}

// RemoveLeftovers frees addresses of one block with their handles, of an existing machine: the block must still be as it is read, and each
// of the addresses as it was seen. There is no transaction over several objects here, as for ReleaseAddresses.
func (d *KubernetesAPI) RemoveLeftovers(ctx context.Context, guard Guard, leftovers []Leftover) error {
	endpoints, block, assignments, err := sortLeftovers(leftovers)
	switch {
	case err != nil:
		return err
	case len(endpoints) > 0:
		return errNotInKubernetes
	}
	if err := d.releaseIf(ctx, d.checkReady, guard.Host, block, assignments); err != nil {
		return fmt.Errorf("releasing addresses of %s in block %s: %w", guard.Host, block, err)
	}
	return nil
}

// checkReady is a conflict while the datastore is locked.
func (d *KubernetesAPI) checkReady(ctx context.Context) error {
	ready, _, err := d.clusterInformation(ctx)
	if err == nil && !ready {
		err = &ConflictError{Key: kindClusterInfo + " default", Detail: "the datastore is locked"}
	}
	return err
}

// sortLeftovers returns the endpoints, or the addresses of one block. What is neither is an error.
func sortLeftovers(leftovers []Leftover) (endpoints []EndpointRef, block netip.Prefix, assignments []Assignment, err error) {
	for _, l := range leftovers {
		switch {
		case l.Endpoint.Name != "":
			endpoints = append(endpoints, l.Endpoint)
		case block.IsValid() && block != l.Block || !l.Block.IsValid():
			return nil, block, nil, fmt.Errorf("address %s is not of block %s", l.Address, block)
		default:
			block, assignments = l.Block, append(assignments, l.Reservation)
		}
	}
	if (len(endpoints) > 0) == (len(assignments) > 0) {
		return nil, block, nil, fmt.Errorf("%d endpoints and %d addresses are not one write", len(endpoints), len(assignments))
	}
	return endpoints, block, assignments, nil
}
