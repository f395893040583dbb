// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
)

// Change is one key before and after a repair, for the journal; an empty value is that of a key which is absent. Its
// JSON form MUST stay readable.
type Change struct {
	Key    string `json:"key"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Repair is a repair that is ready to be written. It holds only while all that it depends on is as it was read.
type Repair struct {
	Change Change
	// seen are the revisions of all that it depends on, 0 for what is absent.
	seen map[string]int64
}

// repairNames are how a datastore names what a repair changes, and what it holds of an object that is created.
type repairNames struct {
	block       func(netip.Prefix) (string, error)
	handle      func(id string) (string, error)
	affinity    func(host string, cidr netip.Prefix) (string, error)
	node        func(host string) string
	newHandle   func(id string) map[string]any
	newAffinity func(host string, cidr netip.Prefix) map[string]any
}

func etcdNames() repairNames {
	return repairNames{
		block: blockKey, handle: handleKey, affinity: affinityKey, node: nodeKey,
		newHandle:   func(string) map[string]any { return map[string]any{"deleted": false} },
		newAffinity: func(string, netip.Prefix) map[string]any { return map[string]any{"deleted": false} },
	}
}

// PlanRepair reads what a disagreement is about, and returns the write that ends it. If it is not as it was when it
// was found, by the same judgment, the error is a *ConflictError. Every repair changes one key.
func (d *Etcd) PlanRepair(ctx context.Context, x ipamcheck.Disagreement) (Repair, error) {
	r, err := d.readRepair(ctx, x)
	if err != nil {
		return Repair{}, fmt.Errorf("reading what %s is about: %w", x.Kind, err)
	}
	change, err := r.decide(x, etcdNames())
	return Repair{Change: change, seen: r.seen}, err
}

// ApplyRepair writes a repair, if all that it depends on is as it was read; otherwise it is a *ConflictError, and
// nothing is written.
func (d *Etcd) ApplyRepair(ctx context.Context, r Repair) error {
	if _, err := d.commitReady(ctx, nil, r.seen, r.Change.op()); err != nil {
		return fmt.Errorf("repairing %s: %w", r.Change.Key, err)
	}
	return nil
}

func (c Change) op() clientv3.Op {
	if c.After == "" {
		return clientv3.OpDelete(c.Key)
	}
	return clientv3.OpPut(c.Key, c.After)
}

// Revert undoes a change, if its key is as the change left it; otherwise it refuses (ErrNotRestored). A key that is
// as before is ErrUnchanged. Only blocks, handles and affinities are changed.
func (d *Etcd) Revert(ctx context.Context, c Change, dryRun bool) error {
	ofIPAM := func(prefix string) bool { return strings.HasPrefix(c.Key, prefix) }
	if !slices.ContainsFunc([]string{blockPrefix, handlePrefix, affinityPrefix}, ofIPAM) || c.Before == c.After {
		return fmt.Errorf("%w: %q is not a key that a repair has changed", ErrNotRestored, c.Key)
	}
	resp, err := d.get(ctx, c.Key)
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.Key, err)
	}
	now, revision := "", int64(0)
	for _, kv := range resp.Kvs {
		now, revision = string(kv.Value), kv.ModRevision
	}
	switch {
	case now == c.Before:
		return fmt.Errorf("%w: %s is there just as it was before the repair", ErrUnchanged, c.Key)
	case now != c.After:
		return fmt.Errorf("%w: %s was written after the repair and stays as it is", ErrNotRestored, c.Key)
	case dryRun:
		return nil
	}
	if _, err := d.commitReady(ctx, nil, map[string]int64{c.Key: revision}, Change{Key: c.Key, After: c.Before}.op()); err != nil {
		return fmt.Errorf("restoring %s: %w", c.Key, err)
	}
	return nil
}

// repairReading is all that one disagreement is about, read in one transaction.
type repairReading struct {
	reading *ipamReading
	values  map[string]string
	seen    map[string]int64
	blocks  map[string]*storedBlock
}

// readRepair reads the blocks, the handle, and the Node and the affinities of the host.
func (d *Etcd) readRepair(ctx context.Context, x ipamcheck.Disagreement) (*repairReading, error) {
	keys, err := etcdNames().of(x)
	if err != nil {
		return nil, err
	}
	r := newRepairReading(keys)
	reads := make([]clientv3.Op, 0, len(keys))
	for _, key := range keys {
		reads = append(reads, clientv3.OpGet(key))
	}
	if len(reads) > readsPerCall {
		return nil, fmt.Errorf("it is about %d keys, more than one transaction compares", len(reads))
	}
	found, err := d.readTogether(ctx, reads)
	if err != nil {
		return nil, err
	}
	for _, kvs := range found {
		for _, kv := range kvs {
			if err := r.add(kv); err != nil {
				return nil, fmt.Errorf("parsing %s: %w", kv.Key, err)
			}
		}
	}
	return r, nil
}

func newRepairReading(keys []string) *repairReading {
	r := &repairReading{reading: newIPAMReading(), values: map[string]string{}, seen: map[string]int64{}, blocks: map[string]*storedBlock{}}
	r.reading.data.PoolsUnread = "not part of a repair"
	for _, key := range keys {
		r.seen[key] = 0
	}
	return r
}

// of are the keys of all that a disagreement is about.
func (n repairNames) of(x ipamcheck.Disagreement) ([]string, error) {
	var keys []string
	var all error
	add := func(key string, err error) { keys, all = append(keys, key), errors.Join(all, err) }
	for _, cidr := range x.Blocks {
		add(n.block(cidr))
		if x.Host != "" {
			add(n.affinity(x.Host, cidr))
		}
	}
	if x.Handle != "" {
		add(n.handle(x.Handle))
	}
	if x.Host != "" {
		add(n.node(x.Host), nil)
	}
	return keys, all
}

// decide returns the change that ends a disagreement, if the reading shows it as it was found.
func (r *repairReading) decide(x ipamcheck.Disagreement, names repairNames) (Change, error) {
	if !ipamcheck.Same(ipamcheck.Check(r.reading.data), x) {
		return Change{}, &ConflictError{Key: x.Subject, Detail: "it does not disagree in that way any more"}
	}
	for _, h := range r.reading.data.Handles {
		if h.ID != x.Handle { // two handles that differ in case have one name in Kubernetes
			return Change{}, &ConflictError{Key: x.Handle, Detail: "handle " + h.ID + " is in its place"}
		}
	}
	var key, value string
	var err error
	switch x.Kind {
	case ipamcheck.FreeAndAssigned:
		key, err = names.block(x.Blocks[0])
		if err == nil {
			value, err = r.withoutAssigned(x)
		}
	case ipamcheck.HandleMissing, ipamcheck.HandleCount:
		key, err = names.handle(x.Handle)
		if err == nil {
			value, err = r.countedHandle(x, key, names)
		}
	case ipamcheck.HandleWithoutAddress:
		key, err = names.handle(x.Handle)
	case ipamcheck.AffinityMissing, ipamcheck.AffinityDeleting:
		key, err = names.affinity(x.Host, x.Blocks[0])
		if err == nil {
			value, err = r.confirmedAffinity(x, key, names)
		}
	case ipamcheck.AffinityMismatch, ipamcheck.AffinityWithoutBlock:
		key, err = names.affinity(x.Host, x.Blocks[0])
	default:
		err = fmt.Errorf("disagreements of kind %s are not repaired by a program", x.Kind)
	}
	if err != nil {
		return Change{}, err
	}
	return Change{Key: key, Before: r.values[key], After: value}, nil
}

func (r *repairReading) add(kv *mvccpb.KeyValue) error {
	key := string(kv.Key)
	r.values[key], r.seen[key] = string(kv.Value), kv.ModRevision
	switch {
	case strings.HasPrefix(key, nodePrefix):
		return r.reading.addNode(key, kv.Value, kv.ModRevision)
	case strings.HasPrefix(key, affinityPrefix):
		return r.reading.addAffinity(key, kv.Value, kv.ModRevision)
	case strings.HasPrefix(key, handlePrefix):
		return r.reading.addHandle(key, kv.Value, kv.ModRevision)
	}
	cidr := cidrOfKey(key)
	stored, err := decodeBlock(blockModelKey(cidr), kv.Value)
	if err != nil {
		return err
	}
	r.blocks[cidr.String()] = stored
	return r.reading.putBlock(stored, kv.ModRevision)
}

// withoutAssigned is the block whose list of free addresses has each free address once, and no assigned one.
func (r *repairReading) withoutAssigned(x ipamcheck.Disagreement) (string, error) {
	block := r.blocks[x.Blocks[0].String()]
	free := block.Unallocated[:0:0]
	for _, ordinal := range block.Unallocated {
		if ordinal < len(block.Allocations) && block.Allocations[ordinal] == nil && !slices.Contains(free, ordinal) {
			free = append(free, ordinal)
		}
	}
	block.Unallocated = free
	block.SequenceNumber++ // as with every write of a block; see releaseFromBlock
	written, err := block.encode()
	return string(written), err
}

// countedHandle is the handle as the blocks have its addresses.
func (r *repairReading) countedHandle(x ipamcheck.Disagreement, key string, names repairNames) (string, error) {
	counts := map[string]int{}
	for _, block := range r.blocks {
		if n := assignedTo(block, x.Handle); n > 0 {
			counts[block.CIDR.String()] = n
		}
	}
	return r.changed(key, names.newHandle(x.Handle), map[string]any{"block": counts})
}

// assignedTo is how many addresses a handle has in a block; those in cooldown are nobody's.
func assignedTo(block *storedBlock, handle string) (n int) {
	for _, index := range block.Allocations {
		if index != nil && block.releasedAt(*index).IsZero() && handleOf(block.AllocationBlock, *index) == handle {
			n++
		}
	}
	return n
}

// confirmedAffinity is the affinity of the host to its block, or nothing if the block is not affine to it. A machine
// without a Calico Node is removed as a whole.
func (r *repairReading) confirmedAffinity(x ipamcheck.Disagreement, key string, names repairNames) (string, error) {
	if len(r.reading.data.Nodes) == 0 {
		return "", &ConflictError{Key: names.node(x.Host), Detail: "there is no such Calico Node: what the machine has left is removed with the machine"}
	}
	if block := r.blocks[x.Blocks[0].String()]; block == nil || affineTo(block.AllocationBlock) != x.Host {
		return "", nil
	}
	return r.changed(key, names.newAffinity(x.Host, x.Blocks[0]), map[string]any{"state": model.StateConfirmed})
}

// changed is the stored value of a key with other fields, or a new one.
func (r *repairReading) changed(key string, created, fields map[string]any) (string, error) {
	stored := []byte(r.values[key])
	if len(stored) == 0 {
		var err error
		if stored, err = json.Marshal(created); err != nil {
			return "", err
		}
	}
	written, err := withFields(stored, fields)
	return string(written), err
}
