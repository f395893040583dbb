// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// Routes of block storage.
const (
	volumesPath   = "v2/volumes"
	volumeRoute   = "v2/volumes/{id}"
	snapshotsPath = "v2/snapshots"
	snapshotRoute = "v2/snapshots/{id}"
	actionsPath   = "v2/actions"
)

// wireVolume is a volume as the API writes it (schema "volume_full").
type wireVolume struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Region struct {
		Slug string `json:"slug"`
	} `json:"region"`
	Description   string   `json:"description"`
	SizeGigabytes int      `json:"size_gigabytes"`
	DropletIDs    []int    `json:"droplet_ids"`
	Tags          []string `json:"tags"`
	CreatedAt     string   `json:"created_at"`
}

func (w wireVolume) key() string { return w.ID }

func (w wireVolume) translate() volume.Observed {
	created, _ := time.Parse(time.RFC3339, w.CreatedAt) // the zero time decides nothing but an order
	return volume.Observed{
		ID: w.ID, Name: w.Name, Region: w.Region.Slug, Description: w.Description, Size: w.SizeGigabytes, Droplets: w.DropletIDs, Tags: w.Tags, Created: created,
	}
}

// wireSnapshot is a snapshot as the API writes it (schema "snapshots").
type wireSnapshot struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	CreatedAt   string   `json:"created_at"`
	Regions     []string `json:"regions"`
	MinDiskSize int      `json:"min_disk_size"`
	Size        float64  `json:"size_gigabytes"`
	Tags        []string `json:"tags"`
	ResourceID  string   `json:"resource_id"`
}

func (w wireSnapshot) key() string { return w.ID }

func (w wireSnapshot) translate() volume.Snapshot {
	created, _ := time.Parse(time.RFC3339, w.CreatedAt)
	return volume.Snapshot{
		ID: w.ID, Name: w.Name, Volume: w.ResourceID, Regions: w.Regions, MinSize: w.MinDiskSize, Size: w.Size, Tags: w.Tags, Created: created,
	}
}

// wireAction is an action as the API writes it (schema "action").
type wireAction struct {
	ID     int    `json:"id"`
	Status string `json:"status"`
	Type   string `json:"type"`
	Began  string `json:"started_at"`
}

func (w wireAction) translate() volume.Action {
	began, _ := time.Parse(time.RFC3339, w.Began) // the zero time proves nothing
	return volume.Action{ID: w.ID, Status: volume.ActionStatus(w.Status), Kind: volume.ActionKind(w.Type), Began: began}
}

// Volumes lists the volumes of a region, all regions if it is empty (GET /v2/volumes). It is all of them or an error.
func (c *Client) Volumes(ctx context.Context, region string) ([]volume.Observed, error) {
	return c.volumes(ctx, url.Values{}, region)
}

// VolumesNamed lists the volumes of a region whose names match (GET /v2/volumes?name=). DigitalOcean's filter is not exact: compare the names.
func (c *Client) VolumesNamed(ctx context.Context, name, region string) ([]volume.Observed, error) {
	return c.volumes(ctx, url.Values{"name": {name}}, region)
}

func (c *Client) volumes(ctx context.Context, query url.Values, region string) ([]volume.Observed, error) {
	if region != "" {
		query.Set("region", region)
	}
	return list[wireVolume](ctx, c, volumesPath, query)
}

// Volume reads one volume (GET /v2/volumes/{id}). errors.Is(err, ErrNotFound) holds only for the API's own 404.
func (c *Client) Volume(ctx context.Context, id string) (volume.Observed, error) {
	if err := checkID("volume", id); err != nil {
		return volume.Observed{}, err
	}
	return c.oneVolume(ctx, call{method: http.MethodGet, route: volumeRoute, path: volumesPath + "/" + id}, id)
}

