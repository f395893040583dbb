// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// ValidateVolumeCapabilities confirms what [volume.Capability.Check] allows, as it is at creation.
func (c *Controller) ValidateVolumeCapabilities(
	ctx context.Context, r *spec.ValidateVolumeCapabilitiesRequest,
) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case len(r.GetVolumeCapabilities()) == 0:
		return nil, invalid("the request has no volume capabilities")
	}
	if _, err := c.o.API.Volume(ctx, r.GetVolumeId()); err != nil {
		return nil, fail(fmt.Errorf("looking for volume %s: %w", r.GetVolumeId(), err))
	}
	var translated []volume.Capability
	for _, one := range r.GetVolumeCapabilities() {
		translated = append(translated, capability(one))
	}
	unfit := cmp.Or(volume.CheckCapabilities(translated), volume.CheckParameters(r.GetParameters()))
	if unfit != nil {
		return &spec.ValidateVolumeCapabilitiesResponse{Message: unfit.Error()}, nil //nolint:nilerr // it is an answer, not a failure
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeCapabilities: r.GetVolumeCapabilities(), VolumeContext: r.GetVolumeContext(), Parameters: r.GetParameters(),
		MutableParameters: r.GetMutableParameters(),
	}}, nil
}

// ControllerGetVolume shows one volume.
func (c *Controller) ControllerGetVolume(ctx context.Context, r *spec.ControllerGetVolumeRequest) (*spec.ControllerGetVolumeResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("the request has no volume ID")
	}
	v, err := c.o.API.Volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, fail(fmt.Errorf("looking for volume %s: %w", r.GetVolumeId(), err))
	}
	return &spec.ControllerGetVolumeResponse{
		Volume: c.shown(v, nil), Status: &spec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: publishedTo(v)},
	}, nil
}

// ListVolumes lists the volumes of the region and where each is attached.
func (c *Controller) ListVolumes(ctx context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	all, err := c.sorted(ctx)
	if err != nil {
		return nil, err
	}
	entries, next, err := page(all, volumeKey, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &spec.ListVolumesResponse{NextToken: next}
	for _, v := range entries {
		out.Entries = append(out.Entries, &spec.ListVolumesResponse_Entry{
			Volume: c.shown(v, nil), Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: publishedTo(v)},
		})
	}
	if len(entries) == len(all) { // csi-attacher asks for all; one page says nothing of the others
		c.countStates(ctx, all)
	}
	return out, nil
}

func volumeKey(v volume.Observed) string { return entryKey(v.Created.Unix(), v.ID) }

func (c *Controller) sorted(ctx context.Context) ([]volume.Observed, error) {
	all, err := c.o.API.Volumes(ctx, c.o.Region)
	if err != nil {
		return nil, fail(fmt.Errorf("listing volumes: %w", err))
	}
	slices.SortFunc(all, func(a, b volume.Observed) int { return cmp.Compare(volumeKey(a), volumeKey(b)) })
	return all, nil
}

// CreateSnapshot copies a volume, or finds the copy that an earlier request made.
func (c *Controller) CreateSnapshot(ctx context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse, error) {
	switch {
	case r.GetName() == "":
		return nil, invalid("the request has no name")
	case r.GetSourceVolumeId() == "":
		return nil, invalid("the request has no source volume ID")
	}
	release, err := c.claim("snapshot " + r.GetName())
	if err != nil {
		return nil, err
	}
	defer release()
	ctx = doapi.Urgent(ctx, vital)
	for range mostSteps {
		all, err := c.o.API.VolumeSnapshots(ctx)
		if err != nil {
			return nil, fail(fmt.Errorf("looking for snapshot %s: %w", r.GetName(), err))
		}
		s, found, err := volume.FindSnapshot(all, r.GetName(), r.GetSourceVolumeId())
		if err == nil && found { // the list may show what was deleted
			if s, err = c.o.API.VolumeSnapshot(ctx, s.ID); errors.Is(err, doapi.ErrNotFound) {
				found, err = false, nil
			}
		}
		if err == nil && !found {
			s, err = c.o.API.CreateSnapshot(ctx, r.GetSourceVolumeId(), r.GetName(), c.tags())
			if again(err) {
				if err := c.pause(ctx, settleTime); err != nil {
					return nil, fail(err)
				}
				continue
			}
			err = c.soon(err, all, r.GetSourceVolumeId())
		}
		if err != nil {
			return nil, fail(fmt.Errorf("taking snapshot %s: %w", r.GetName(), err))
		}
		return &spec.CreateSnapshotResponse{Snapshot: shownSnapshot(s)}, nil
	}
	return nil, fail(fmt.Errorf("snapshot %s was asked for and DigitalOcean's list does not show it yet", r.GetName()))
}

