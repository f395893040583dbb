// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// restoreInNewBlock makes the block of an address again, affine to the host and with that address alone. It goes as libcalico-go does (lib/ipam): the claim is
// pending until the block is there. A process that dies in between leaves a claim that Calico's IPAM takes up, or a handle of no address, which a sweep finds;
// where the API server refuses a write, what this call has written is taken back.
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
	made, err := d.claimAgain(ctx, host, address.Block, model.StatePending)
	if err != nil {
		return err
	}
	if err := d.raiseHandle(ctx, address, 1); err != nil {
		return errors.Join(err, d.unclaim(ctx, host, address.Block, made && refused(err)))
	}
	if err := d.create(ctx, kindBlock, resourceName(address.Block), json.RawMessage(spec)); err != nil {
		if refused(err) {
			err = errors.Join(err, d.uncount(ctx, address), d.unclaim(ctx, host, address.Block, made))
		}
		return err
	}
	_, err = d.claimAgain(ctx, host, address.Block, model.StateConfirmed)
	return err
}

// refused reports that the API server has answered that it did not write. After any other error it may have, or may yet: claim and count are right then.
func refused(err error) bool {
	return errors.Is(err, ErrConflict) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// claimAgain writes the host's claim on a block, and reports whether it has made it.
func (d *KubernetesAPI) claimAgain(ctx context.Context, host string, cidr netip.Prefix, state model.BlockAffinityState) (made bool, err error) {
	name := affinityName(host, cidr)
	object, err := d.read(ctx, kindAffinity, name)
	if err != nil {
		return false, err
	}
	if object == nil {
		claim := customNames().newAffinity(host, cidr)
		claim["state"] = string(state)
		err := d.create(ctx, kindAffinity, name, claim)
		return err == nil, err
	}
	if of, _, err := readAffinity(object); err != nil || of != host {
		return false, &ConflictError{Key: object.String(), Detail: "it is not a claim of " + host}
	}
	updated, err := withSpec(object, map[string]any{"state": string(state), "deleted": "false"})
	if err != nil {
		return false, err
	}
	_, err = d.update(ctx, object, updated)
	return false, err
}

// unclaim takes back a claim that claimAgain has made, unless the host has taken it up: it has confirmed it, or has the block by now. It is marked first,
// as by DeleteAffinity.
func (d *KubernetesAPI) unclaim(ctx context.Context, host string, cidr netip.Prefix, made bool) error {
	if !made {
		return nil
	}
	claim, err := d.read(ctx, kindAffinity, affinityName(host, cidr))
	if err != nil || claim == nil {
		return err
	}
	if of, a, err := readAffinity(claim); err != nil || of != host || a.State != string(model.StatePending) {
		return err
	}
	object, err := d.read(ctx, kindBlock, resourceName(cidr))
	if err != nil {
		return err
	}
	if object != nil {
		block, err := decodeCustomBlock(object)
		if err != nil || affineTo(block.AllocationBlock) == host {
			return err
		}
	}
	if claim, err = d.markAffinity(ctx, claim); err != nil {
		return err
	}
	return d.remove(ctx, claim)
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
