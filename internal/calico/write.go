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

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// AnnotateNode sets one annotation of a Calico Node, or removes it when the value is empty, if the Node is still at the revision, and
// returns its new revision. Everything else in the stored object stays as it is, fields that this program does not know included.
func (d *Etcd) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (int64, error) {
	return d.annotate(ctx, nodeKey(name), revision, annotation, value)
}

// AnnotateClusterInformation does the same with Calico's ClusterInformation.
func (d *Etcd) AnnotateClusterInformation(ctx context.Context, revision int64, annotation, value string) error {
	_, err := d.annotate(ctx, clusterInformationKey, revision, annotation, value)
	return err
}

func (d *Etcd) annotate(ctx context.Context, key string, revision int64, annotation, value string) (int64, error) {
	resp, err := d.get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", key, err)
	}
	found := int64(0)
	if len(resp.Kvs) > 0 {
		found = resp.Kvs[0].ModRevision
	}
	if found != revision || found == 0 {
		return 0, &ConflictError{Key: key, Detail: fmt.Sprintf("it is at %s, not %s", revisionText(found), revisionText(revision))}
	}
	updated, err := setAnnotation(resp.Kvs[0].Value, annotation, value)
	if err != nil {
		return 0, fmt.Errorf("annotating %s: %w", key, err)
	}
	commit := d.commitReady
	if key == clusterInformationKey {
		commit = d.commit // its revision says it
	}
	written, err := commit(ctx, nil, map[string]int64{key: revision}, clientv3.OpPut(key, string(updated)))
	if err != nil {
		return 0, fmt.Errorf("annotating %s: %w", key, err)
	}
	return written, nil
}

