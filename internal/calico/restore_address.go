// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// poolPrefix is where IPPools stand (libcalico-go, lib/backend/model resource.go).
const poolPrefix = assumed.CalicoResources + "ippools/"

func (a HeldAddress) validate() error {
	if !a.Block.IsValid() || !a.Block.Contains(a.Address) || a.Handle == "" {
		return fmt.Errorf("%w: the journal's address %s of block %s under handle %q is none", ErrNotRestored, a.Address, a.Block, a.Handle)
	}
	return nil
}

// RestoreAddress assigns an address again as it was, under its handle and with its attributes, if it is still free: in
// its block, or, if that is gone, in the block made again as affine to the host, as long as an IPPool contains it. It
// refuses (ErrNotRestored) an address that is another's by now, and one that is assigned to that handle is left as it
// is (ErrUnchanged). With dryRun nothing is written. Checks and write are one transaction.
func (d *Etcd) RestoreAddress(ctx context.Context, host string, address HeldAddress, dryRun bool) error {
	if err := address.validate(); err != nil {
		return err
	}
	key, block, revision, err := d.readBlock(ctx, address.Block)
	if err != nil {
		return err
	}
	seen := map[string]int64{key: revision}
	var ops []clientv3.Op
	if block == nil {
		if block, err = d.blockAgain(ctx, host, address); err != nil {
			return err
		}
		if ops, err = d.affinityAgain(ctx, host, address.Block, seen); err != nil {
			return err
		}
	}
	if err := assignAgain(block, address); err != nil {
		return err
	}
	value, err := block.encode()
	if err != nil {
		return err
	}
	raised, err := d.raiseHandle(ctx, address, seen)
	if err != nil || dryRun {
		return err
	}
	if _, err := d.commitReady(ctx, nil, seen, append(ops, clientv3.OpPut(key, string(value)), raised)...); err != nil {
		return fmt.Errorf("restoring address %s: %w", address.Address, err)
	}
	return nil
}

// blockAgain is the block of an address, empty and affine to the host, if an IPPool still has such blocks and no other block has the address.
func (d *Etcd) blockAgain(ctx context.Context, host string, address HeldAddress) (*storedBlock, error) {
	if other, found, err := d.blockOf(ctx, address.Address); err != nil || found {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: address %s is of block %s by now, not of %s", ErrNotRestored, address.Address, other, address.Block)
	}
	resp, err := d.get(ctx, poolPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading IPPools: %w", err)
	}
	for _, kv := range resp.Kvs {
		parsed, err := model.ParseValue(model.ResourceKey{Kind: apiv3.KindIPPool, Name: strings.TrimPrefix(string(kv.Key), poolPrefix)}, kv.Value)
		if pool, ok := parsed.(*apiv3.IPPool); err == nil && ok && poolHas(pool, address.Block) {
			return emptyBlockFor(host, address.Block)
		}
	}
	return nil, fmt.Errorf("%w: block %s of address %s is gone, and no enabled IPPool contains it", ErrNotRestored, address.Block, address.Address)
}

// poolHas reports whether an IPPool gives out blocks such as this one.
func poolHas(pool *apiv3.IPPool, block netip.Prefix) bool {
	cidr, err := netip.ParsePrefix(pool.Spec.CIDR)
	return err == nil && !pool.Spec.Disabled && pool.DeletionTimestamp == nil && cidr.Contains(block.Addr()) && cidr.Bits() <= block.Bits() &&
		pool.Spec.BlockSize == block.Bits()
}

// emptyBlockFor is a block as libcalico-go makes it (lib/ipam: newBlock). Its sequence number begins anywhere, so that no assignment of an earlier block of
// that CIDR has the number of a later one.
func emptyBlockFor(host string, cidr netip.Prefix) (*storedBlock, error) {
	affinity := model.IPAMAffinityTypeHost + ":" + host
	block := &model.AllocationBlock{
		CIDR: toCalicoNet(cidr), Affinity: &affinity, SequenceNumber: rand.Uint64N(1 << 62), SequenceNumberForAllocation: map[string]uint64{},
	}
	block.Allocations = make([]*int, block.NumAddresses())
	for i := range block.Allocations {
		block.Unallocated = append(block.Unallocated, i)
	}
	value, err := model.SerializeValue(&model.KVPair{Key: blockModelKey(cidr), Value: block})
	return &storedBlock{AllocationBlock: block, object: value}, err
}

