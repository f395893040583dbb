// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// GiB is the unit of DigitalOcean's volumes, in bytes.
const GiB int64 = 1 << 30

// Default is the size in GiB of a volume for which none is requested, as csi-digitalocean has it.
const Default = 16

// Observed is a volume as DigitalOcean shows it.
type Observed struct {
	ID, Name, Region, Description string
	// Size is in GiB.
	Size int
	// Droplets are the IDs of the droplets that it is attached to; DigitalOcean never has more than one.
	Droplets []int
	Tags     []string
	Created  time.Time
	// History is what its actions show, where they were read with it.
	History History
}

// AttachedTo returns the droplet that has the volume, 0 for none.
func (o Observed) AttachedTo() int {
	if len(o.Droplets) == 0 {
		return 0
	}
	return o.Droplets[0]
}

// Bytes is the volume's size in bytes.
func (o Observed) Bytes() int64 { return int64(o.Size) * GiB }

// Snapshot is a snapshot of a volume.
type Snapshot struct {
	ID, Name, Volume string
	Regions          []string
	// MinSize is the size of the volume that was copied, in GiB: what is made of it is at least as large.
	MinSize int
	// Size is what is billed, in GiB; Tags are nil if they were not shown.
	Size    float64
	Tags    []string
	Created time.Time
}

// ActionStatus is how far an action has come.
type ActionStatus string

// The states of actions.
const (
	InProgress ActionStatus = assumed.ActionInProgress
	Completed  ActionStatus = assumed.ActionCompleted
	Errored    ActionStatus = assumed.ActionErrored
)

// ActionKind is what an action does.
type ActionKind string

// The kinds of actions. They are values of a metric's label and MUST NOT change. Responses may name them otherwise: [HistoryOf].
const (
	Attach ActionKind = assumed.ActionAttach
	Detach ActionKind = assumed.ActionDetach
	Resize ActionKind = assumed.ActionResize
)

// Action is a change of a volume that DigitalOcean has accepted.
type Action struct {
	ID     int
	Status ActionStatus
	Kind   ActionKind
	// Began is when, by DigitalOcean's clock, in whole seconds; zero if it is not known.
	Began time.Time
}

// Request is what is asked of DigitalOcean to create a volume.
type Request struct {
	Name, Region, Description, Snapshot string
	Size                                int // GiB
	Tags                                []string
}
