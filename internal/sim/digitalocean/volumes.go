// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// listVolumes: the name filter is not exact at DigitalOcean; here it is without regard to case and matches a part (assumed, so that clients compare).
func listVolumes(c *call) result {
	name, region, when := c.query.Get("name"), c.query.Get("region"), c.whenListed()
	wanted := func(v *volume) bool {
		return (name == "" || strings.Contains(v.shown.Name, strings.ToLower(name))) && (region == "" || v.shown.Region.Slug == region)
	}
	return listing(c, "volumes", filter(c.account.volumes.valuesAt(when), wanted), c.showVolume)
}

// showVolume is what a response shows of a volume.
func (c *call) showVolume(v *volume) any {
	shown := v.shown
	if !c.can("tag:read") {
		shown.Tags = nil
	}
	return shown
}

// showSnapshot is what a response shows of a snapshot.
func (c *call) showSnapshot(s *snapshot) any {
	shown := s.shown
	if !c.can("tag:read") {
		shown.Tags = nil
	}
	return shown
}

// volumeNow returns the volume that the path names.
func (c *call) volumeNow() (*volume, *refusal) {
	v, found := c.account.volumes.get(c.params["volume_id"])
	if !found {
		return nil, notFound()
	}
	return v, nil
}

func getVolume(c *call) result {
	v, found := c.account.volumes.getAt(c.params["volume_id"], c.whenSeenByGet())
	if !found {
		return notFound().result()
	}
	return ok(map[string]any{"volume": c.showVolume(v)})
}

func createVolume(c *call) result {
	var request struct {
		Name            string   `json:"name"`
		Region          string   `json:"region"`
		SizeGigabytes   int      `json:"size_gigabytes"`
		SnapshotID      string   `json:"snapshot_id"`
		Description     string   `json:"description"`
		Tags            []string `json:"tags"`
		FilesystemType  string   `json:"filesystem_type"`
		FilesystemLabel string   `json:"filesystem_label"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	region := request.Region
	if from, found := c.account.snapshots.get(request.SnapshotID); found && region == "" {
		region = from.shown.Regions[0]
	}
	v, refused := c.account.createVolume(VolumeSpec{
		Name: request.Name, Region: region, Size: request.SizeGigabytes, Snapshot: request.SnapshotID, Description: request.Description,
		Tags: request.Tags, FSType: request.FilesystemType, FSLabel: request.FilesystemLabel,
	}, c.now)
	if refused != nil {
		return refused.result()
	}
	return result{status: http.StatusCreated, body: map[string]any{"volume": c.showVolume(v)}}
}

func deleteVolume(c *call) result {
	v, refused := c.volumeNow()
	if refused == nil {
		refused = c.account.deleteVolume(v, c.now)
	}
	if refused != nil {
		return refused.result()
	}
	return noContent()
}

func actOnVolume(c *call) result {
	var request struct {
		Type          string `json:"type"`
		DropletID     int    `json:"droplet_id"`
		SizeGigabytes int    `json:"size_gigabytes"`
		Region        string `json:"region"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	v, refused := c.volumeNow()
	if refused != nil {
		return refused.result()
	}
	action, refused := c.account.actOnVolume(v, request.Type, request.DropletID, request.SizeGigabytes, request.Region, c.now)
	if refused != nil {
		return refused.result()
	}
	return result{status: http.StatusAccepted, body: map[string]any{"action": action}}
}

func getVolumeAction(c *call) result {
	id, err := strconv.Atoi(c.params["action_id"])
	if err != nil {
		return notFound().result()
	}
	todo := c.account.volumeActions[id]
	if todo == nil || todo.Volume != c.params["volume_id"] {
		return notFound().result()
	}
	return ok(map[string]any{"action": c.account.actions[id]})
}

func listVolumeActions(c *call) result {
	v, refused := c.volumeNow()
	if refused != nil {
		return refused.result()
	}
	shown := c.whenListed().Add(time.Second) // actions have their times in whole seconds
	return c.listActions(func(id int) bool {
		todo := c.account.volumeActions[id]
		began, err := time.Parse(time.RFC3339, c.account.actions[id].StartedAt)
		return todo != nil && todo.Volume == v.shown.ID && err == nil && began.Before(shown)
	})
}

func listActions(c *call) result { return c.listActions(func(int) bool { return true }) }

// listActions lists the newest first, as DigitalOcean does.
func (c *call) listActions(wanted func(id int) bool) result {
	newest := slices.SortedFunc(maps.Values(c.account.actions), func(a, b *Action) int { return cmp.Compare(b.ID, a.ID) })
	return listing(c, "actions", filter(slices.Values(newest), func(a *Action) bool { return wanted(a.ID) }), func(a *Action) any { return a })
}

func createSnapshot(c *call) result {
	var request struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	v, refused := c.volumeNow()
	if refused != nil {
		return refused.result()
	}
	s, refused := c.account.createSnapshot(v, request.Name, request.Tags, c.now)
	if refused != nil {
		return refused.result()
	}
	return result{status: http.StatusCreated, body: map[string]any{"snapshot": c.showSnapshot(s)}}
}

func listSnapshots(c *call) result {
	kind, when := c.query.Get("resource_type"), c.whenListed()
	wanted := func(s *snapshot) bool { return kind == "" || s.shown.ResourceType == kind }
	return listing(c, "snapshots", filter(c.account.snapshots.valuesAt(when), wanted), c.showSnapshot)
}

func listVolumeSnapshots(c *call) result {
	v, refused := c.volumeNow()
	if refused != nil {
		return refused.result()
	}
	wanted := func(s *snapshot) bool { return s.shown.ResourceID == v.shown.ID }
	return listing(c, "snapshots", filter(c.account.snapshots.valuesAt(c.whenListed()), wanted), c.showSnapshot)
}

func getSnapshot(c *call) result {
	s, found := c.account.snapshots.getAt(c.params["snapshot_id"], c.whenSeenByGet())
	if !found {
		return notFound().result()
	}
	return ok(map[string]any{"snapshot": c.showSnapshot(s)})
}

func deleteSnapshot(c *call) result {
	s, found := c.account.snapshots.get(c.params["snapshot_id"])
	if !found {
		return notFound().result()
	}
	if err := c.sim.options.Volumes.Devices.DeleteSnapshot(s.shown.ID); err != nil {
		return refuse(http.StatusServiceUnavailable, "%v", err).result()
	}
	c.account.snapshots.remove(s.shown.ID, c.now)
	return noContent()
}
