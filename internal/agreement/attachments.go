// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// mostAttached is how many volumes a droplet can have at DigitalOcean.
const mostAttached = 7

// Volumes is what each side has attached to the machines. It belongs to the droplets that were read with it, and stands as long as they do.
type Volumes struct {
	finding.Side
	// Nodes has an entry for each Node that has volumes on any side, or the driver.
	Nodes []NodeVolumes
	// Names are the PersistentVolumes' names by the IDs of their volumes.
	Names map[string]string
}

// NodeVolumes is what is attached to one machine.
type NodeVolumes struct {
	Node string
	// Cloud are the IDs that DigitalOcean has attached to its droplet; Unseen reports that the token may not see them.
	Cloud  []string
	Unseen bool
	// Attachments are Kubernetes'.
	Attachments []Attachment
	// Limit is how many volumes the scheduler may place there (CSINode), 0 if the driver is not registered or names none.
	Limit int
}

// Attachment is a VolumeAttachment of the driver.
type Attachment struct {
	// ID is the volume's, or the name of its PersistentVolume if Volumes.Names does not have that.
	ID string
	// Attached is Kubernetes' word before DigitalOcean was queried, Changing reports that it was another one before than after, or is about to be.
	Attached, Changing bool
	// Problem is what the driver's last attempt to attach or detach it came to, if that failed.
	Problem string
}

// attachments compares the volumes of a Node's machine.
func (j *judge) attachments(n *Node, row *Row) {
	at := slices.IndexFunc(j.Cloud.Volumes.Nodes, func(v NodeVolumes) bool { return v.Node == n.Name })
	if at < 0 || !j.Cloud.Read() || j.droplets[n.Name].Existence != Exists {
		return
	}
	v := j.Cloud.Volumes.Nodes[at]
	switch side := j.Cloud.Volumes.Side; {
	case side.NotAsked != "":
		return
	case side.Problem != "":
		if len(v.Cloud) > 0 {
			row.doubt("it has volumes, and what Kubernetes has attached could not be read: %s", side.Problem)
		}
		return
	case v.Unseen:
		if len(v.Attachments) > 0 {
			row.doubt("it has volumes, and the token may not see what DigitalOcean has attached (scope block_storage:read)")
		}
		return
	}
	row.Volumes = fmt.Sprint(len(v.Cloud))
	if v.Limit > 0 {
		row.Volumes = fmt.Sprintf("%d of %d", len(v.Cloud), v.Limit)
	}
	j.attached(v, row)
}

// attached compares one machine's volumes one by one.
func (j *judge) attached(v NodeVolumes, row *Row) {
	by := map[string]Attachment{}
	var changing, missing, unknown, stuck []string
	foreign, strange := 0, false
	for _, a := range v.Attachments {
		by[a.ID] = a
		strange = strange || j.Cloud.Volumes.Names[a.ID] == ""
		switch there := slices.Contains(v.Cloud, a.ID); {
		case a.Problem != "":
			stuck = append(stuck, j.volume(a.ID)+": "+a.Problem)
		case a.Changing || !a.Attached:
			changing = append(changing, j.volume(a.ID))
		case !there:
			missing = append(missing, j.volume(a.ID))
		}
	}
	for _, id := range v.Cloud {
		switch _, noted := by[id]; {
		case noted:
		case j.Cloud.Volumes.Names[id] != "":
			unknown = append(unknown, j.volume(id))
		default:
			foreign++
		}
	}
	const next = "kubectl mooring volumes"
	for _, found := range []struct {
		state      finding.State
		next, what string
		volumes    []string
	}{
		{finding.Disagree, next, "DigitalOcean has volumes attached to it that Kubernetes has not (no VolumeAttachment)", unknown},
		{finding.Disagree, next, "Kubernetes calls volumes attached to it that DigitalOcean has not attached", missing},
		{finding.Disagree, next, "volumes that the driver could not attach or detach", stuck},
		{finding.Settling, "the driver attaches and detaches them", "volumes are being attached or detached", changing},
	} {
		if len(found.volumes) > 0 {
			row.add(found.state, time.Time{}, found.next, "%s: %s", found.what, finding.Some(found.volumes, 3))
		}
	}
	if !strange {
		room(v, foreign, row)
	}
}

// room compares how many volumes of Kubernetes there is room for beside foreign ones with what the scheduler knows, which is never less than 1.
func room(v NodeVolumes, foreign int, row *Row) {
	if left := max(1, mostAttached-foreign); v.Limit > left && v.Limit <= mostAttached {
		row.add(finding.Disagree, time.Time{},
			"detach those that nobody needs, then delete the volume driver's node plugin Pod there: when it starts it counts again those that are not named pvc-...",
			"%s that no PersistentVolume has, so that there is room for %d of Kubernetes', and its CSINode says %d",
			prose.Plural(foreign, "volume"), left, v.Limit)
	}
}

// volume is a volume for people: its PersistentVolume's name, if it has one.
func (j *judge) volume(id string) string { return cmp.Or(j.Cloud.Volumes.Names[id], id) }
