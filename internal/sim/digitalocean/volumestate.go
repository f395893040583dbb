// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// The states of an action (OpenAPI: action.status).
const (
	actionInProgress = assumed.ActionInProgress
	actionCompleted  = assumed.ActionCompleted
	actionErrored    = assumed.ActionErrored
)

// The kinds of volume actions (OpenAPI: volumeAction.type; godo reads the longer names back).
const (
	actionAttach = assumed.ActionAttach
	actionDetach = assumed.ActionDetach
	actionResize = assumed.ActionResize
)

// actionsKept is how many actions are kept.
const actionsKept = 1000

// volumeName is what DigitalOcean accepts as a volume's name.
var volumeName = regexp.MustCompile(assumed.VolumeNamePattern)

// volume is a disk. It is never changed in place, see table.
type volume struct {
	shown Volume
	// pending is the ID of the action in progress, 0 for none.
	pending int
	// snapshotAt is when the last snapshot was taken.
	snapshotAt time.Time
}

// volumeAction is what an action of a volume is going to do.
type volumeAction struct {
	Volume  string    `json:"volume"`
	Kind    string    `json:"kind"`
	Droplet int       `json:"droplet,omitempty"`
	Size    int       `json:"size,omitempty"`
	DoneAt  time.Time `json:"doneAt"`
	Errored bool      `json:"errored,omitempty"`
}

// Devices is told what becomes of volumes, so that they can be real. It is called with the simulator's lock held and must not call it. An error of
// Attach, Detach or Resize ends the action as errored.
type Devices interface {
	// Create makes a disk of a size in GiB, a copy of a snapshot if that is not empty.
	Create(volume, name string, gigabytes int, snapshot string) error
	// Delete removes a disk.
	Delete(volume string) error
	// Attach makes the disk appear on a droplet, Detach removes it there.
	Attach(volume string, droplet int) error
	Detach(volume string, droplet int) error
	// Resize grows a disk, attached or not.
	Resize(volume string, gigabytes int) error
	// Snapshot copies a disk, DeleteSnapshot removes the copy.
	Snapshot(volume, snapshot string) error
	DeleteSnapshot(snapshot string) error
}

// Adopter is what Devices may implement in addition: a simulator that goes on from an image (see [Open]) names each volume, and the droplet that
// it is attached to, 0 for none, before anything else becomes of it.
type Adopter interface {
	Adopt(volume, name string, droplet int) error
}

// noDevices is for simulators without disks.
type noDevices struct{}

// Create implements Devices.
func (noDevices) Create(string, string, int, string) error { return nil }

// Delete implements Devices.
func (noDevices) Delete(string) error { return nil }

// Attach implements Devices.
func (noDevices) Attach(string, int) error { return nil }

// Detach implements Devices.
func (noDevices) Detach(string, int) error { return nil }

// Resize implements Devices.
func (noDevices) Resize(string, int) error { return nil }

// Snapshot implements Devices.
func (noDevices) Snapshot(string, string) error { return nil }

// DeleteSnapshot implements Devices.
func (noDevices) DeleteSnapshot(string) error { return nil }

func (v *volume) droplet() int {
	if len(v.shown.DropletIDs) == 0 {
		return 0
	}
	return v.shown.DropletIDs[0]
}

// changeVolume replaces a volume by a changed copy.
func (a *account) changeVolume(v *volume, now time.Time, change func(*volume)) *volume {
	changed := *v
	change(&changed)
	a.volumes.put(v.shown.ID, &changed, now)
	return &changed
}

// setDroplet moves a volume to a droplet, or away from all with 0; both sides show it.
func (a *account) setDroplet(v *volume, id int, now time.Time) {
	if d, found := a.droplets.get(v.droplet()); found {
		a.changeDroplet(d, now, func(d *droplet) {
			d.volumes = slices.DeleteFunc(slices.Clone(d.volumes), func(other string) bool { return other == v.shown.ID })
		})
	}
	ids := []int{}
	if d, found := a.droplets.get(id); found {
		ids = append(ids, id)
		a.changeDroplet(d, now, func(d *droplet) { d.volumes = append(slices.Clone(d.volumes), v.shown.ID) })
	}
	a.changeVolume(v, now, func(v *volume) { v.shown.DropletIDs = ids })
}

