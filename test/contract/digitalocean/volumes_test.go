// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"testing"

	"github.com/digitalocean/godo"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// driveVolumes does with godo what csi-digitalocean does.
func driveVolumes(t *testing.T, client *godo.Client) {
	t.Helper()
	droplets, _, err := client.Droplets.List(background(), nil)
	must.Do(t, err)
	at := droplets[0].ID
	v, _, err := client.Storage.CreateVolume(background(), &godo.VolumeCreateRequest{
		Region: droplets[0].Region.Slug, Name: "pvc-one", SizeGigaBytes: 2, Description: "Created by DigitalOcean CSI driver", Tags: []string{"k8s:cid"},
	})
	must.Do(t, err)
	_, response, err := client.Storage.CreateVolume(background(), &godo.VolumeCreateRequest{Region: v.Region.Slug, Name: "pvc-one", SizeGigaBytes: 2})
	status(t, http.StatusConflict, response, err)

	action, _, err := client.StorageActions.Attach(background(), v.ID, at)
	must.Do(t, err)
	if action, _, err = client.StorageActions.Get(background(), v.ID, action.ID); err != nil || action.Status != godo.ActionCompleted {
		t.Errorf("the attachment: %+v, %v", action, err)
	}
	got, _, err := client.Storage.GetVolume(background(), v.ID)
	must.Do(t, err)
	if len(got.DropletIDs) != 1 || got.DropletIDs[0] != at || got.SizeGigaBytes != 2 {
		t.Errorf("an attached volume: %+v", got)
	}
	response, err = client.Storage.DeleteVolume(background(), v.ID)
	status(t, http.StatusConflict, response, err)
	_, _, err = client.StorageActions.DetachByDropletID(background(), v.ID, at)
	must.Do(t, err)
	_, _, err = client.StorageActions.List(background(), v.ID, nil)
	must.Do(t, err)
	_, response, err = client.StorageActions.DetachByDropletID(background(), v.ID, at)
	status(t, http.StatusUnprocessableEntity, response, err)
	_, _, err = client.StorageActions.Resize(background(), v.ID, 3, v.Region.Slug)
	must.Do(t, err)
	all, _, err := client.Actions.List(background(), nil)
	must.Do(t, err)
	if len(all) < 3 {
		t.Errorf("%d actions are listed", len(all))
	}
	driveSnapshots(t, client, v.ID)
	found, _, err := client.Storage.ListVolumes(background(), &godo.ListVolumeParams{Name: "pvc-one", Region: v.Region.Slug})
	must.Do(t, err)
	if len(found) != 1 || found[0].SizeGigaBytes != 3 {
		t.Errorf("by name and region: %+v", found)
	}
	must.Get(client.Storage.DeleteVolume(background(), v.ID)).Or(t)
	_, response, err = client.Storage.GetVolume(background(), v.ID)
	status(t, http.StatusNotFound, response, err)
}

func driveSnapshots(t *testing.T, client *godo.Client, volume string) {
	t.Helper()
	s, _, err := client.Storage.CreateSnapshot(background(), &godo.SnapshotCreateRequest{VolumeID: volume, Name: "snapshot-one"})
	must.Do(t, err)
	_, response, err := client.Storage.CreateSnapshot(background(), &godo.SnapshotCreateRequest{VolumeID: volume, Name: "snapshot-two"})
	status(t, http.StatusTooManyRequests, response, err)
	of, _, err := client.Storage.ListSnapshots(background(), volume, nil)
	must.Do(t, err)
	all, _, err := client.Snapshots.ListVolume(background(), nil)
	must.Do(t, err)
	if len(of) != 1 || len(all) != 1 || all[0].ID != s.ID {
		t.Errorf("snapshots: %+v and %+v", of, all)
	}
	_, _, err = client.Snapshots.Get(background(), s.ID)
	must.Do(t, err)
	must.Get(client.Snapshots.Delete(background(), s.ID)).Or(t)
}
