// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

const (
	// vital is how urgent calls are that a pod waits for.
	vital = budget.Vital
	// conflict is the status of a name that is taken.
	conflict = http.StatusConflict
	// firstBusy is how long to wait until a volume or droplet that is busy with an action of another program is tried
	// again; it doubles up to longestBusy.
	firstBusy, longestBusy = 2 * time.Second, 16 * time.Second
)

// ControllerPublishVolume attaches a volume to a droplet.
func (c *Controller) ControllerPublishVolume(
	ctx context.Context, r *spec.ControllerPublishVolumeRequest,
) (*spec.ControllerPublishVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetNodeId() == "":
		return nil, invalid("the request has no node ID")
	case r.GetReadonly():
		return nil, invalid("DigitalOcean attaches volumes for reading and writing only: make the mount read-only instead")
	}
	if err := checkCapabilities(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	droplet, err := node(r.GetNodeId())
	if err != nil {
		return nil, err
	}
	format, err := formatOf("the PersistentVolume", r.GetVolumeContext())
	if err != nil {
		return nil, err
	}
	c.know(droplet)
	past := asksForHistory(r, format)
	work := func(ctx context.Context, waits func(error)) (volume.Observed, error) {
		ctx = doapi.Urgent(ctx, vital)
		v, err := c.attach(ctx, r.GetVolumeId(), droplet, past, waits)
		if err == nil && past {
			v.History = c.history(ctx, v, droplet)
		}
		return v, err
	}
	v, err := c.moving(ctx, r.GetVolumeId(), "attach to droplet "+r.GetNodeId(), work)
	if err != nil {
		return nil, fail(err)
	}
	return &spec.ControllerPublishVolumeResponse{PublishContext: map[string]string{
		VolumeNameKey: v.Name, VolumeSizeKey: strconv.FormatInt(v.Bytes(), 10),
		FormatKey: string(volume.RightOf(format, v.History)),
	}}, nil
}

// attach observes and acts until the volume is at the droplet. With past, what is read meanwhile of its actions comes
// with it.
func (c *Controller) attach(
	ctx context.Context, id string, droplet int, past bool, waits func(error),
) (volume.Observed, error) {
	v, err := c.observer.observe(ctx, id, func(v volume.Observed) bool {
		attaches, err := volume.Attaches(v, droplet)
		return err == nil && attaches
	})
	repeated := false
	for wait := firstBusy; ; wait = min(2*wait, longestBusy) {
		if err != nil {
			return v, fmt.Errorf("looking for volume %s: %w", id, err)
		}
		attaches, err := volume.Attaches(v, droplet)
		if err != nil || !attaches {
			return v, err
		}
		var history volume.History
		past = past && !c.sighted(id, 0).before
		history, err = c.act(ctx, deed{droplet, v, volume.Attach, past, waits}, func() (volume.Action, error) {
			a, err := c.o.API.AttachVolume(ctx, v, droplet)
			c.attaching(id, droplet, a.ID)
			return a, err
		})
		switch {
		case err == nil:
			v.Droplets, v.History = []int{droplet}, history
			return v, nil
		case errors.Is(err, doapi.ErrPending), errors.Is(err, doapi.ErrAmbiguous):
			waits(response(err))
			if c.pause(ctx, wait) != nil {
				return v, fmt.Errorf("attaching volume %s to droplet %d: %w", v.Name, droplet, err)
			}
		case errors.Is(err, doapi.ErrRefused) && !repeated && codeOf(err) == codes.FailedPrecondition:
			repeated = true // what was observed may be old by now
		default:
			return v, c.explainAttach(ctx, v, droplet, err)
		}
		if v, err = c.o.API.Volume(ctx, id); err != nil {
			return v, fmt.Errorf("looking for volume %s: %w", id, err)
		}
	}
}

// deed is an action that is to be begun: at a droplet, 0 if none has to do with it. past asks for what the volume's
// actions show, where that costs no call more; waits is told what it waits for.
type deed struct {
	droplet int
	volume  volume.Observed
	kind    volume.ActionKind
	past    bool
	waits   func(error)
}

// act begins an action when it is the droplet's turn, and waits for its end.
func (c *Controller) act(
	ctx context.Context, d deed, begin func() (volume.Action, error),
) (volume.History, error) {
	v, kind := d.volume, d.kind
	if d.droplet != 0 {
		waits := fmt.Errorf("waiting for droplet %d", d.droplet)
		release, err := c.turns.take(ctx, d.droplet, fmt.Sprintf("%s of volume %s", kind, v.Name), func(first string) {
			waits = fmt.Errorf("droplet %d does one action at a time, and has %s first", d.droplet, first)
			d.waits(waits)
		})
		if err != nil {
			return volume.NotShown, fmt.Errorf("%w: %w", waits, err)
		}
		defer release()
	}
	began := c.o.Clock.Now()
	a, err := c.begin(ctx, d.waits, begin)
	history := volume.NotShown
	if err == nil {
		a.Kind = kind
		history, err = c.poller.wait(ctx, v, a, d.past)
	}
	c.o.Metrics.acted(kind, c.o.Clock.Since(began), err)
	if err != nil {
		return volume.NotShown, fmt.Errorf("%s of volume %s: %w", kind, v.Name, err)
	}
	return history, nil
}

// begin begins an action, as soon as calls are left for it. What was observed for it is not read again for that.
func (c *Controller) begin(
	ctx context.Context, waits func(error), begin func() (volume.Action, error),
) (volume.Action, error) {
	for wait := firstBusy; ; wait = min(2*wait, longestBusy) {
		a, err := begin()
		if !errors.Is(err, doapi.ErrRateLimited) { // else it was not made
			return a, err
		}
		waits(err)
		if c.pause(ctx, wait) != nil {
			return a, err
		}
	}
}