// settle completes the actions whose time has come, in their order.
func (a *account) settle(now time.Time) {
	if len(a.pending) == 0 {
		return
	}
	for _, id := range slices.Clone(a.pending) {
		todo, action := a.volumeActions[id], a.actions[id]
		if action == nil || todo == nil || now.Before(todo.DoneAt) {
			continue
		}
		a.pending = slices.DeleteFunc(a.pending, func(other int) bool { return other == id })
		a.finish(todo, action, now)
	}
}

// finish ends an action: what it was for is done now, unless it fails.
func (a *account) finish(todo *volumeAction, action *Action, now time.Time) {
	ended := *action
	ended.Status, ended.CompletedAt = actionCompleted, new(rfc3339(now))
	defer func() { a.actions[ended.ID] = &ended; a.sim.changed() }()
	v, found := a.volumes.get(todo.Volume)
	if !found {
		ended.Status = actionErrored
		return
	}
	v = a.changeVolume(v, now, func(v *volume) { v.pending = 0 })
	if todo.Errored || a.apply(v, todo, now) != nil {
		ended.Status = actionErrored
	}
}

func (a *account) apply(v *volume, todo *volumeAction, now time.Time) error {
	devices := a.sim.options.Volumes.Devices
	switch todo.Kind {
	case actionAttach:
		if _, found := a.droplets.get(todo.Droplet); !found {
			return fmt.Errorf("droplet %d is gone", todo.Droplet)
		}
		if err := devices.Attach(v.shown.ID, todo.Droplet); err != nil {
			return err
		}
		a.setDroplet(v, todo.Droplet, now)
	case actionDetach:
		if err := devices.Detach(v.shown.ID, todo.Droplet); err != nil {
			return err
		}
		a.setDroplet(v, 0, now)
	case actionResize:
		if err := devices.Resize(v.shown.ID, todo.Size); err != nil {
			return err
		}
		a.changeVolume(v, now, func(v *volume) { v.shown.SizeGigabytes = todo.Size })
	}
	return nil
}

// VolumeSpec is a volume to be.
type VolumeSpec struct {
	Name        string   `json:"name"`
	Region      string   `json:"region,omitempty"` // nyc1 if empty
	Size        int      `json:"size"`             // GiB
	Description string   `json:"description,omitempty"`
	Tags        []string `json:"tags,omitempty"`
	Snapshot    string   `json:"snapshot,omitempty"`
	FSType      string   `json:"fsType,omitempty"`
	FSLabel     string   `json:"fsLabel,omitempty"`
}

// createVolume of the account. Names are unique in a region.
func (a *account) createVolume(spec VolumeSpec, now time.Time) (*volume, *refusal) {
	if spec.Region == "" {
		spec.Region = "nyc1"
	}
	region, known := a.sim.catalog.byRegion[spec.Region]
	limit := a.sim.options.Volumes.Limit
	switch {
	case len(spec.Name) > assumed.VolumeNameLength || !volumeName.MatchString(spec.Name):
		return nil, invalid("name must begin with a lower case letter and have lower case letters, digits and hyphens, at most 64")
	case !known:
		return nil, invalid("region %q is not available", spec.Region)
	case spec.Size < assumed.VolumeSizeLeast || spec.Size > a.sim.options.Volumes.Largest:
		return nil, invalid("invalid size")
	case limit > 0 && a.volumes.len() >= limit:
		return nil, refuse(http.StatusForbidden, "failed to create volume: volume/snapshot capacity limit exceeded")
	}
	for other := range a.volumes.values() {
		if other.shown.Name == spec.Name && other.shown.Region.Slug == spec.Region {
			return nil, refuse(http.StatusConflict, "a volume with that name already exists in the region")
		}
	}
	if refused := a.restoreSize(&spec); refused != nil {
		return nil, refused
	}
	for _, tag := range spec.Tags {
		a.ensureTag(tag, now)
	}
	v := &volume{shown: Volume{
		ID: a.sim.newUUID(), Name: spec.Name, Region: region, SizeGigabytes: spec.Size, Description: spec.Description, DropletIDs: []int{},
		CreatedAt: rfc3339(now), Tags: sortedUnique(spec.Tags), FilesystemType: spec.FSType, FilesystemLabel: spec.FSLabel,
	}}
	if err := a.sim.options.Volumes.Devices.Create(v.shown.ID, spec.Name, spec.Size, spec.Snapshot); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%v", err)
	}
	a.volumes.put(v.shown.ID, v, now)
	return v, nil
}

