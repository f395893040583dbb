// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Sweep looks for handles of nothing: all handles and all blocks, page by page, of which it keeps eight bytes for each handle in use. There are
// never Hosts: a Snapshot of this datastore implies all that hold an address. The revision is not used, as for Hosts. Blocks are read
// first, so that an address that is assigned meanwhile makes its handle look like an orphan: look again later, as for every orphan.
func (d *KubernetesAPI) Sweep(ctx context.Context, _ int64) (Sweep, error) {
	s := newSweeping()
	err := d.eachRaw(ctx, kindBlock, func(raw []byte) error {
		s.addCustomBlock(raw)
		return nil
	})
	if err != nil {
		return Sweep{}, err
	}
	err = d.eachRaw(ctx, kindHandle, func(raw []byte) error {
		s.addCustomHandle(raw)
		return nil
	})
	if err != nil {
		return Sweep{}, err
	}
	return s.result(), nil
}

// addCustomBlock notes the handles of a block. One that cannot be parsed may use any handle.
func (s *sweeping) addCustomBlock(raw []byte) {
	b, err := sketchCustomBlock(raw)
	if err != nil {
		s.unreadable = true
		return
	}
	for _, a := range b.Attributes {
		s.use(a.Handle)
		s.namesPods = s.namesPods || a.Owner.Pod != ""
	}
}

// addCustomHandle must come after all blocks. A handle that cannot be parsed is not an orphan.
func (s *sweeping) addCustomHandle(raw []byte) {
	var handle struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			HandleID string `json:"handleID"`
		} `json:"spec"`
	}
	err := json.Unmarshal(raw, &handle)
	revision, revisionErr := strconv.ParseInt(handle.Metadata.ResourceVersion, 10, 64)
	if err == nil && revisionErr == nil && handle.Spec.HandleID != "" {
		s.addHandle(handle.Spec.HandleID, revision)
	}
}

// DeleteHandles deletes IPAM handles, each if it is still at its revision and no block that it counts has an address under it: in two calls and
// one for each such block. There is no transaction here: one that cannot be deleted does not keep the others, and the errors are joined.
func (d *KubernetesAPI) DeleteHandles(ctx context.Context, handles []Handle) error {
	var all []error
	for _, handle := range handles {
		if err := d.deleteHandle(ctx, handle); err != nil {
			all = append(all, fmt.Errorf("deleting IPAM handle %s: %w", handle.ID, err))
		}
	}
	return errors.Join(all...)
}

func (d *KubernetesAPI) deleteHandle(ctx context.Context, handle Handle) error {
	object, err := d.readHandle(ctx, handle.ID)
	if err != nil {
		return err
	}
	if object == nil {
		return &ConflictError{Key: kindHandle + " " + handle.ID, Detail: "it is absent"}
	}
	if err := expectRevision(object, object.String(), handle.Revision); err != nil {
		return err
	}
	counts, err := handleCounts(object)
	if err != nil {
		return err
	}
	for cidr := range counts {
		if err := d.checkUnused(ctx, handle.ID, cidr); err != nil {
			return err
		}
	}
	return d.remove(ctx, object)
}

// checkUnused is a conflict if the block has an address under the handle.
func (d *KubernetesAPI) checkUnused(ctx context.Context, id, cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil //nolint:nilerr // what is not a CIDR is not a block either
	}
	object, err := d.read(ctx, kindBlock, resourceName(prefix))
	if err != nil || object == nil {
		return err
	}
	block, err := decodeCustomBlock(object)
	if err != nil {
		return err
	}
	if countHandles(block.AllocationBlock)[id] > 0 {
		return &ConflictError{Key: kindHandle + " " + id, Detail: "block " + cidr + " has an address under it"}
	}
	return nil
}
