// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
)

// restoreInNewBlock makes the block of an address again, affine to the host and with that address alone. It goes as libcalico-go does (lib/ipam): the claim is
// pending until the block is there. A process that dies in between leaves a claim that Calico's IPAM takes up, or a handle of no address, which a sweep finds.
func (d *KubernetesAPI) restoreInNewBlock(ctx context.Context, host string, address HeldAddress, dryRun bool) error {
	if err := d.mayMakeBlock(ctx, address); err != nil {
		return err
	}
	block, err := emptyBlockFor(host, address.Block)
	if err != nil {
		return err
	}
	if err := assignAgain(block, address); err != nil || dryRun {
		return err
	}
	spec, err := block.encode()
	if err == nil {
		spec, err = withFields(spec, map[string]any{"strictAffinity": false}) // the schema asks for it
	}
	if err != nil {
		return err
	}
	if err := d.checkReady(ctx); err != nil {
		return err
	}
	if err := d.claimAgain(ctx, host, address.Block, model.StatePending); err != nil {
		return err
	}
	if err := d.raiseHandle(ctx, address, 1); err != nil {
		return err
	}
	if err := d.create(ctx, kindBlock, resourceName(address.Block), json.RawMessage(spec)); err != nil {
		return err
	}
	return d.claimAgain(ctx, host, address.Block, model.StateConfirmed)
}

// claimAgain writes the host's claim on a block.
func (d *KubernetesAPI) claimAgain(ctx context.Context, host string, cidr netip.Prefix, state model.BlockAffinityState) error {
	name := affinityName(host, cidr)
	object, err := d.read(ctx, kindAffinity, name)
	if err != nil {
		return err
	}
	if object == nil {
		return d.create(ctx, kindAffinity, name, map[string]any{
			"state": string(state), "node": host, "type": model.IPAMAffinityTypeHost, "cidr": cidr.String(), "deleted": "false",
		})
	}
	if of, _, err := readAffinity(object); err != nil || of != host {
		return &ConflictError{Key: object.String(), Detail: "it is not a claim of " + host}
	}
	updated, err := withSpec(object, map[string]any{"state": string(state)})
	if err != nil {
		return err
	}
	_, err = d.update(ctx, object, updated)
	return err
}

// mayMakeBlock refuses a block that no enabled IPPool gives out any more, and one of which another block has the address by now.
func (d *KubernetesAPI) mayMakeBlock(ctx context.Context, address HeldAddress) error {
	found := false
	err := d.eachRaw(ctx, kindPool, func(raw []byte) error {
		var pool apiv3.IPPool
		found = found || json.Unmarshal(raw, &pool) == nil && poolHas(&pool, address.Block)
		return nil
	})
	if err != nil {
		return explainRestore(err)
	}
	if !found {
		return fmt.Errorf("%w: block %s of address %s is gone, and no enabled IPPool has it any more", ErrNotRestored, address.Block, address.Address)
	}
	return d.each(ctx, kindBlock, func(object *customResource) error {
		var spec struct {
			CIDR string `json:"cidr"`
		}
		if err := json.Unmarshal(object.spec, &spec); err != nil {
			return fmt.Errorf("parsing %s: %w", object, err)
		}
		if cidr, err := netip.ParsePrefix(spec.CIDR); err != nil || cidr.Contains(address.Address) {
			return fmt.Errorf("%w: address %s is of block %s by now, not of %s", ErrNotRestored, address.Address, spec.CIDR, address.Block)
		}
		return nil
	})
}
