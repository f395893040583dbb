// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// The states of volumes. They are values of a metric's label and MUST NOT change.
const (
	free          = "free"
	attachedState = "attached"
	offState      = "off"
	lostState     = "lost"
)

// conditions knows what is wrong with droplets: one that is off, or deleted, keeps its volumes from use.
type conditions struct {
	api API
	// known has what is wrong with each droplet that was read, nil for nothing.
	known map[int]*spec.VolumeHealth_VolumeHealthEntry
	gone  map[int]bool // droplets that do not exist
}

// newConditions knows no droplet yet.
func newConditions(api API) conditions {
	return conditions{api, map[int]*spec.VolumeHealth_VolumeHealthEntry{}, map[int]bool{}}
}

// listed knows the droplets of a list, so that no request is needed for each.
func (c *Controller) listed(ctx context.Context) (conditions, error) {
	all, err := c.o.API.OrdinaryDroplets(ctx)
	if err != nil {
		return conditions{}, fmt.Errorf("listing droplets: %w", err)
	}
	found := newConditions(c.o.API)
	for _, d := range all {
		found.known[d.ID] = wrongWith(d)
	}
	return found, nil
}

// The reasons of volume health. Users' alerts may name them: they MUST NOT change.
const (
	dropletOff  = "DropletOff"
	dropletGone = "DropletGone"
)

func inaccessible(reason, message string) *spec.VolumeHealth_VolumeHealthEntry {
	return &spec.VolumeHealth_VolumeHealthEntry{
		Status: spec.VolumeHealthErrorType_INACCESSIBLE, Reason: reason, Message: message,
	}
}

func wrongWith(d instance.Droplet) *spec.VolumeHealth_VolumeHealthEntry {
	if !instance.IsShutdown(d) {
		return nil
	}
	return inaccessible(dropletOff, fmt.Sprintf("the volume is attached to droplet %s, which is off: it can be used "+
		"elsewhere when its Node has the taint node.kubernetes.io/out-of-service:NoExecute", d.Name))
}

// of returns the health of a volume, as CSI 1.13 defines it: without entries when nothing is known to be wrong.
func (c conditions) of(ctx context.Context, v volume.Observed) (*spec.VolumeHealth, error) {
	health := &spec.VolumeHealth{VolumeId: v.ID}
	at := v.AttachedTo()
	if at == 0 {
		return health, nil
	}
	wrong, read := c.known[at]
	if !read {
		d, err := c.api.Droplet(ctx, at)
		switch {
		case errors.Is(err, doapi.ErrNotFound):
			wrong = inaccessible(dropletGone, fmt.Sprintf("the volume is attached to droplet %d, which does not exist", at))
			c.gone[at] = true
		case err != nil:
			return nil, fmt.Errorf("looking for droplet %d: %w", at, err)
		default:
			wrong = wrongWith(d)
		}
		c.known[at] = wrong
	}
	if wrong != nil {
		health.HealthStatuses = append(health.HealthStatuses, wrong)
	}
	return health, nil
}

// ControllerGetVolumeHealth returns what is wrong with a volume, seen from DigitalOcean.
func (c *Controller) ControllerGetVolumeHealth(
	ctx context.Context, r *spec.ControllerGetVolumeHealthRequest,
) (*spec.ControllerGetVolumeHealthResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("the request has no volume ID")
	}
	v, err := c.o.API.Volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, fail(fmt.Errorf("looking for volume %s: %w", r.GetVolumeId(), err))
	}
	health, err := newConditions(c.o.API).of(ctx, v)
	if err != nil {
		return nil, fail(err)
	}
	return &spec.ControllerGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// ControllerListVolumeHealth lists the volumes of the region with which something is wrong, and only those.
func (c *Controller) ControllerListVolumeHealth(
	ctx context.Context, r *spec.ControllerListVolumeHealthRequest,
) (*spec.ControllerListVolumeHealthResponse, error) {
	all, err := c.sorted(ctx)
	if err != nil {
		return nil, err
	}
	droplets, err := c.listed(ctx)
	if err != nil {
		return nil, fail(err)
	}
	healthOf := map[string]*spec.VolumeHealth{}
	for _, v := range all {
		if healthOf[v.ID], err = droplets.of(ctx, v); err != nil {
			return nil, fail(err)
		}
	}
	all = slices.DeleteFunc(all, func(v volume.Observed) bool { return len(healthOf[v.ID].GetHealthStatuses()) == 0 })
	entries, next, err := page(all, volumeKey, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &spec.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range entries {
		out.Entries = append(out.Entries, healthOf[v.ID])
	}
	return out, nil
}

// countStates counts all volumes by state, for the metrics. Where a droplet cannot be read the last count stands.
func (c *Controller) countStates(ctx context.Context, all []volume.Observed) {
	droplets, err := c.listed(ctx)
	for i := 0; err == nil && i < len(all); i++ {
		_, err = droplets.of(ctx, all[i])
	}
	if err != nil {
		c.o.Log.Error(err, "Failed to count volumes by state")
		return
	}
	c.o.Metrics.counted(droplets.states(all))
}

// states counts the volumes that this driver made by state. A droplet of which nothing is known counts as running.
func (c conditions) states(all []volume.Observed) map[string]int {
	count := map[string]int{}
	for _, v := range all {
		at := v.AttachedTo()
		switch {
		case v.Description != description:
		case at == 0:
			count[free]++
		case c.gone[at]:
			count[lostState]++
		case c.known[at] != nil:
			count[offState]++
		default:
			count[attachedState]++
		}
	}
	return count
}