// setAnnotation edits metadata.annotations of a JSON object and nothing else.
func setAnnotation(object []byte, annotation, value string) ([]byte, error) {
	var top, metadata map[string]json.RawMessage
	if err := json.Unmarshal(object, &top); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(top["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("reading its metadata: %w", err)
	}
	if metadata == nil {
		return nil, errors.New("it has no metadata")
	}
	annotations := map[string]string{}
	if raw, ok := metadata["annotations"]; ok {
		if err := json.Unmarshal(raw, &annotations); err != nil {
			return nil, fmt.Errorf("reading its annotations: %w", err)
		}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if _, there := annotations[annotation]; !there && value == "" {
		return object, nil
	}
	annotations[annotation] = value
	if value == "" {
		delete(annotations, annotation)
	}
	var err error
	if metadata["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, err
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	if top["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(top)
}

// DeleteEndpoints deletes WorkloadEndpoints, all or none, each at its revision.
func (d *Etcd) DeleteEndpoints(ctx context.Context, guard Guard, endpoints []EndpointRef) error {
	seen := make(map[string]int64, len(endpoints))
	ops := make([]clientv3.Op, 0, len(endpoints))
	for _, e := range endpoints {
		key := endpointKey(e.Namespace, e.Name)
		seen[key] = e.Revision
		ops = append(ops, clientv3.OpDelete(key))
	}
	if _, err := d.commitReady(ctx, &guard, seen, ops...); err != nil {
		return fmt.Errorf("deleting workload endpoints of %s: %w", guard.Host, err)
	}
	return nil
}

// DeleteResource deletes an object that is about the guard's host alone, at its revision.
func (d *Etcd) DeleteResource(ctx context.Context, guard Guard, kind, name string, revision int64) error {
	prefix, ok := resourcePrefixes()[kind]
	if !ok {
		return fmt.Errorf("objects of kind %s are never deleted", kind)
	}
	if _, err := d.commitReady(ctx, &guard, map[string]int64{prefix + name: revision}, clientv3.OpDelete(prefix+name)); err != nil {
		return fmt.Errorf("deleting %s %s: %w", kind, name, err)
	}
	return nil
}

// DeleteNode deletes the Calico Node at the guard's revision.
func (d *Etcd) DeleteNode(ctx context.Context, guard Guard) error {
	if guard.Revision == 0 {
		return errors.New("deleting a Calico Node needs the revision at which it was seen")
	}
	if _, err := d.commitReady(ctx, &guard, nil, clientv3.OpDelete(nodeKey(guard.Host))); err != nil {
		return fmt.Errorf("deleting Calico Node %s: %w", guard.Host, err)
	}
	return nil
}

// ReleaseAddresses frees addresses of one block and lowers the counts of their handles, all in one transaction, which libcalico-go does
// in two (a crash in between leaves handles that count nothing). Each address must still be the assignment that was seen.
func (d *Etcd) ReleaseAddresses(ctx context.Context, guard Guard, cidr netip.Prefix, assignments []Assignment) error {
	if err := d.releaseAddresses(ctx, guard, map[string]int64{}, cidr, assignments); err != nil {
		return fmt.Errorf("releasing addresses of %s in block %s: %w", guard.Host, cidr, err)
	}
	return nil
}

// releaseAddresses does so only while the keys are at their revisions.
func (d *Etcd) releaseAddresses(
	ctx context.Context, guard Guard, seen map[string]int64, cidr netip.Prefix, assignments []Assignment,
) error {
	key, err := blockKey(cidr)
	if err != nil {
		return err
	}
	handles, keys, err := handlesOf(assignments)
	if err != nil {
		return err
	}
	// The block and the handles are read together: an address whose handle is another by now is a conflict all the same.
	reads := []clientv3.Op{clientv3.OpGet(key)}
	for _, handle := range keys {
		reads = append(reads, clientv3.OpGet(handle))
	}
	reads = append(reads, clientv3.OpGet(ipamConfigKey))
	found, err := d.readTogether(ctx, reads)
	if err != nil {
		return fmt.Errorf("reading the block and its handles: %w", err)
	}
	block, revision, err := storedBlockOf(key, cidr, found[0])
	if err != nil {
		return err
	}
	if block == nil {
		return &ConflictError{Key: key, Detail: "it is absent"}
	}
	cool, err := d.cooldownOf(found[len(found)-1])
	if err != nil {
		return err
	}
	lost, err := releaseFromBlock(block, guard.Host, assignments, cool)
	if err != nil {
		return &ConflictError{Key: key, Detail: err.Error()}
	}
	value, err := block.encode()
	if err != nil {
		return err
	}
	seen[key] = revision
	ops := []clientv3.Op{clientv3.OpPut(key, string(value))}
	for i, handle := range handles {
		seen[keys[i]] = 0
		for _, kv := range found[i+1] {
			seen[keys[i]] = kv.ModRevision
			op, err := lowerHandle(model.IPAMHandleKey{HandleID: handle}, keys[i], kv.Value, block.CIDR.String(), lost[handle])
			if err != nil {
				return err
			}
			ops = append(ops, op)
		}
	}
	_, err = d.commitReady(ctx, &guard, seen, ops...)
	return err
}

// handlesOf are the handles of the assignments, each once, with their keys.
func handlesOf(assignments []Assignment) (handles, keys []string, err error) {
	for _, a := range assignments {
		handles = append(handles, a.Handle)
	}
	slices.Sort(handles)
	handles = slices.Compact(handles)
	for _, handle := range handles {
		key, err := handleKey(handle)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	return handles, keys, nil
}

// readBlock returns the block as it is now, nil if there is none.
func (d *Etcd) readBlock(ctx context.Context, cidr netip.Prefix) (key string, block *storedBlock, revision int64, err error) {
	if key, err = blockKey(cidr); err != nil {
		return "", nil, 0, err
	}
	resp, err := d.get(ctx, key)
	if err != nil {
		return key, nil, 0, fmt.Errorf("reading the block: %w", err)
	}
	block, revision, err = storedBlockOf(key, cidr, resp.Kvs)
	return key, block, revision, err
}

// storedBlockOf is the block that a read of its key has found, nil if it has found none.
func storedBlockOf(key string, cidr netip.Prefix, found []*mvccpb.KeyValue) (*storedBlock, int64, error) {
	if len(found) == 0 {
		return nil, 0, nil
	}
	block, err := decodeBlock(blockModelKey(cidr), found[0].Value)
	if err != nil {
		return nil, 0, fmt.Errorf("parsing %s: %w", key, err)
	}
	return block, found[0].ModRevision, nil
}

// lowerHandle takes n assignments in a block from a handle; a handle that counts nothing any more is deleted.
func lowerHandle(handleKey model.IPAMHandleKey, key string, value []byte, cidr string, n int) (clientv3.Op, error) {
	parsed, err := model.ParseValue(handleKey, value)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("parsing %s: %w", key, err)
	}
	handle, ok := parsed.(*model.IPAMHandle)
	if !ok {
		return clientv3.Op{}, fmt.Errorf("the value of %s is not an IPAM handle", key)
	}
	// A handle without counts (a nil map) counts nothing, and goes.
	if left := handle.Block[cidr] - n; left > 0 {
		handle.Block[cidr] = left
	} else {
		delete(handle.Block, cidr)
	}
	if len(handle.Block) == 0 {
		return clientv3.OpDelete(key), nil
	}
	updated, err := withFields(value, map[string]any{"block": handle.Block})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("changing %s: %w", key, err)
	}
	return clientv3.OpPut(key, string(updated)), nil
}

// DeleteAffinity deletes a host's claim on a block at the revision (0: there must be none). With deleteBlock the block, which must be affine to
// the host and empty, with no address in cooldown, goes in the same transaction; without, the block must be absent or affine to somebody else, and stays as it is.
func (d *Etcd) DeleteAffinity(ctx context.Context, guard Guard, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	if err := d.deleteAffinity(ctx, guard, cidr, revision, deleteBlock); err != nil {
		return fmt.Errorf("deleting the affinity of %s to %s: %w", guard.Host, cidr, err)
	}
	return nil
}

func (d *Etcd) deleteAffinity(ctx context.Context, guard Guard, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	affinity, err := affinityKey(guard.Host, cidr)
	if err != nil {
		return err
	}
	key, err := blockKey(cidr)
	if err != nil {
		return err
	}
	found, err := d.readTogether(ctx, []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(ipamConfigKey)})
	if err != nil {
		return fmt.Errorf("reading the block: %w", err)
	}
	block, blockRevision, err := storedBlockOf(key, cidr, found[0])
	if err != nil {
		return err
	}
	cool, err := d.cooldownOf(found[1])
	if err != nil {
		return err
	}
	affine := block != nil && affineTo(block.AllocationBlock) == guard.Host
	seen := map[string]int64{affinity: revision, key: blockRevision}
	var ops []clientv3.Op
	if revision != 0 {
		ops = append(ops, clientv3.OpDelete(affinity))
	}
	switch {
	case deleteBlock && !affine:
		return &ConflictError{Key: key, Detail: "it is not affine to " + guard.Host}
	case deleteBlock && block.usage(cool) != "":
		return &ConflictError{Key: key, Detail: block.usage(cool)}
	case deleteBlock:
		ops = append(ops, clientv3.OpDelete(key))
	case affine:
		return &ConflictError{Key: key, Detail: "it is affine to " + guard.Host}
	}
	_, err = d.commitReady(ctx, &guard, seen, ops...)
	return err
}