// response is what DigitalOcean responded last to what is tried again.
func response(err error) error { return fmt.Errorf("DigitalOcean's last response is: %w", err) }

// explainAttach finds out why DigitalOcean did not attach a volume.
func (c *Controller) explainAttach(ctx context.Context, v volume.Observed, droplet int, cause error) error {
	if !errors.Is(cause, doapi.ErrRefused) && !errors.Is(cause, doapi.ErrNotFound) {
		return cause
	}
	d, err := c.o.API.Droplet(ctx, droplet)
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		return status.Errorf(codes.NotFound, "volume %s cannot be attached: DigitalOcean has no droplet %d", v.Name, droplet)
	case err == nil && d.Region != v.Region:
		return status.Errorf(codes.FailedPrecondition,
			"volume %s is in region %s and droplet %s in %s: give the pod's nodes the topology of the volume",
			v.Name, v.Region, d.Name, d.Region)
	}
	return cause
}

// ControllerUnpublishVolume detaches a volume from a droplet, or from whichever has it if the request names none.
func (c *Controller) ControllerUnpublishVolume(
	ctx context.Context, r *spec.ControllerUnpublishVolumeRequest,
) (*spec.ControllerUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("the request has no volume ID")
	}
	droplet := 0
	if r.GetNodeId() != "" {
		var err error
		if droplet, err = node(r.GetNodeId()); err != nil {
			return &spec.ControllerUnpublishVolumeResponse{}, nil //nolint:nilerr // nothing is attached to what is not a droplet
		}
		c.know(droplet)
	}
	work := func(ctx context.Context, waits func(error)) (volume.Observed, error) {
		return volume.Observed{}, c.detach(doapi.Urgent(ctx, vital), r.GetVolumeId(), droplet, waits)
	}
	_, err := c.moving(ctx, r.GetVolumeId(), "detach from droplet "+r.GetNodeId(), work)
	if err != nil {
		return nil, fail(err)
	}
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// detach observes and acts until the volume is not at the droplet.
func (c *Controller) detach(ctx context.Context, id string, droplet int, waits func(error)) error {
	epoch := c.o.API.Epoch()
	v, err := c.observer.observe(ctx, id, func(v volume.Observed) bool {
		return volume.DetachesFrom(v, droplet) != 0
	})
	for wait := firstBusy; ; wait = min(2*wait, longestBusy) {
		if errors.Is(err, doapi.ErrNotFound) {
			return c.gone(ctx, "volume "+id, epoch)
		}
		if err != nil {
			return fmt.Errorf("looking for volume %s: %w", id, err)
		}
		at := volume.DetachesFrom(v, droplet)
		if at == 0 {
			return nil
		}
		_, err = c.act(ctx, deed{at, v, volume.Detach, false, waits}, func() (volume.Action, error) {
			return c.o.API.DetachVolume(ctx, v, at)
		})
		switch {
		case err == nil:
			c.leftDroplet(id)
			return nil
		case errors.Is(err, doapi.ErrNotFound): // gone meanwhile
		case errors.Is(err, doapi.ErrPending), errors.Is(err, doapi.ErrAmbiguous),
			errors.Is(err, doapi.ErrRefused): // not attached any more
			waits(response(err))
			if c.pause(ctx, wait) != nil {
				return fmt.Errorf("detaching volume %s from droplet %d: %w", v.Name, at, err)
			}
		default:
			return err
		}
		v, err = c.o.API.Volume(ctx, id)
	}
}

// ControllerExpandVolume grows a volume, attached or not. The file system is the node's to grow.
func (c *Controller) ControllerExpandVolume(
	ctx context.Context, r *spec.ControllerExpandVolumeRequest,
) (*spec.ControllerExpandVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetCapacityRange() == nil:
		return nil, invalid("the request has no capacity range")
	}
	if r.GetVolumeCapability() != nil {
		if err := checkCapabilities(r.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	v, err := c.o.API.Volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, fail(fmt.Errorf("looking for volume %s: %w", r.GetVolumeId(), err))
	}
	size, err := volume.GrowsTo(v, sizes(r.GetCapacityRange()))
	if err != nil {
		return nil, fail(err)
	}
	if size > 0 {
		if v, err = c.resize(ctx, v.ID, size); err != nil {
			return nil, fail(err)
		}
	}
	return &spec.ControllerExpandVolumeResponse{
		CapacityBytes: v.Bytes(), NodeExpansionRequired: r.GetVolumeCapability().GetBlock() == nil,
	}, nil
}

// resize observes and acts until the volume has a size in GiB.
func (c *Controller) resize(ctx context.Context, id string, size int) (volume.Observed, error) {
	work := func(ctx context.Context, waits func(error)) (volume.Observed, error) {
		ctx = doapi.Urgent(ctx, vital)
		for wait := firstBusy; ; wait = min(2*wait, longestBusy) {
			v, err := c.o.API.Volume(ctx, id)
			if err != nil {
				return v, fmt.Errorf("looking for volume %s: %w", id, err)
			}
			if v.Size >= size {
				return v, nil
			}
			_, err = c.act(ctx, deed{v.AttachedTo(), v, volume.Resize, false, waits}, func() (volume.Action, error) {
				return c.o.API.ResizeVolume(ctx, v, size)
			})
			switch {
			case err == nil:
				v.Size = size
				return v, nil
			case errors.Is(err, doapi.ErrPending), errors.Is(err, doapi.ErrAmbiguous):
				waits(response(err))
				if c.pause(ctx, wait) != nil {
					return v, fmt.Errorf("resizing volume %s: %w", v.Name, err)
				}
			default:
				return v, err
			}
		}
	}
	return c.moving(ctx, id, fmt.Sprintf("resize to %d GiB", size), work)
}