// affinityAgain returns the write of the host's claim on a block that is made again, and notes what it depends on. A claim that is there is confirmed, and
// not deleted any more: Calico's readers take one with the mark as absent.
func (d *Etcd) affinityAgain(ctx context.Context, host string, cidr netip.Prefix, seen map[string]int64) ([]clientv3.Op, error) {
	key, err := affinityKey(host, cidr)
	if err != nil {
		return nil, err
	}
	resp, err := d.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	seen[key] = 0
	if len(resp.Kvs) > 0 {
		seen[key] = resp.Kvs[0].ModRevision
		value, err := withFields(resp.Kvs[0].Value, map[string]any{"state": model.StateConfirmed, "deleted": false})
		return []clientv3.Op{clientv3.OpPut(key, string(value))}, err
	}
	value, err := model.SerializeValue(&model.KVPair{
		Key:   model.BlockAffinityKey{Host: host, CIDR: toCalicoNet(cidr), AffinityType: model.IPAMAffinityTypeHost},
		Value: &model.BlockAffinity{State: model.StateConfirmed},
	})
	if err != nil {
		return nil, err
	}
	return []clientv3.Op{clientv3.OpPut(key, string(value))}, nil
}

// assignAgain puts an assignment into a block, if the address is free there.
func assignAgain(block *storedBlock, address HeldAddress) error {
	ordinal, err := block.IPToOrdinal(cnet.IP{IP: address.Address.AsSlice()})
	if err != nil || ordinal >= len(block.Allocations) {
		return fmt.Errorf("%w: address %s is not of block %s", ErrNotRestored, address.Address, block.CIDR)
	}
	if block.Deleted {
		return fmt.Errorf("%w: block %s of address %s is marked as deleted: restore it again when Calico has removed the block",
			ErrNotRestored, block.CIDR, address.Address)
	}
	index := block.Allocations[ordinal]
	if index != nil && !block.releasedAt(*index).IsZero() {
		// In cooldown it has no owner, and no other than its last one gets it here.
		block.free(ordinal)
		dropUnusedAttributes(block)
		index = nil
	}
	if index != nil {
		handle := handleOf(block.AllocationBlock, *index)
		if handle == address.Handle { // which names one sandbox, or tunnel, or virtual machine
			return fmt.Errorf("%w: address %s is assigned to its handle", ErrUnchanged, address.Address)
		}
		return fmt.Errorf("%w: address %s is assigned to handle %s by now", ErrNotRestored, address.Address, handle)
	}
	free := block.Unallocated[:0]
	for _, o := range block.Unallocated {
		if o != ordinal {
			free = append(free, o)
		}
	}
	if len(free) == len(block.Unallocated) {
		return fmt.Errorf("%w: address %s is reserved in block %s", ErrNotRestored, address.Address, block.CIDR)
	}
	block.Unallocated = free
	last := len(block.Attributes)
	handle := address.Handle
	attribute := model.AllocationAttribute{AttrPrimary: &handle, AttrSecondary: address.Attributes}
	stored, err := json.Marshal(attribute)
	if err != nil {
		return err
	}
	block.Attributes, block.attributes = append(block.Attributes, attribute), append(block.attributes, stored)
	block.later = append(block.later, laterAttribute{})
	block.Allocations[ordinal] = &last
	block.SetSequenceNumberForOrdinal(ordinal)
	block.SequenceNumber++
	return nil
}

// raiseHandle returns the write that counts an address under its handle, and notes what it depends on.
func (d *Etcd) raiseHandle(ctx context.Context, address HeldAddress, seen map[string]int64) (clientv3.Op, error) {
	id := model.IPAMHandleKey{HandleID: address.Handle}
	key, err := handleKey(address.Handle)
	if err != nil {
		return clientv3.Op{}, err
	}
	resp, err := d.get(ctx, key)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("reading %s: %w", key, err)
	}
	handle, stored := &model.IPAMHandle{HandleID: address.Handle, Block: map[string]int{}}, []byte(`{"block":{},"deleted":false}`)
	seen[key] = 0
	for _, kv := range resp.Kvs {
		parsed, err := model.ParseValue(id, kv.Value)
		there, ok := parsed.(*model.IPAMHandle)
		if err != nil || !ok {
			return clientv3.Op{}, fmt.Errorf("parsing %s: %w", key, errors.Join(err, errors.New("the value is not an IPAM handle")))
		}
		handle, stored, seen[key] = there, kv.Value, kv.ModRevision
		if handle.Block == nil || handle.Deleted { // with the mark it is absent for Calico's readers
			handle.Block = map[string]int{}
		}
	}
	handle.Block[toCalicoNetText(address.Block)]++
	value, err := withFields(stored, map[string]any{"block": handle.Block, "deleted": false})
	return clientv3.OpPut(key, string(value)), err
}

