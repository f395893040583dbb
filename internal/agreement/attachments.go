// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// Volumes is what each side has attached to the machines. It belongs to the droplets that were read with it, and stands
// as long as they do.
type Volumes struct {
	finding.Side
	// Nodes has an entry for each Node that has volumes on any side, or the driver.
	Nodes []NodeVolumes
	// IDs are those of the volumes by the names of their PersistentVolumes.
	IDs map[string]string
}

// NodeVolumes is what is attached to one machine.
type NodeVolumes struct {
	Node string
	// Cloud are the IDs that DigitalOcean has attached to its droplet; Unseen reports that the token may not see them.
	Cloud  []string
	Unseen bool
	// Attachments are Kubernetes', those of PersistentVolumes that Volumes.IDs does not have among them.
	Attachments []volumes.Attachment
	// Limit is how many volumes the scheduler may place there (CSINode), 0 if the driver is not registered or names none.
	Limit int
}

// attachments compares the volumes of a Node's machine.
func (j *judge) attachments(n *Node, row *Row) {
	at := slices.IndexFunc(j.Cloud.Volumes.Nodes, func(v NodeVolumes) bool { return v.Node == n.Name })
	if at < 0 || !j.Cloud.Read() || j.droplets[n.Name].Existence != instance.Exists {
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
	var changing, missing, unknown, stuck listed
	foreign, strange := 0, false
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(j.Cloud.Volumes.IDs)) {
		names[j.Cloud.Volumes.IDs[name]] = name
	}
	for _, id := range v.Cloud {
		switch noted := func(a volumes.Attachment) bool { return j.Cloud.Volumes.IDs[a.Volume] == id }; {
		case names[id] == "":
			foreign++
		case !slices.ContainsFunc(v.Attachments, noted):
			unknown.add(names[id], finding.Verdict{})
		}
	}
	for _, a := range v.Attachments {
		id := j.Cloud.Volumes.IDs[a.Volume]
		strange = strange || id == ""
		switch f := a.Judge(j.Now); {
		case f.State == finding.Disagree:
			stuck.add(a.Volume+": "+f.What, f)
		case f.State == finding.Settling:
			changing.add(a.Volume, f)
		case !slices.Contains(v.Cloud, cmp.Or(id, a.Volume)):
			missing.add(a.Volume, f)
		}
	}
	const next = "kubectl mooring volumes"
	for _, found := range []struct {
		state      finding.State
		next, what string
		listed
	}{
		{finding.Disagree, next, "DigitalOcean has volumes attached to it that Kubernetes has not (no VolumeAttachment)",
			unknown},
		{finding.Disagree, next, "Kubernetes calls volumes attached to it that DigitalOcean has not attached", missing},
		{finding.Disagree, next, "volumes that the driver could not attach or detach", stuck},
		{finding.Settling, "the driver attaches and detaches them", "volumes are being attached or detached", changing},
	} {
		if len(found.names) > 0 {
			row.add(found.state, found.since, found.next, "%s: %s", found.what, finding.Some(found.names, 3))
		}
	}
	if !strange {
		room(v, foreign, row)
	}
}

// listed are volumes with one verdict, and since when the first has it, the zero time if that is not known.
type listed struct {
	names []string
	since time.Time
}

func (l *listed) add(name string, v finding.Verdict) {
	l.names = append(l.names, name)
	if v.Since != nil && (l.since.IsZero() || v.Since.Before(l.since)) {
		l.since = *v.Since
	}
}

// room compares how many volumes of Kubernetes there is room for beside foreign ones with what the scheduler knows,
// which is never less than 1.
func room(v NodeVolumes, foreign int, row *Row) {
	if left := max(1, assumed.VolumesPerDroplet-foreign); v.Limit > left && v.Limit <= assumed.VolumesPerDroplet {
		row.add(finding.Disagree, time.Time{},
			"detach those that nobody needs, then delete the volume driver's node plugin Pod there: when it starts it counts again those that are not named pvc-...",
			"%s that no PersistentVolume has, so that there is room for %d of Kubernetes', and its CSINode says %d",
			prose.Plural(foreign, "volume"), left, v.Limit)
	}
}
