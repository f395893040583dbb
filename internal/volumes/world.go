// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Driver is the name of DigitalOcean's CSI driver, and of Mooring's in its place.
const Driver = "dobs.csi.digitalocean.com"

// Description is what the driver writes into the volumes that it makes; DigitalOcean's own driver writes the same.
const Description = "Created by DigitalOcean CSI driver"

// World is what each side said. The order of its lists does not matter. Kubernetes' lists have been read wholly.
type World struct {
	Now time.Time
	// Tag is that of the cluster's objects at DigitalOcean, "" if it is not known.
	Tag         string
	Volumes     []PersistentVolume
	Claims      []Claim
	Pods        []Pod
	Attachments []Attachment
	Nodes       []Node
	// Contents are the VolumeSnapshotContents of the driver, ContentsSide whether they were read.
	Contents     []Content
	ContentsSide finding.Side
	Cloud        Cloud
}

// PersistentVolume is one of the driver.
type PersistentVolume struct {
	Name, ID string
	// Claim is the claim as namespace/name, "" for none; ClaimUID is its UID.
	Claim, ClaimUID string
	// Phase and Reclaim are Kubernetes' words: Bound, Released; Delete, Retain.
	Phase, Reclaim string
	// GiB is the capacity, rounded up.
	GiB      int64
	Deleting bool
	// Since is when it began to be deleted, or else came into its phase; the zero time if that is not known.
	Since time.Time
}

// Claim is a PersistentVolumeClaim of a class of the driver, or one that is bound to a volume of it.
type Claim struct {
	// Name is namespace/name; Volume is the PersistentVolume's name, "" while it waits.
	Name, UID, Volume string
	GiB               int64
	Created           time.Time
	// WaitsForPod reports that its class makes a volume for the first Pod only, and that none is on a machine yet.
	WaitsForPod bool
	// Lost is Kubernetes' word for a claim whose PersistentVolume is gone, or another claim's.
	Lost bool
}

// Pod is one that uses a claim and has not ended.
type Pod struct {
	// Name and Claims are namespace/name; Node is "" while it waits for a machine.
	Name, Node string
	Claims     []string
	Created    time.Time
	Running    bool
}

// Node is a machine.
type Node struct {
	Name    string
	Droplet int
	Ready   bool
}

// Content is a VolumeSnapshotContent.
type Content struct {
	// Handle is the snapshot's ID, "" while it is made; Volume is the ID of the volume that it is made of, "" if that is
	// not known.
	Name, Handle, Volume string
	Created              time.Time
}

// Cloud is what DigitalOcean said.
type Cloud struct {
	finding.Side

	Volumes   []volume.Observed
	Snapshots []volume.Snapshot
	// SnapshotsSide reports whether the snapshots were read.
	SnapshotsSide finding.Side
	// Answers are GETs by ID of volumes that the list lacks.
	Answers map[string]Answer
}

// Answer is what a GET by ID came to: 404, or a failure.
type Answer struct {
	Gone    bool
	Problem string
}
