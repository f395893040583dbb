// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

const (
	// mostSteps bounds the steps of one request to create a volume: a clone takes five.
	mostSteps = 10
	// settleTime is how long to wait before a list is read again that may lag behind a change.
	settleTime = time.Second
)

// CreateVolume makes a volume, or finds the one that an earlier request made.
func (c *Controller) CreateVolume(ctx context.Context, r *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	if err := c.checkCreate(r); err != nil {
		return nil, err
	}
	attributes, err := made(r)
	if err != nil {
		return nil, err
	}
	release, err := c.claim("volume " + r.GetName())
	if err != nil {
		return nil, err
	}
	defer release()
	want, err := c.want(ctx, r)
	if err != nil {
		return nil, fail(err)
	}
	tags, err := volume.ParseTags(r.GetMutableParameters())
	if err != nil {
		return nil, invalid("%v", err)
	}
	v, err := c.create(doapi.Urgent(ctx, vital), want, tags)
	if err != nil {
		return nil, failAt("creating volume "+r.GetName(), err)
	}
	answer := c.shown(v, r.GetVolumeContentSource())
	answer.VolumeContext = attributes
	return &spec.CreateVolumeResponse{Volume: answer}, nil
}

func (c *Controller) checkCreate(r *spec.CreateVolumeRequest) error {
	if r.GetName() == "" {
		return invalid("the request has no name")
	}
	if len(r.GetName()) > assumed.CSITextLength {
		return invalid("the name has %d bytes: at most %d are possible", len(r.GetName()), assumed.CSITextLength)
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return invalid("the request has no volume capabilities")
	}
	if err := checkCapabilities(r.GetVolumeCapabilities()...); err != nil {
		return err
	}
	if err := volume.CheckParameters(r.GetParameters()); err != nil {
		return invalid("%v", err)
	}
	if requisite := r.GetAccessibilityRequirements().GetRequisite(); len(requisite) > 0 && !slices.ContainsFunc(requisite, c.here) {
		return status.Errorf(codes.ResourceExhausted, "the volume is wanted outside region %q, the only one in which this driver makes volumes", c.o.Region)
	}
	return nil
}

// here reports whether a topology is that of this region.
func (c *Controller) here(t *spec.Topology) bool {
	region, named := t.GetSegments()[RegionKey]
	return !named || region == c.o.Region
}

// want translates a request and looks its source up.
func (c *Controller) want(ctx context.Context, r *spec.CreateVolumeRequest) (volume.Want, error) {
	w := volume.Want{Name: volume.Name(r.GetName()), Region: c.o.Region, Range: sizes(r.GetCapacityRange())}
	if _, err := w.Range.Pick(); err != nil {
		return w, fmt.Errorf("%w: %w", volume.ErrRange, err)
	}
	switch source := r.GetVolumeContentSource(); {
	case source == nil:
	case source.GetSnapshot() != nil:
		id := source.GetSnapshot().GetSnapshotId()
		if id == "" {
			return w, invalid("the content source has no snapshot ID")
		}
		s, err := c.o.API.VolumeSnapshot(ctx, id)
		if err != nil {
			return w, fmt.Errorf("looking for snapshot %s: %w", id, err)
		}
		if len(s.Regions) > 0 && !slices.Contains(s.Regions, c.o.Region) {
			return w, status.Errorf(codes.FailedPrecondition, "snapshot %s is in %s, not in region %s", id, strings.Join(s.Regions, ", "), c.o.Region)
		}
		w.Snapshot, w.SnapshotSize = s.ID, s.MinSize
	case source.GetVolume() != nil:
		id := source.GetVolume().GetVolumeId()
		if id == "" {
			return w, invalid("the content source has no volume ID")
		}
		v, err := c.o.API.Volume(ctx, id)
		if err != nil {
			return w, fmt.Errorf("looking for volume %s: %w", id, err)
		}
		w.Clone, w.SnapshotSize = v.ID, v.Size
	default:
		return w, invalid("the content source is neither a snapshot nor a volume")
	}
	return w, nil
}

// creation is what one request did, of which lists may not know yet.
type creation struct {
	volumes   []volume.Observed
	snapshots []volume.Snapshot
	gone      map[string]bool // volumes that a list shows and that do not exist
}

// create observes and does the next step until the volume is there.
func (c *Controller) create(ctx context.Context, w volume.Want, tags []string) (volume.Observed, error) {
	did := &creation{gone: map[string]bool{}}
	for range mostSteps {
		volumes, err := c.observer.named(ctx, w.Name)
		if err != nil {
			return volume.Observed{}, err
		}
		volumes = slices.DeleteFunc(volumes, func(v volume.Observed) bool { return did.gone[v.ID] })
		var snapshots []volume.Snapshot
		if w.Clone != "" {
			if snapshots, err = c.o.API.VolumeSnapshots(ctx); err != nil {
				return volume.Observed{}, err
			}
		}
		snapshots = append(snapshots, did.snapshots...)
		step, err := volume.PlanCreate(w, append(slices.Clone(did.volumes), volumes...), snapshots)
		if err != nil {
			return volume.Observed{}, err
		}
		v, done, err := c.createStep(ctx, w, step, snapshots, tags, did)
		if err != nil || done {
			return v, err
		}
	}
	return volume.Observed{}, errors.New("DigitalOcean's list does not show what was made yet; it is looked for with the next request")
}