// restoreSize sets the size of a volume that is made of a snapshot.
func (a *account) restoreSize(spec *VolumeSpec) *refusal {
	if spec.Snapshot == "" {
		return nil
	}
	from, found := a.snapshots.get(spec.Snapshot)
	switch {
	case !found:
		return invalid("snapshot %q does not exist", spec.Snapshot)
	case !slices.Contains(from.shown.Regions, spec.Region):
		return invalid("snapshot %q is not in region %q", spec.Snapshot, spec.Region)
	case spec.Size < from.shown.MinDiskSize:
		return invalid("size must be at least the snapshot's %d gigabytes", from.shown.MinDiskSize)
	case !a.sim.options.Volumes.RestoreAtOnce: // a larger one is resized afterwards
		spec.Size = from.shown.MinDiskSize
	}
	return nil
}

// deleteVolume refuses while it is attached or busy.
func (a *account) deleteVolume(v *volume, now time.Time) *refusal {
	switch {
	case v.droplet() != 0:
		return refuse(http.StatusConflict, "a volume that's attached to a Droplet cannot be deleted")
	case v.pending != 0:
		return invalid("Volume already has a pending event.")
	}
	if err := a.sim.options.Volumes.Devices.Delete(v.shown.ID); err != nil {
		return refuse(http.StatusServiceUnavailable, "%v", err)
	}
	a.volumes.remove(v.shown.ID, now)
	return nil
}

// actOnVolume begins an action. Each volume and each droplet has one at a time.
func (a *account) actOnVolume(v *volume, kind string, dropletID, size int, region string, now time.Time) (*Action, *refusal) {
	if refused := a.checkVolumeAction(v, kind, dropletID, size, region); refused != nil {
		return nil, refused
	}
	o := &a.sim.options.Volumes
	after := map[string]time.Duration{actionAttach: o.AttachAfter, actionDetach: o.DetachAfter, actionResize: o.ResizeAfter}[kind]
	action := a.recordVolumeAction(v, &volumeAction{
		Volume: v.shown.ID, Kind: kind, Droplet: dropletID, Size: size, DoneAt: now.Add(after), Errored: a.failNext > 0 || a.sim.chance(o.ErrorProbability),
	}, now)
	a.failNext = max(0, a.failNext-1)
	a.pending = append(a.pending, action.ID)
	a.changeVolume(v, now, func(v *volume) { v.pending = action.ID })
	return action, nil
}

// recordVolumeAction makes the action of a volume that lists and GET show. Responses name its type otherwise than requests.
func (a *account) recordVolumeAction(v *volume, todo *volumeAction, now time.Time) *Action {
	action := &Action{
		ID: a.sim.nextAction, Status: actionInProgress, Type: todo.Kind + "_volume", StartedAt: rfc3339(now),
		ResourceType: "volume", Region: v.shown.Region, RegionSlug: v.shown.Region.Slug,
	}
	a.sim.nextAction++
	a.volumeActions[action.ID] = todo
	a.keepAction(action)
	return action
}

