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

// conditions says what is wrong with volumes: a droplet that is off, or gone, keeps them.
type conditions struct {
	api   API
	known map[int]string // what is wrong with a droplet, empty for nothing
}

// listed knows the droplets of a list, so that not each is asked about.
func (c *Controller) listed(ctx context.Context) (conditions, error) {
	all, err := c.o.API.OrdinaryDroplets(ctx)
	found := conditions{c.o.API, map[int]string{}}
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