// createStep does one step, and reports whether the volume is there as it was asked for.
func (c *Controller) createStep(
	ctx context.Context, w volume.Want, step volume.Step, snapshots []volume.Snapshot, tags []string, did *creation,
) (volume.Observed, bool, error) {
	switch s := step.(type) {
	case volume.MakeSnapshot:
		made, err := c.o.API.CreateSnapshot(ctx, w.Clone, s.Name, c.tags())
		if err == nil {
			did.snapshots = append(did.snapshots, made)
		}
		return volume.Observed{}, false, c.soon(err, snapshots, w.Clone)
	case volume.MakeVolume:
		v, err := c.makeVolume(ctx, volume.Request{
			Name: w.Name, Region: w.Region, Size: s.Size, Snapshot: s.Snapshot, Description: description, Tags: c.tags(tags...),
		})
		if again(err) { // it may be there: the next look tells
			return v, false, c.pause(ctx, settleTime)
		}
		if w.Clone != "" && errors.Is(err, doapi.ErrRefused) { // a request for it may never come again
			err = errors.Join(err, c.dropSnapshot(ctx, s.Snapshot))
		}
		if err == nil {
			did.volumes = []volume.Observed{v}
		}
		return v, err == nil && v.Size >= s.Size && w.Clone == "", err
	case volume.Grow:
		v, err := c.resize(ctx, s.Volume.ID, s.Size)
		if err == nil {
			did.volumes = []volume.Observed{v}
		}
		return v, err == nil && w.Clone == "", err
	case volume.DropSnapshot:
		err := c.dropSnapshot(ctx, s.Snapshot)
		return s.Volume, err == nil, err
	case volume.Found:
		return c.found(ctx, s.Volume.ID, did)
	}
	return volume.Observed{}, false, fmt.Errorf("%T: there is no such kind of step", step)
}

// found reads a volume that a list shows. A list alone is no reason to do nothing: it may show what was deleted.
func (c *Controller) found(ctx context.Context, id string, did *creation) (volume.Observed, bool, error) {
	v, err := c.o.API.Volume(ctx, id)
	if errors.Is(err, doapi.ErrNotFound) {
		did.gone[id] = true
		return v, false, nil
	}
	return v, err == nil, err
}

// dropSnapshot removes the copy of a clone that DigitalOcean refused.
func (c *Controller) dropSnapshot(ctx context.Context, id string) error {
	if err := c.o.API.DeleteSnapshot(ctx, id); err != nil && !errors.Is(err, doapi.ErrNotFound) {
		return fmt.Errorf("removing snapshot %s, of which the clone was to be made: %w", id, err)
	}
	return nil
}

// again reports whether a request to make something was not answered, or met something of its name that the list does not show yet.
func again(err error) bool {
	answered, ok := errors.AsType[*doapi.Error](err)
	return errors.Is(err, doapi.ErrAmbiguous) || ok && answered.Status == conflict
}

// tags are those of what is made.
func (c *Controller) tags(more ...string) []string {
	if c.o.Tag != "" {
		more = append([]string{c.o.Tag}, more...)
	}
	return more
}

// DeleteVolume deletes a volume. DigitalOcean refuses to while it is attached.
func (c *Controller) DeleteVolume(ctx context.Context, r *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("the request has no volume ID")
	}
	ctx, epoch := doapi.Urgent(ctx, vital), c.o.API.Epoch()
	err := c.o.API.DeleteVolume(ctx, r.GetVolumeId())
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		if err := c.gone(ctx, "volume "+r.GetVolumeId(), epoch); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fail(fmt.Errorf("deleting volume %s: %w", r.GetVolumeId(), err))
	}
	c.forget(r.GetVolumeId())
	return &spec.DeleteVolumeResponse{}, nil
}

// ControllerModifyVolume puts tags on a volume, the only thing of it that DigitalOcean can change.
func (c *Controller) ControllerModifyVolume(ctx context.Context, r *spec.ControllerModifyVolumeRequest) (*spec.ControllerModifyVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("the request has no volume ID")
	}
	tags, err := volume.ParseTags(r.GetMutableParameters())
	if err != nil {
		return nil, invalid("%v", err)
	}
	v, err := c.o.API.Volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, fail(fmt.Errorf("looking for volume %s: %w", r.GetVolumeId(), err))
	}
	for _, tag := range tags {
		if slices.ContainsFunc(v.Tags, func(have string) bool { return strings.EqualFold(have, tag) }) {
			continue
		}
		if err := errors.Join(c.o.API.CreateTag(ctx, tag), c.o.API.TagVolume(ctx, tag, v.ID)); err != nil {
			return nil, fail(fmt.Errorf("putting tag %s on volume %s: %w", tag, v.Name, err))
		}
	}
	return &spec.ControllerModifyVolumeResponse{}, nil
}