func (a *account) checkVolumeAction(v *volume, kind string, dropletID, size int, region string) *refusal {
	if region != "" && region != v.shown.Region.Slug {
		return invalid("the volume is not in region %q", region)
	}
	if refused := a.checkKind(v, kind, dropletID, size); refused != nil {
		return refused
	}
	if v.pending != 0 {
		return invalid("Volume already has a pending event.")
	}
	for _, id := range a.pending {
		if other := a.volumeActions[id]; kind != actionResize && other.Kind != actionResize && other.Droplet == dropletID {
			return invalid("Droplet already has a pending event.")
		}
	}
	return nil
}

func (a *account) checkKind(v *volume, kind string, dropletID, size int) *refusal {
	switch kind {
	case actionAttach:
		return a.checkAttach(v, dropletID)
	case actionDetach:
		if v.droplet() == 0 || v.droplet() != dropletID {
			return invalid("Attachment not found")
		}
	case actionResize:
		if size <= v.shown.SizeGigabytes || size > a.sim.options.Volumes.Largest {
			return invalid("invalid size")
		}
	default:
		return invalid("action %q is not simulated", kind)
	}
	return nil
}

func (a *account) checkAttach(v *volume, dropletID int) *refusal {
	d, exists := a.droplets.get(dropletID)
	most := a.sim.options.Volumes.PerDroplet
	switch {
	case !exists:
		return refuse(http.StatusNotFound, "droplet %d could not be found", dropletID)
	case d.region != v.shown.Region:
		return invalid("the volume and the Droplet must be in the same region")
	case v.droplet() != 0:
		return invalid("Volume is already attached to Droplet %d", v.droplet())
	case v.pending == 0 && len(d.volumes) >= most:
		return invalid("cannot attach more than %d volumes to a single Droplet", most)
	}
	return nil
}

// keepAction records an action. The last ones are kept, and all of volumes: DigitalOcean's list of these is of all.
func (a *account) keepAction(action *Action) {
	a.actions[action.ID] = action
	a.sim.changed()
	if old := action.ID - actionsKept; a.volumeActions[old] == nil {
		delete(a.actions, old)
	}
}

// snapshot is a copy of a volume. It is never changed in place, see table.
type snapshot struct{ shown Snapshot }

// createSnapshot copies a volume as it is. Names are unique.
func (a *account) createSnapshot(v *volume, name string, tags []string, now time.Time) (*snapshot, *refusal) {
	if name == "" {
		return nil, invalid("name is needed")
	}
	for other := range a.snapshots.values() {
		if other.shown.Name == name {
			return nil, refuse(http.StatusConflict, "a snapshot with that name already exists")
		}
	}
	if every := a.sim.options.Volumes.SnapshotEvery; every > 0 && !v.snapshotAt.IsZero() && now.Before(v.snapshotAt.Add(every)) {
		return nil, refuse(http.StatusTooManyRequests, "rate limit exceeded: one request per %s", every)
	}
	s := &snapshot{shown: Snapshot{
		ID: a.sim.newUUID(), Name: name, CreatedAt: rfc3339(now), Regions: []string{v.shown.Region.Slug}, MinDiskSize: v.shown.SizeGigabytes,
		SizeGigabytes: float64(v.shown.SizeGigabytes) / 4, ResourceID: v.shown.ID, ResourceType: "volume", Tags: sortedUnique(tags),
	}}
	if err := a.sim.options.Volumes.Devices.Snapshot(v.shown.ID, s.shown.ID); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "%v", err)
	}
	for _, tag := range tags {
		a.ensureTag(tag, now)
	}
	a.snapshots.put(s.shown.ID, s, now)
	a.changeVolume(v, now, func(v *volume) { v.snapshotAt = now })
	return s, nil
}

// loseDroplet detaches the volumes of a droplet that is deleted.
func (a *account) loseDroplet(d *droplet, now time.Time) {
	for _, id := range d.volumes {
		if v, found := a.volumes.get(id); found {
			_ = a.sim.options.Volumes.Devices.Detach(id, d.id) // the machine is gone, and the disk with it
			a.changeVolume(v, now, func(v *volume) { v.shown.DropletIDs = []int{} })
		}
	}
}
