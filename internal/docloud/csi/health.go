// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"

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

// conditions says what is wrong with volumes: a droplet that is off, or gone, keeps them.
type conditions struct {
	api   API
	known map[int]string // what is wrong with a droplet, empty for nothing
	gone  map[int]bool   // droplets that do not exist
}

// newConditions knows no droplet yet.
func newConditions(api API) conditions { return conditions{api, map[int]string{}, map[int]bool{}} }

// listed knows the droplets of a list, so that not each is asked about.
func (c *Controller) listed(ctx context.Context) (conditions, error) {
	all, err := c.o.API.OrdinaryDroplets(ctx)
	found := newConditions(c.o.API)
	for _, d := range all {
		found.known[d.ID] = wrongWith(d)
	}
	return found, err
}

func wrongWith(d instance.Droplet) string {
	if !instance.IsShutdown(d) {
		return ""
	}
	return fmt.Sprintf("the volume is attached to droplet %s, which is off: it can be used elsewhere when its Node has the taint "+
		"node.kubernetes.io/out-of-service:NoExecute", d.Name)
}

// of returns the condition of a volume.
func (c conditions) of(ctx context.Context, v volume.Observed) (*spec.VolumeCondition, error) {
	at := v.AttachedTo()
	if at == 0 {
		return &spec.VolumeCondition{Message: "the volume is not attached"}, nil
	}
	wrong, asked := c.known[at]
	if !asked {
		d, err := c.api.Droplet(ctx, at)
		switch {
		case errors.Is(err, doapi.ErrNotFound):
			wrong = fmt.Sprintf("the volume is attached to droplet %d, which does not exist", at)
			c.gone[at] = true
		case err != nil:
			return nil, fmt.Errorf("looking for droplet %d: %w", at, err)
		default:
			wrong = wrongWith(d)
		}
		c.known[at] = wrong
	}
	if wrong != "" {
		return &spec.VolumeCondition{Abnormal: true, Message: wrong}, nil
	}
	return &spec.VolumeCondition{Message: fmt.Sprintf("the volume is attached to droplet %d", at)}, nil
}

// states counts the volumes that this driver made by what became of them. A droplet of which nothing is known is taken as one that runs.
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
		case c.known[at] != "":
			count[offState]++
		default:
			count[attachedState]++
		}
	}
	return count
}