// CreateVolume makes a volume (POST /v2/volumes). With an error for which errors.Is(err, ErrAmbiguous) holds it may have been made: look for
// it by name.
func (c *Client) CreateVolume(ctx context.Context, r volume.Request) (volume.Observed, error) {
	body := struct {
		Name        string   `json:"name"`
		Region      string   `json:"region"`
		Size        int      `json:"size_gigabytes"`
		Snapshot    string   `json:"snapshot_id,omitempty"`
		Description string   `json:"description,omitempty"`
		Tags        []string `json:"tags,omitempty"`
	}{r.Name, r.Region, r.Size, r.Snapshot, r.Description, r.Tags}
	return c.oneVolume(ctx, call{method: http.MethodPost, route: volumesPath, path: volumesPath, body: body}, "")
}

func (c *Client) oneVolume(ctx context.Context, request call, id string) (volume.Observed, error) {
	var answer struct {
		Volume *wireVolume `json:"volume"`
	}
	request.answer = &answer
	if err := c.do(ctx, request); err != nil {
		return volume.Observed{}, err
	}
	if answer.Volume == nil || answer.Volume.ID == "" || id != "" && answer.Volume.ID != id {
		return volume.Observed{}, noAnswer(request, true, fmt.Errorf("the response is not about volume %q", id))
	}
	return answer.Volume.translate(), nil
}

// DeleteVolume deletes a volume (DELETE /v2/volumes/{id}). One that is not found is ErrNotFound; one that is attached is refused by DigitalOcean.
func (c *Client) DeleteVolume(ctx context.Context, id string) error {
	return c.deleteOne(ctx, "volume", volumeRoute, volumesPath, id)
}

func (c *Client) deleteOne(ctx context.Context, kind, route, path, id string) error {
	if err := checkID(kind, id); err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodDelete, route: route, path: path + "/" + id})
}

// AttachVolume begins an action (POST /v2/volumes/{id}/actions), as DetachVolume and ResizeVolume do. It is done when [Client.VolumeAction]
// says so. Where no response arrived (ErrAmbiguous) read the volume again: the action may be under way.
func (c *Client) AttachVolume(ctx context.Context, v volume.Observed, droplet int) (volume.Action, error) {
	return c.act(ctx, v.ID, map[string]any{"type": volume.Attach, "droplet_id": droplet, "region": v.Region})
}

// DetachVolume takes a volume from a droplet; see [Client.AttachVolume].
func (c *Client) DetachVolume(ctx context.Context, v volume.Observed, droplet int) (volume.Action, error) {
	return c.act(ctx, v.ID, map[string]any{"type": volume.Detach, "droplet_id": droplet, "region": v.Region})
}

// ResizeVolume grows a volume to a size in GiB; see [Client.AttachVolume].
func (c *Client) ResizeVolume(ctx context.Context, v volume.Observed, size int) (volume.Action, error) {
	return c.act(ctx, v.ID, map[string]any{"type": volume.Resize, "size_gigabytes": size, "region": v.Region})
}

func (c *Client) act(ctx context.Context, id string, body map[string]any) (volume.Action, error) {
	if err := checkID("volume", id); err != nil {
		return volume.Action{}, err
	}
	return c.oneAction(ctx, call{method: http.MethodPost, route: volumeRoute + "/actions", path: volumesPath + "/" + id + "/actions", body: body})
}

// VolumeAction reads one action (GET /v2/volumes/{id}/actions/{id}).
func (c *Client) VolumeAction(ctx context.Context, volumeID string, id int) (volume.Action, error) {
	if err := checkID("volume", volumeID); err != nil {
		return volume.Action{}, err
	}
	return c.oneAction(ctx, call{
		method: http.MethodGet, route: volumeRoute + "/actions/{id}", path: fmt.Sprintf("%s/%s/actions/%d", volumesPath, volumeID, id),
	})
}

func (c *Client) oneAction(ctx context.Context, request call) (volume.Action, error) {
	var answer struct {
		Action *wireAction `json:"action"`
	}
	request.answer = &answer
	if err := c.do(ctx, request); err != nil {
		return volume.Action{}, err
	}
	if answer.Action == nil || answer.Action.ID == 0 {
		return volume.Action{}, noAnswer(request, true, errors.New("the response is not about an action"))
	}
	return answer.Action.translate(), nil
}

// LatestActions returns the newest actions of a volume: at most a page of them (GET /v2/volumes/{id}/actions).
func (c *Client) LatestActions(ctx context.Context, volumeID string) ([]volume.Action, error) {
	if err := checkID("volume", volumeID); err != nil {
		return nil, err
	}
	return c.actions(ctx, volumeRoute+"/actions", volumesPath+"/"+volumeID+"/actions", 1)
}

