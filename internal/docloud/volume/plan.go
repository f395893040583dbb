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

// Step is what is to be done next for a volume to be. After each the world is observed again. The set of steps is closed: only the types below
// implement it.
//
//sumtype:decl
type Step interface{ step() }

type (
	// Found is nothing to do: the volume is there.
	Found struct{ Volume Observed }
	// MakeSnapshot copies the source of a clone under a name.
	MakeSnapshot struct{ Name string }
	// MakeVolume creates the volume of a size in GiB, of the snapshot of an ID, or empty.
	MakeVolume struct {
		Snapshot string
		Size     int
	}
	// Grow resizes the volume to a size in GiB.
	Grow struct {
		Volume Observed
		Size   int
	}
	// DropSnapshot removes the copy that a clone was made of, by its ID.
	DropSnapshot struct {
		Volume   Observed
		Snapshot string
	}
)

func (Found) step()        {}
func (MakeSnapshot) step() {}
func (MakeVolume) step()   {}
func (Grow) step()         {}
func (DropSnapshot) step() {}

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
		return nil, err
	}
	v, found := Named(volumes, w.Name, w.Region)
	switch {
	case !found && w.Clone != "" && source == "":
		return MakeSnapshot{CloneSnapshot(w.Name)}, nil
	case !found:
		return MakeVolume{source, size}, nil
	case (w.Snapshot != "" || w.Clone != "") && v.Size < size && v.AttachedTo() == 0:
		return Grow{v, size}, nil
	case !w.Range.Holds(v.Size):
		return nil, fmt.Errorf("volume %s of the name %s has %d GiB: it %w, %d bytes are required and the limit is %d (0 is none)",
			v.ID, v.Name, v.Size, ErrConflict, w.Range.Required, w.Range.Limit)
	case w.Clone != "" && source != "":
		return DropSnapshot{v, source}, nil
	}
	return Found{v}, nil
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

// Attaches reports whether a volume has to be attached for a droplet to have it. A volume that another droplet has is never taken from it.
func Attaches(v Observed, droplet int) (bool, error) {
	switch at := v.AttachedTo(); at {
	case droplet, 0:
		return at == 0, nil
	default:
		return false, fmt.Errorf("volume %s is %w, %d: it is not taken from there. If that droplet is off or lost, give its Node the taint "+
			"node.kubernetes.io/out-of-service:NoExecute, and Kubernetes detaches the volume", v.Name, ErrElsewhere, at)
	}
}

// DetachesFrom returns which droplet has to lose a volume for a droplet not to have it, or none if droplet is 0; 0 for none. A volume that another one has
// is left there.
func DetachesFrom(v Observed, droplet int) int {
	if at := v.AttachedTo(); droplet == 0 || at == droplet {
		return at
	}
	return 0
}

// GrowsTo returns the size in GiB to which a volume has to be resized for it to have at least a size, 0 if it has.
func GrowsTo(v Observed, r Range) (int, error) {
	if r.Required == 0 && r.Limit == 0 {
		return 0, fmt.Errorf("%w: no size is given", ErrRange)
	}
	size, err := r.Pick()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrRange, err)
	}
	if r.Limit > 0 && v.Bytes() > r.Limit {
		return 0, fmt.Errorf("%w: volume %s has %d GiB, and a volume never shrinks to the limit of %d bytes", ErrRange, v.Name, v.Size, r.Limit)
	}
	if v.Size >= size {
		return 0, nil
	}
	return size, nil
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
