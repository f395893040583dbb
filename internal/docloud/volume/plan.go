// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Do is what is to be done next.
type Do int

// Steps. After each the world is observed again.
const (
	// Nothing is to be done: what was asked for is there.
	Nothing Do = iota
	// MakeSnapshot copies the source of a clone.
	MakeSnapshot
	// MakeVolume creates the volume.
	MakeVolume
	// Grow resizes the volume to Step.Size.
	Grow
	// DropSnapshot removes the copy that a clone was made of.
	DropSnapshot
	// AttachIt and DetachIt change where the volume is, Step.Droplet.
	AttachIt
	DetachIt
)

// Step is one change, and the object that it is made to.
type Step struct {
	Do       Do
	Volume   Observed
	Snapshot string // ID
	Name     string // of a snapshot to be
	Droplet  int
	Size     int // GiB
}

// Errors, for errors.Is. Each is wrapped in a sentence.
var (
	// ErrConflict is an object of the same name that is not what was asked for.
	ErrConflict = errors.New("exists with other properties")
	// ErrElsewhere is a volume that another droplet has.
	ErrElsewhere = errors.New("attached to another droplet")
	// ErrRange is a size that is not possible.
	ErrRange = errors.New("out of range")
)

// Want is a volume to be.
type Want struct {
	Name, Region string
	Range        Range
	// Snapshot is what to make it of, by ID, and SnapshotSize how large that is at least, in GiB; Clone is a volume to make it of. At most one.
	Snapshot     string
	SnapshotSize int
	Clone        string
}

// CloneSnapshot is the name of the snapshot by way of which a volume becomes a clone. A request that is resumed finds it by that name.
func CloneSnapshot(name string) string { return "clone-" + name }

// Named returns the volume of a name in a region: DigitalOcean's filter of names is not exact. If there are several, which a lost answer can make, it is
// always the oldest, so that retries agree.
func Named(all []Observed, name, region string) (Observed, bool) {
	var found []Observed
	for _, v := range all {
		if v.Name == name && v.Region == region {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return Observed{}, false
	}
	return slices.MinFunc(found, func(a, b Observed) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) }), true
}

// PlanCreate returns the next step to a volume, given those that exist and, for a clone, the snapshots. A volume from a snapshot that is too small yet, since a
// process died before it was resized, is resized.
func PlanCreate(w Want, volumes []Observed, snapshots []Snapshot) (Step, error) {
	source, least := w.source(snapshots)
	size, err := w.size(least)
	if err != nil {
		return Step{}, err
	}
	v, found := Named(volumes, w.Name, w.Region)
	switch {
	case !found && w.Clone != "" && source == "":
		return Step{Do: MakeSnapshot, Name: CloneSnapshot(w.Name)}, nil
	case !found:
		return Step{Do: MakeVolume, Snapshot: source, Size: size}, nil
	case (w.Snapshot != "" || w.Clone != "") && v.Size < size && v.AttachedTo() == 0:
		return Step{Do: Grow, Volume: v, Size: size}, nil
	case !w.Range.Holds(v.Size):
		return Step{}, fmt.Errorf("volume %s of the name %s has %d GiB: it %w, %d bytes are required and the limit is %d (0 is none)",
			v.ID, v.Name, v.Size, ErrConflict, w.Range.Required, w.Range.Limit)
	case w.Clone != "" && source != "":
		return Step{Do: DropSnapshot, Volume: v, Snapshot: source}, nil
	}
	return Step{Do: Nothing, Volume: v}, nil
}

// source returns the snapshot that the volume is made of, empty for none yet, and its size in GiB.
func (w Want) source(snapshots []Snapshot) (id string, least int) {
	if w.Clone != "" {
		for _, s := range snapshots {
			if s.Name == CloneSnapshot(w.Name) && s.Volume == w.Clone {
				return s.ID, s.MinSize
			}
		}
	}
	return w.Snapshot, w.SnapshotSize
}

// size is that of the volume in GiB, which is at least that of what it is made of.
func (w Want) size(least int) (int, error) {
	size, err := w.Range.Pick()
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrRange, err)
	case least <= size:
		return size, nil
	case !w.Range.Holds(least):
		return 0, fmt.Errorf("%w: what it is made of has %d GiB, and the limit is %d bytes", ErrRange, least, w.Range.Limit)
	}
	return least, nil
}

// PlanAttach returns the next step to have a volume on a droplet. A volume that another droplet has is never taken from it.
func PlanAttach(v Observed, droplet int) (Step, error) {
	switch at := v.AttachedTo(); at {
	case droplet:
		return Step{Do: Nothing, Volume: v}, nil
	case 0:
		return Step{Do: AttachIt, Volume: v, Droplet: droplet}, nil
	default:
		return Step{}, fmt.Errorf("volume %s is %w, %d: it is not taken from there. If that droplet is off or lost, give its Node the taint "+
			"node.kubernetes.io/out-of-service:NoExecute, and Kubernetes detaches the volume", v.Name, ErrElsewhere, at)
	}
}

// PlanDetach returns the next step to take a volume from a droplet, or from whichever has it if droplet is 0. A volume that another one has is left there.
func PlanDetach(v Observed, droplet int) Step {
	at := v.AttachedTo()
	if at == 0 || droplet != 0 && at != droplet {
		return Step{Do: Nothing, Volume: v}
	}
	return Step{Do: DetachIt, Volume: v, Droplet: at}
}

// PlanExpand returns the next step to a volume of at least a size.
func PlanExpand(v Observed, r Range) (Step, error) {
	if r.Required == 0 && r.Limit == 0 {
		return Step{}, fmt.Errorf("%w: no size is given", ErrRange)
	}
	size, err := r.Pick()
	if err != nil {
		return Step{}, fmt.Errorf("%w: %w", ErrRange, err)
	}
	if r.Limit > 0 && v.Bytes() > r.Limit {
		return Step{}, fmt.Errorf("%w: volume %s has %d GiB, and a volume never shrinks to the limit of %d bytes", ErrRange, v.Name, v.Size, r.Limit)
	}
	if v.Size >= size {
		return Step{Do: Nothing, Volume: v}, nil
	}
	return Step{Do: Grow, Volume: v, Size: size}, nil
}

// FindSnapshot returns the snapshot of a name. One of another volume is a conflict.
func FindSnapshot(all []Snapshot, name, of string) (Snapshot, bool, error) {
	for _, s := range all {
		if s.Name != name {
			continue
		}
		if s.Volume != of {
			return Snapshot{}, false, fmt.Errorf("snapshot %s of the name %s %w: it is of volume %s, not of %s", s.ID, name, ErrConflict, s.Volume, of)
		}
		return s, true, nil
	}
	return Snapshot{}, false, nil
}

// NextSnapshot is when DigitalOcean takes another snapshot of a volume, given those that it has and when one was refused. It reports false if that is not
// known: a snapshot that was deleted meanwhile counts at DigitalOcean and is not seen here.
func NextSnapshot(all []Snapshot, of string, refused time.Time) (time.Time, bool) {
	var last time.Time
	for _, s := range all {
		if s.Volume == of && s.Created.After(last) {
			last = s.Created
		}
	}
	next := last.Add(assumed.SnapshotInterval)
	return next, next.After(refused)
}