// AccountActions returns a page of the account's actions, those of all resources, the newest first (GET /v2/actions).
// Pages are counted from 1.
func (c *Client) AccountActions(ctx context.Context, page int) ([]volume.Action, error) {
	return c.actions(ctx, actionsPath, actionsPath, page)
}

func (c *Client) actions(ctx context.Context, route, path string, page int) ([]volume.Action, error) {
	var answer struct {
		Actions []wireAction `json:"actions"`
	}
	query := url.Values{"per_page": {strconv.Itoa(PageSize)}}
	if page > 1 {
		query.Set("page", strconv.Itoa(page))
	}
	request := call{method: http.MethodGet, route: route, path: path, answer: &answer, query: query}
	if err := c.do(ctx, request); err != nil {
		return nil, err
	}
	var found []volume.Action
	for _, a := range answer.Actions {
		found = append(found, a.translate())
	}
	return found, nil
}

// VolumeSnapshots lists all snapshots of volumes (GET /v2/snapshots?resource_type=volume). It is all of them or an error.
func (c *Client) VolumeSnapshots(ctx context.Context) ([]volume.Snapshot, error) {
	return list[wireSnapshot](ctx, c, snapshotsPath, url.Values{"resource_type": {"volume"}})
}

// VolumeSnapshot reads one snapshot (GET /v2/snapshots/{id}).
func (c *Client) VolumeSnapshot(ctx context.Context, id string) (volume.Snapshot, error) {
	if err := checkID("snapshot", id); err != nil {
		return volume.Snapshot{}, err
	}
	return c.oneSnapshot(ctx, call{method: http.MethodGet, route: snapshotRoute, path: snapshotsPath + "/" + id})
}

// CreateSnapshot copies a volume (POST /v2/volumes/{id}/snapshots). errors.Is(err, ErrTooSoon) holds if the volume had a snapshot a moment ago.
func (c *Client) CreateSnapshot(ctx context.Context, volumeID, name string, tags []string) (volume.Snapshot, error) {
	if err := checkID("volume", volumeID); err != nil {
		return volume.Snapshot{}, err
	}
	body := struct {
		Name string   `json:"name"`
		Tags []string `json:"tags,omitempty"`
	}{name, tags}
	return c.oneSnapshot(ctx, call{method: http.MethodPost, route: volumeRoute + "/snapshots", path: volumesPath + "/" + volumeID + "/snapshots", body: body})
}

func (c *Client) oneSnapshot(ctx context.Context, request call) (volume.Snapshot, error) {
	var answer struct {
		Snapshot *wireSnapshot `json:"snapshot"`
	}
	request.answer = &answer
	if err := c.do(ctx, request); err != nil {
		return volume.Snapshot{}, err
	}
	if answer.Snapshot == nil || answer.Snapshot.ID == "" {
		return volume.Snapshot{}, noAnswer(request, true, errors.New("the response is not about a snapshot"))
	}
	return answer.Snapshot.translate(), nil
}

// DeleteSnapshot deletes a snapshot (DELETE /v2/snapshots/{id}). One that is not found is ErrNotFound.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	return c.deleteOne(ctx, "snapshot", snapshotRoute, snapshotsPath, id)
}

// TagVolume puts a tag on a volume (POST /v2/tags/{name}/resources). errors.Is(err, ErrNotFound) holds if the tag or the volume does not exist.
func (c *Client) TagVolume(ctx context.Context, name, id string) error {
	if name == "" || id == "" {
		return errors.New("tagging needs a tag and a volume")
	}
	return c.tag(ctx, name, "volume", []string{id})
}

// checkID returns an error for an ID that would be another address of the API.
func checkID(kind, id string) error {
	for _, r := range id {
		if r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return &Error{Method: http.MethodGet, Route: kind, Message: fmt.Sprintf("%q is not the ID of a %s", id, kind), kind: ErrNotFound}
		}
	}
	if id == "" {
		return fmt.Errorf("a %s without an ID cannot be named", kind)
	}
	return nil
}
