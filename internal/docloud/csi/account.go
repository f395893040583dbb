// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// mostKnown bounds how many droplets are remembered that could show whose account the token is of.
const mostKnown = 8

// owner is what is known of the token's account. DigitalOcean finds nothing of another account, so that "not found"
// means gone only if the account is that of the cluster. A droplet of the cluster shows it: its ID comes from its own
// metadata service, and no other account has it. A volume would not: one that was made with another account's token is
// found with that token.
type owner struct {
	// proven is the epoch ([doapi.Client.Epoch]) in which a droplet of the cluster was found.
	proven uint64
	// droplets are some of the cluster, the last one first.
	droplets []int
}

// know remembers a droplet of the cluster, 0 for none.
func (c *Controller) know(droplet int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if droplet == 0 || len(c.owner.droplets) > 0 && c.owner.droplets[0] == droplet {
		return
	}
	others := slices.DeleteFunc(c.owner.droplets, func(other int) bool { return other == droplet })
	c.owner.droplets = append([]int{droplet}, others[:min(len(others), mostKnown-1)]...)
}

// owns asks for droplets of the cluster until one is found, once in an epoch. Without one it returns those that were
// not found.
func (c *Controller) owns(ctx context.Context, epoch uint64) (proven bool, without []string, err error) {
	c.mu.Lock()
	proven, droplets := c.owner.proven == epoch, slices.Clone(c.owner.droplets)
	c.mu.Unlock()
	if c.o.Droplet != 0 {
		droplets = append(droplets, c.o.Droplet)
	}
	for _, droplet := range droplets {
		if proven {
			break
		}
		_, err := c.o.API.Droplet(ctx, droplet)
		switch {
		case errors.Is(err, doapi.ErrNotFound):
			without = append(without, fmt.Sprint(droplet))
		case err != nil:
			return false, nil, fmt.Errorf("whether the token's account is that of this cluster is not known: %w", err)
		default:
			proven = true
		}
	}
	if proven && c.o.API.Epoch() == epoch {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.owner.proven = epoch
	}
	return proven, without, nil
}

// anotherAccount is the error of a token that finds none of the droplets.
func anotherAccount(what string, droplets []string) error {
	return status.Errorf(codes.Unavailable, "%s, and droplets %s of this cluster are not found: "+
		"the token is of another account, or all these droplets are gone. Check the token", what, strings.Join(droplets, ", "))
}

// gone returns nil if what DigitalOcean did not find in an epoch is gone, and an error if it may be another account's.
func (c *Controller) gone(ctx context.Context, what string, epoch uint64) error {
	proven, without, err := c.owns(ctx, epoch)
	switch {
	case err != nil:
		return fail(fmt.Errorf("%s is not found: %w", what, err))
	case c.o.API.Epoch() != epoch:
		return status.Errorf(codes.Unavailable,
			"%s is not found, and the token was replaced meanwhile: it is looked for again", what)
	case proven:
		return nil
	case len(without) == 0:
		return status.Errorf(codes.Unavailable, "%s is not found, and no droplet of this cluster is known that could show "+
			"that the token is of the right account: set --droplet-id of the controller to one", what)
	default:
		return anotherAccount(what+" is not found", without)
	}
}

// makeVolume makes a volume, but not in another account as far as that can be known: a token may lack the scope to read
// droplets, and no droplet may be known yet.
func (c *Controller) makeVolume(ctx context.Context, r volume.Request) (volume.Observed, error) {
	proven, without, err := c.owns(ctx, c.o.API.Epoch())
	switch {
	case errors.Is(err, doapi.ErrForbidden), err == nil && (proven || len(without) == 0):
		return c.o.API.CreateVolume(ctx, r)
	case err != nil:
		return volume.Observed{}, err
	default:
		return volume.Observed{}, anotherAccount("volume "+r.Name+" is not made", without)
	}
}
