// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// LeaveAffinityWithoutBlock leaves a confirmed affinity of the host to a block that does not exist, and returns the block.
// Real ones come from programs that delete a block by itself: Calico marks the affinity pendingDeletion first. It is healed, by
// creating the block, when the host next needs an address and comes upon it: leave it as the last thing a host does.
func (a *Agent) LeaveAffinityWithoutBlock(ctx context.Context) (netip.Prefix, error) {
	return a.leaveAffinity(ctx, model.StateConfirmed)
}

// LeavePendingAffinity leaves an affinity of the host in state pending, without its block, and returns the block. Real
// ones come from a crash in the middle of claiming a block.
func (a *Agent) LeavePendingAffinity(ctx context.Context) (netip.Prefix, error) {
	return a.leaveAffinity(ctx, model.StatePending)
}

func (a *Agent) leaveAffinity(ctx context.Context, state model.BlockAffinityState) (netip.Prefix, error) {
	block, err := a.datastore.freeBlock(ctx)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("leaving an affinity of host %q: %w", a.host.Name, err)
	}
	_, err = a.datastore.backend.Create(ctx, &model.KVPair{
		Key: model.BlockAffinityKey{
			CIDR: cnet.MustParseCIDR(block.String()), Host: a.host.Name, AffinityType: string(ipam.AffinityTypeHost),
		},
		Value: &model.BlockAffinity{State: state},
	})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("leaving an affinity of host %q for block %s: %w", a.host.Name, block, err)
	}
	return block, nil
}

// LeaveOrphanedHandle leaves an IPAM handle that counts one address in a block of the host which has none under that
// handle, and returns the handle; once per host. Real ones come from a crash between the block's update and the handle's.
// The host must have a block.
func (a *Agent) LeaveOrphanedHandle(ctx context.Context) (string, error) {
	block, err := a.ownBlock(ctx)
	if err != nil {
		return "", fmt.Errorf("leaving an orphaned handle: %w", err)
	}
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("lost on " + a.host.Name)}}
	handle := HandleID(lost)
	_, err = a.datastore.backend.Create(ctx, &model.KVPair{
		Key:   model.IPAMHandleKey{HandleID: handle},
		Value: &model.IPAMHandle{HandleID: handle, Block: map[string]int{block.CIDR.String(): 1}},
	})
	if err != nil {
		return "", fmt.Errorf("leaving orphaned handle %q: %w", handle, err)
	}
	return handle, nil
}

// LeaveStaleEndpoint connects a pod and then releases its address but not its WorkloadEndpoint, and returns the address:
// IPAM may give it to another pod, while the endpoint still claims it. Real ones come from a lost DEL, after which garbage
// collection of IPAM releases the address: a DEL by itself deletes the endpoint first. With the Kubernetes datastore the
// endpoint is the pod itself.
func (a *Agent) LeaveStaleEndpoint(ctx context.Context, pod *corev1.Pod) (netip.Addr, error) {
	addresses, err := a.PodNetwork().Add(ctx, pod)
	if err != nil {
		return netip.Addr{}, err
	}
	return addresses[0], a.release(ctx, pod)
}

// BorrowAddress connects a pod of this host with an address from a block of the lender's, and returns the address. Hosts
// borrow when no block is left for them to claim. The lender must have a block with a free address.
func (a *Agent) BorrowAddress(ctx context.Context, pod *corev1.Pod, lender *Agent) (netip.Addr, error) {
	addresses, err := a.add(ctx, pod, func(ctx context.Context, pod *corev1.Pod) ([]netip.Addr, error) { return a.borrow(ctx, pod, lender) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("borrowing an address of host %q for host %q: %w", lender.host.Name, a.host.Name, err)
	}
	return addresses[0], nil
}

func (a *Agent) borrow(ctx context.Context, pod *corev1.Pod, lender *Agent) ([]netip.Addr, error) {
	block, err := lender.ownBlock(ctx)
	if err != nil {
		return nil, err
	}
	if len(block.Unallocated) == 0 {
		return nil, fmt.Errorf("block %s is full", block.CIDR.String())
	}
	ip := block.CIDR.NthIP(block.Unallocated[0])
	err = a.datastore.client.IPAM().AssignIP(ctx, ipam.AssignIPArgs{
		IP: ip, HandleID: new(HandleID(pod)), Hostname: a.host.Name, Attrs: podAttributes(a.host.Name, pod),
	})
	if err != nil {
		return nil, fmt.Errorf("assigning %s: %w", ip, err)
	}
	return inOrder([]cnet.IP{ip}, func(ip cnet.IP) net.IP { return ip.IP })
}

// ownBlock is a block that is affine to the host.
func (a *Agent) ownBlock(ctx context.Context) (*model.AllocationBlock, error) {
	blocks, err := a.datastore.blocks(ctx)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks {
		if block.AffinityType() == model.IPAMAffinityTypeHost && block.Host() == a.host.Name {
			return block, nil
		}
	}
	return nil, fmt.Errorf("host %q has no block", a.host.Name)
}

func (d *Datastore) blocks(ctx context.Context) ([]*model.AllocationBlock, error) {
	list, err := d.backend.List(ctx, model.BlockListOptions{}, "")
	if err != nil {
		return nil, fmt.Errorf("listing IPAM blocks: %w", err)
	}
	var blocks []*model.AllocationBlock
	for _, kv := range list.KVPairs {
		if block, ok := kv.Value.(*model.AllocationBlock); ok {
			blocks = append(blocks, block)
		}
	}
	return blocks, nil
}

// freeBlock is the first block of the first pool that nobody has or is about to have.
func (d *Datastore) freeBlock(ctx context.Context) (netip.Prefix, error) {
	taken := map[string]bool{}
	blocks, err := d.blocks(ctx)
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, block := range blocks {
		taken[block.CIDR.String()] = true
	}
	affinities, err := d.backend.List(ctx, model.BlockAffinityListOptions{}, "")
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("listing block affinities: %w", err)
	}
	for _, kv := range affinities.KVPairs {
		if key, ok := kv.Key.(model.BlockAffinityKey); ok {
			taken[key.CIDR.String()] = true
		}
	}
	pools, err := d.client.IPPools().List(ctx, options.ListOptions{})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("listing IP pools: %w", err)
	}
	for _, pool := range pools.Items {
		cidr, err := netip.ParsePrefix(pool.Spec.CIDR)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("reading IP pool %q: %w", pool.Name, err)
		}
		for block := netip.PrefixFrom(cidr.Addr(), pool.Spec.BlockSize); cidr.Overlaps(block); block = following(block) {
			if !taken[block.String()] {
				return block, nil
			}
		}
	}
	return netip.Prefix{}, errors.New("no block is free in any IP pool")
}

// following is the block of the same size after this one; the zero Prefix, which overlaps nothing, after the last.
func following(block netip.Prefix) netip.Prefix {
	bytes := block.Addr().AsSlice()
	for bit := block.Bits() - 1; bit >= 0; bit-- {
		mask := byte(1) << (7 - bit%8)
		bytes[bit/8] ^= mask
		if bytes[bit/8]&mask != 0 {
			next, _ := netip.AddrFromSlice(bytes)
			return netip.PrefixFrom(next, block.Bits())
		}
	}
	return netip.Prefix{}
}
