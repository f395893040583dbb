// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// TestSizesAreRoundedUp: 1.5 GiB is 2, and what is made is within the range or refused.
func TestSizesAreRoundedUp(t *testing.T) {
	t.Parallel()
	for r, want := range map[Range]int{
		{}: 16, {Required: 3 * GiB / 2}: 2, {Required: 1}: 1, {Limit: 5 * GiB}: 5, {Required: GiB, Limit: GiB}: 1, {Required: 20 << 40}: 20 << 10,
		{Required: GiB + 1, Limit: 2*GiB - 1}: 0, {Required: math.MaxInt64}: 0, {Required: math.MaxInt64, Limit: math.MaxInt64}: 0, {Limit: GiB - 1}: 0, {Required: 2 * GiB, Limit: GiB}: 0, {Required: -1}: 0,
	} {
		if got, err := r.Pick(); got != want || (err == nil) != (want > 0) {
			t.Errorf("%+v: %d, %v; want %d", r, got, err, want)
		}
	}
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		r := Range{rapid.Int64Range(0, 20000*GiB).Draw(t, "required"), rapid.Int64Range(0, 20000*GiB).Draw(t, "limit")}
		if size, err := r.Pick(); err == nil && (!r.Holds(size) || size < assumed.VolumeSizeLeast) {
			t.Fatalf("%+v: %d GiB", r, size)
		}
	})
}

// TestARetryIsAnsweredByCompatibility: the volume that an earlier request made is found again by limits, not by an equal size.
func TestARetryIsAnsweredByCompatibility(t *testing.T) {
	t.Parallel()
	have := []Observed{{ID: "b", Name: "pvc-1", Region: "nyc1", Size: 2}, {ID: "c", Name: "pvc-11", Region: "nyc1", Size: 9}, {ID: "d", Name: "pvc-1", Region: "fra1", Size: 9}}
	step, err := PlanCreate(Want{Name: "pvc-1", Region: "nyc1", Range: Range{Required: 3 * GiB / 2}}, have, nil)
	if found, ok := step.(Found); err != nil || !ok || found.Volume.ID != "b" {
		t.Errorf("%+v, %v", step, err)
	}
	if _, err := PlanCreate(Want{Name: "pvc-1", Region: "nyc1", Range: Range{Required: 3 * GiB}}, have, nil); !errors.Is(err, ErrConflict) {
		t.Errorf("a volume that is too small: %v", err)
	}
}

// TestOfTwoVolumesOfOneNameItIsAlwaysTheOldest in whatever order they are listed.
func TestOfTwoVolumesOfOneNameItIsAlwaysTheOldest(t *testing.T) {
	t.Parallel()
	old, later := Observed{ID: "z", Name: "a", Created: time.Unix(1, 0)}, Observed{ID: "a", Name: "a", Created: time.Unix(2, 0)}
	for _, all := range [][]Observed{{old, later}, {later, old}} {
		if v, _ := Named(all, "a", ""); v.ID != "z" {
			t.Errorf("%v: %s", all, v.ID)
		}
	}
}

// TestACreationConvergesFromEveryPrefix: a volume, a restore to a larger size and a clone are made in few steps, wherever a process died between them.
func TestACreationConvergesFromEveryPrefix(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		w := Want{Name: "pvc-1", Region: "nyc1", Range: Range{Required: rapid.Int64Range(0, 40*GiB).Draw(t, "required")}}
		switch rapid.SampledFrom([]string{"new", "restore", "clone"}).Draw(t, "kind") {
		case "restore":
			w.Snapshot, w.SnapshotSize = "s", 3
		case "clone":
			w.Clone, w.SnapshotSize = "v", 3
		}
		var volumes []Observed
		var snapshots []Snapshot
		for range 6 {
			step, err := PlanCreate(w, volumes, snapshots)
			if err != nil {
				t.Fatal(err)
			}
			again, err := PlanCreate(w, volumes, snapshots)
			if err != nil || !reflect.DeepEqual(again, step) {
				t.Fatalf("the same world gives %v and %v", step, again)
			}
			switch step := step.(type) {
			case Found:
				if !w.Range.Holds(volumes[0].Size) || volumes[0].Size < w.SnapshotSize || len(snapshots) > 0 {
					t.Fatalf("it ends with %v and %v", volumes, snapshots)
				}
				return
			case MakeSnapshot:
				snapshots = append(snapshots, Snapshot{ID: "t", Name: step.Name, Volume: w.Clone, MinSize: 3})
			case MakeVolume:
				size := step.Size
				if step.Snapshot != "" {
					size = 3
				}
				volumes = append(volumes, Observed{ID: "n", Name: w.Name, Region: w.Region, Size: size})
			case Grow:
				volumes[0].Size = step.Size
			case DropSnapshot:
				snapshots = nil
			}
		}
		t.Fatal("it does not end")
	})
}

// TestAVolumeIsNeverTakenFromAnotherDroplet: neither attached away from it, nor detached where it is not.
func TestAVolumeIsNeverTakenFromAnotherDroplet(t *testing.T) {
	t.Parallel()
	v := Observed{Name: "pvc-1", Droplets: []int{1}}
	if _, err := Attaches(v, 2); !errors.Is(err, ErrElsewhere) {
		t.Errorf("attached elsewhere: %v", err)
	}
	if at := DetachesFrom(v, 2); at != 0 {
		t.Errorf("detached from another droplet: %d", at)
	}
	if at := DetachesFrom(v, 0); at != 1 {
		t.Errorf("without a node it is detached from whichever has it: %d", at)
	}
	if attaches, err := Attaches(v, 1); err != nil || attaches {
		t.Errorf("where it is: %t, %v", attaches, err)
	}
}

// TestNames: csi-provisioner's stay as they are, every other becomes one that DigitalOcean takes, always the same.
func TestNames(t *testing.T) {
	t.Parallel()
	if got := Name("pvc-0b1c"); got != "pvc-0b1c" {
		t.Error(got)
	}
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		if got := Name(name); !possible(got) || got != Name(name) {
			t.Fatalf("%q becomes %q", name, got)
		}
	})
	if Name("Data") == Name("data_") {
		t.Error("two names become one")
	}
}