func toCalicoNetText(p netip.Prefix) string {
	n := toCalicoNet(p)
	return n.String()
}

// RestoreAddress assigns an address again as it was, if it is still free in its block, or, if that is gone, in the block made again as affine to
// the host, as long as an IPPool contains it. It refuses and accepts as that of etcd does. The handle is counted first: a process that dies in
// between leaves a handle that counts one too many, until the address is restored, or a sweep finds a handle of no address.
func (d *KubernetesAPI) RestoreAddress(ctx context.Context, host string, address HeldAddress, dryRun bool) error {
	if err := address.validate(); err != nil {
		return err
	}
	object, err := d.read(ctx, kindBlock, resourceName(address.Block))
	if err != nil {
		return err
	}
	if object == nil {
		if err := d.restoreInNewBlock(ctx, host, address, dryRun); err != nil {
			return fmt.Errorf("restoring address %s: %w", address.Address, err)
		}
		return nil
	}
	block, err := decodeCustomBlock(object)
	if err != nil {
		return err
	}
	if err := assignAgain(block, address); err != nil {
		return err
	}
	updated, err := withBlock(object, block)
	if err != nil || dryRun {
		return err
	}
	if err := d.checkReady(ctx); err != nil {
		return err
	}
	held := countHandles(block.AllocationBlock)[address.Handle]
	if err := d.raiseHandle(ctx, address, held); err != nil {
		return fmt.Errorf("restoring address %s: %w", address.Address, err)
	}
	if _, err = d.update(ctx, object, updated); errors.Is(err, ErrConflict) {
		err = errors.Join(err, d.uncount(ctx, address))
	}
	if err != nil {
		return fmt.Errorf("restoring address %s: %w", address.Address, err)
	}
	return nil
}

// uncount takes back what raiseHandle has counted of an address that its block did not take.
func (d *KubernetesAPI) uncount(ctx context.Context, address HeldAddress) error {
	handle, err := d.readHandle(ctx, address.Handle)
	if err != nil || handle == nil {
		return err
	}
	object, err := d.read(ctx, kindBlock, resourceName(address.Block))
	if err != nil {
		return err
	}
	left := 0
	if object != nil {
		block, err := decodeCustomBlock(object)
		if err != nil {
			return err
		}
		left = countHandles(block.AllocationBlock)[address.Handle]
	}
	return d.lowerHandle(ctx, handle, toCalicoNetText(address.Block), 1, left)
}

// raiseHandle has a handle count all addresses (held) that its block has under it with the one that is restored. A process that died before it wrote the block
// has counted already, and the next one does not count twice.
func (d *KubernetesAPI) raiseHandle(ctx context.Context, address HeldAddress, held int) error {
	cidr := toCalicoNetText(address.Block)
	object, err := d.readHandle(ctx, address.Handle)
	if err != nil {
		return err
	}
	if object == nil {
		return d.create(ctx, kindHandle, strings.ToLower(address.Handle),
			map[string]any{"handleID": address.Handle, "block": map[string]int{cidr: held}, "deleted": false})
	}
	var spec model.IPAMHandle
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return fmt.Errorf("parsing %s: %w", object, err)
	}
	counts := spec.Block
	if counts == nil || spec.Deleted { // with the mark it is absent for Calico's readers
		counts = map[string]int{}
	}
	if counts[cidr] >= held {
		return nil
	}
	counts[cidr] = held
	updated, err := withSpec(object, map[string]any{"block": counts, "deleted": false})
	if err != nil {
		return err
	}
	_, err = d.update(ctx, object, updated)
	return err
}