// soon says when the next snapshot of a volume is possible, if the error is that it is too soon for one.
func (c *Controller) soon(err error, all []volume.Snapshot, of string) error {
	if !errors.Is(err, doapi.ErrTooSoon) {
		return err
	}
	next, known := volume.NextSnapshot(all, of, c.o.Clock.Now())
	if !known {
		return fmt.Errorf("DigitalOcean takes one snapshot of a volume in %s, and one of volume %s that is deleted by now counts: it is tried again: %w",
			assumed.SnapshotInterval, of, err)
	}
	return fmt.Errorf("DigitalOcean takes one snapshot of a volume in %s: volume %s can have the next one at %s, at which it is tried again: %w",
		assumed.SnapshotInterval, of, next.UTC().Format("15:04:05 UTC"), err)
}

// DeleteSnapshot deletes a snapshot.
func (c *Controller) DeleteSnapshot(ctx context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse, error) {
	if r.GetSnapshotId() == "" {
		return nil, invalid("the request has no snapshot ID")
	}
	ctx, epoch := doapi.Urgent(ctx, vital), c.o.API.Epoch()
	err := c.o.API.DeleteSnapshot(ctx, r.GetSnapshotId())
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		if err := c.gone(ctx, "snapshot "+r.GetSnapshotId(), epoch); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fail(fmt.Errorf("deleting snapshot %s: %w", r.GetSnapshotId(), err))
	}
	return &spec.DeleteSnapshotResponse{}, nil
}

// ListSnapshots filters first and pages then, so that a page is empty only if there is nothing more.
func (c *Controller) ListSnapshots(ctx context.Context, r *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse, error) {
	all, err := c.o.API.VolumeSnapshots(ctx)
	if err != nil {
		return nil, fail(fmt.Errorf("listing snapshots: %w", err))
	}
	all = slices.DeleteFunc(all, func(s volume.Snapshot) bool {
		return r.GetSnapshotId() != "" && s.ID != r.GetSnapshotId() || r.GetSourceVolumeId() != "" && s.Volume != r.GetSourceVolumeId() ||
			len(s.Regions) > 0 && !slices.Contains(s.Regions, c.o.Region)
	})
	key := func(s volume.Snapshot) string { return entryKey(s.Created.Unix(), s.ID) }
	slices.SortFunc(all, func(a, b volume.Snapshot) int { return cmp.Compare(key(a), key(b)) })
	entries, next, err := page(all, key, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	out := &spec.ListSnapshotsResponse{NextToken: next}
	for _, s := range entries {
		out.Entries = append(out.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: shownSnapshot(s)})
	}
	return out, nil
}

// GetSnapshot shows one snapshot.
func (c *Controller) GetSnapshot(ctx context.Context, r *spec.GetSnapshotRequest) (*spec.GetSnapshotResponse, error) {
	if r.GetSnapshotId() == "" {
		return nil, invalid("the request has no snapshot ID")
	}
	s, err := c.o.API.VolumeSnapshot(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, fail(fmt.Errorf("looking for snapshot %s: %w", r.GetSnapshotId(), err))
	}
	return &spec.GetSnapshotResponse{Snapshot: shownSnapshot(s)}, nil
}
