// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/volumes"
)

var (
	update = flag.Bool("update", false, "rewrite golden files")
	now    = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
)

// well is a cluster with one volume that is in use, and all sides agree.
func well() volumes.World {
	return volumes.World{
		Now:     now,
		Volumes: []volumes.PersistentVolume{{Name: "pvc-1", ID: "v1", Claim: "shop/data", ClaimUID: "u1", Phase: "Bound", Reclaim: "Delete", GiB: 10}},
		Claims:  []volumes.Claim{{Name: "shop/data", UID: "u1", Volume: "pvc-1", GiB: 10, Created: now.Add(-time.Hour)}},
		Pods:    []volumes.Pod{{Name: "shop/db-0", Node: "worker-1", Claims: []string{"shop/data"}, Created: now.Add(-time.Hour), Running: true}},
		Attachments: []volumes.Attachment{
			{Volume: "pvc-1", Node: "worker-1", Attached: true},
		},
		Nodes: []volumes.Node{{Name: "worker-1", Droplet: 101, Ready: true}, {Name: "worker-2", Droplet: 102, Ready: true}},
		Cloud: volumes.Cloud{
			Volumes: []volume.Observed{{ID: "v1", Name: "pvc-1", Description: volumes.Description, Size: 10, Droplets: []int{101}, Tags: []string{"k8s:ours"}, Created: now.Add(-time.Hour)}},
			Answers: map[string]volumes.Answer{},
		},
	}
}

func (c change) apply() volumes.World {
	w := well()
	c(&w)
	return w
}

type change func(w *volumes.World)

// Each way in which the sides differ is one finding, with its verdict and the state of the volume.
func TestFindings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  change
		state   string
		verdict finding.State
		says    string
	}{
		"all is well":            {func(*volumes.World) {}, volumes.InUse, finding.Agree, ""},
		"nobody was asked":       {func(w *volumes.World) { w.Cloud = volumes.Cloud{Side: finding.Side{NotAsked: "there is no token"}} }, volumes.InUse, finding.OneSide, ""},
		"it cannot be read":      {func(w *volumes.World) { w.Cloud = volumes.Cloud{Side: finding.Side{Problem: "401"}} }, volumes.InUse, finding.OneSide, ""},
		"no Pod, idle":           {func(w *volumes.World) { w.Pods, w.Attachments, w.Cloud.Volumes[0].Droplets = nil, nil, nil }, volumes.Idle, finding.Agree, ""},
		"attached without a Pod": {func(w *volumes.World) { w.Pods = nil }, volumes.Attached, finding.Disagree, "it is attached to worker-1, which has no Pod of it"},
		"being detached":         {func(w *volumes.World) { w.Pods, w.Attachments[0].Deleting = nil, true }, volumes.Attached, finding.Settling, "being detached from worker-1"},
		"attached to a machine that is down": {func(w *volumes.World) { w.Pods, w.Attachments[0].Deleting, w.Nodes[0].Ready = nil, true, false }, volumes.Attached, finding.Disagree,
			"worker-1, which is not ready and has no Pod of it"},
		"attached to somebody else's droplet": {func(w *volumes.World) { w.Cloud.Volumes[0].Droplets = []int{999} }, volumes.InUse, finding.Disagree, "droplet 999, which is not a machine of this cluster"},
		"attached by hand":                    {func(w *volumes.World) { w.Attachments = nil }, volumes.InUse, finding.Disagree, "Kubernetes does not know (no VolumeAttachment)"},
		"the Pod is elsewhere": {func(w *volumes.World) { w.Pods[0].Node, w.Pods[0].Running = "worker-2", false }, volumes.InUse, finding.Disagree,
			"Pod shop/db-0 is on worker-2, and the volume is attached to worker-1"},
		"not attached yet": {func(w *volumes.World) {
			w.Pods[0].Running, w.Pods[0].Created, w.Cloud.Volumes[0].Droplets = false, now.Add(-time.Minute), nil
		}, volumes.InUse, finding.Settling, "waits for it on worker-1"},
		"never attached":        {func(w *volumes.World) { w.Cloud.Volumes[0].Droplets = nil }, volumes.InUse, finding.Disagree, "attached to nothing"},
		"it is not attached":    {func(w *volumes.World) { w.Pods, w.Cloud.Volumes[0].Droplets = nil, nil }, volumes.Attached, finding.Disagree, "Kubernetes reports it as attached to worker-1, and DigitalOcean as not attached"},
		"it cannot be attached": {func(w *volumes.World) { w.Attachments[0].Problem = "it cannot be attached: 422" }, volumes.InUse, finding.Disagree, "node worker-1: it cannot be attached: 422"},
		"it is still not attached": {func(w *volumes.World) {
			w.Attachments[0].Attached, w.Attachments[0].Since, w.Cloud.Volumes[0].Droplets = false, now.Add(-time.Hour), nil
		}, volumes.InUse, finding.Disagree, "node worker-1: it is still not attached"},
		"it is still not detached": {func(w *volumes.World) {
			w.Pods, w.Attachments[0].Deleting, w.Attachments[0].Since = nil, true, now.Add(-10*time.Minute)
		}, volumes.Attached, finding.Disagree, "node worker-1: it is still not detached"},
		"being detached, not long": {func(w *volumes.World) {
			w.Pods, w.Attachments[0].Deleting, w.Attachments[0].Since = nil, true, now.Add(-9*time.Minute)
		}, volumes.Attached, finding.Settling, "being detached from worker-1"},
		"gone by 404": {func(w *volumes.World) { lose(w, volumes.Answer{Gone: true}, true) }, volumes.Gone, finding.Disagree, "its volume is gone: DigitalOcean responds with 404"},
		"a list lacks it": {func(w *volumes.World) {
			lose(w, volumes.Answer{}, true)
			delete(w.Cloud.Answers, "v1")
		}, volumes.InUse, finding.Unknown, "was not read by ID"},
		"reading it fails":   {func(w *volumes.World) { lose(w, volumes.Answer{Problem: "503"}, true) }, volumes.InUse, finding.Unknown, "failed: 503"},
		"nothing is visible": {func(w *volumes.World) { lose(w, volumes.Answer{Gone: true}, false) }, volumes.InUse, finding.Unknown, "none of the cluster's 2 volumes is visible"},
		"the only one is not visible": {func(w *volumes.World) { w.Cloud.Volumes, w.Cloud.Answers["v1"] = nil, volumes.Answer{Gone: true} }, volumes.InUse, finding.Unknown,
			"the cluster's one volume is not visible to this token"},
		"attached in between": {func(w *volumes.World) {
			again := w.Attachments
			w.Attachments = nil
			w.Again(again)
		}, volumes.InUse, finding.Agree, ""},
		"attached in between for a Pod that was not read": {func(w *volumes.World) {
			again := w.Attachments
			w.Attachments, w.Pods = nil, nil
			w.Again(again)
		}, volumes.Attached, finding.Settling, "it has just been attached to worker-1"},
		"attached since DigitalOcean was read": {func(w *volumes.World) {
			again := w.Attachments
			w.Attachments, w.Pods, w.Cloud.Volumes[0].Droplets = nil, nil, nil
			w.Again(again)
		}, volumes.Attached, finding.Agree, ""},
		"detached in between": {func(w *volumes.World) {
			w.Pods, w.Attachments[0].Deleting = nil, true
			w.Again(nil)
		}, volumes.Attached, finding.Settling, "being detached from worker-1"},
		"its claim is deleted and it is kept": {func(w *volumes.World) {
			w.Volumes[0].Phase, w.Volumes[0].Reclaim, w.Claims, w.Pods = "Released", "Retain", nil, nil
		}, volumes.Released, finding.Disagree,
			"no claim uses it: its claim is deleted"},
		"its claim is deleted and it goes": {func(w *volumes.World) {
			w.Volumes[0].Phase, w.Claims, w.Pods, w.Attachments, w.Cloud.Volumes[0].Droplets = "Released", nil, nil, nil, nil
		}, volumes.Released, finding.Settling, "its claim is deleted"},
		"its claim is deleted and it does not go": {func(w *volumes.World) {
			w.Volumes[0].Phase, w.Volumes[0].Since, w.Claims, w.Pods, w.Attachments, w.Cloud.Volumes[0].Droplets = "Released", now.Add(-time.Hour), nil, nil, nil, nil
		}, volumes.Released, finding.Disagree, "it has not been deleted for 60m"},
		"its claim has just been deleted": {func(w *volumes.World) {
			w.Volumes[0].Phase, w.Volumes[0].Since, w.Claims, w.Pods, w.Attachments, w.Cloud.Volumes[0].Droplets = "Released", now.Add(-time.Minute), nil, nil, nil, nil
		}, volumes.Released, finding.Settling, "its claim is deleted"},
		"it is being deleted for long": {func(w *volumes.World) {
			w.Volumes[0].Deleting, w.Volumes[0].Phase, w.Volumes[0].Since, w.Claims, w.Pods, w.Attachments = true, "Released", now.Add(-time.Hour), nil, nil, nil
		}, volumes.Released, finding.Disagree, "it has not been deleted for 60m"},
		"it is being deleted with its claim there": {func(w *volumes.World) { w.Volumes[0].Deleting, w.Volumes[0].Since = true, now.Add(-time.Hour) }, volumes.Released,
			finding.Disagree, "the PersistentVolume is being deleted, and waits for its claim to go"},
		"its claim is another one": {func(w *volumes.World) { w.Claims[0].UID = "u2" }, volumes.InUse, finding.Disagree, "its claim shop/data does not exist, or is another one"},
		"it never had a claim": {func(w *volumes.World) {
			w.Volumes[0].Claim, w.Claims, w.Pods, w.Attachments, w.Cloud.Volumes[0].Droplets = "", nil, nil, nil, nil
		}, volumes.Released, finding.Disagree, "no claim uses it"},
		"it is deleted at this time": {func(w *volumes.World) {
			w.Volumes[0].Deleting, w.Pods, w.Attachments, w.Cloud.Volumes = true, nil, nil, nil
		}, volumes.Released, finding.Settling, "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := volumes.Compare(test.change.apply())
			i := slices.IndexFunc(r.Volumes, func(r volumes.Row) bool { return r.ID == "v1" })
			if i < 0 {
				t.Fatalf("%+v", r)
			}
			row := r.Volumes[i]
			var said []string
			for _, f := range row.Findings {
				said = append(said, f.What)
			}
			if row.State != test.state || row.Verdict != test.verdict || !strings.Contains(strings.Join(said, "; "), test.says) || test.says == "" && len(said) > 0 {
				t.Errorf("%s, %s: %q", row.State, row.Verdict, said)
			}
		})
	}
}

// lose takes the volume out of the list; another one may stay visible.
func lose(w *volumes.World, answer volumes.Answer, visible bool) {
	w.Cloud.Volumes[0].ID, w.Cloud.Answers["v1"] = "v2", answer
	w.Volumes = append(w.Volumes, volumes.PersistentVolume{Name: "pvc-2", ID: "v2", Claim: "shop/other", Phase: "Bound", GiB: 1})
	w.Claims = append(w.Claims, volumes.Claim{Name: "shop/other", Volume: "pvc-2"})
	if !visible {
		w.Cloud.Volumes = nil
	}
}

// What no PersistentVolume has is this cluster's by its tag or its machine; without a tag nobody knows; with another cluster's tag it is
// counted alone.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	old := now.Add(-time.Hour)
	for name, test := range map[string]struct {
		volume  volume.Observed
		verdict finding.State // "" for another's
	}{
		"the cluster's tag":    {volume.Observed{Name: "pvc-x", Description: volumes.Description, Tags: []string{"k8s:ours"}, Created: old}, finding.Disagree},
		"on a machine of it":   {volume.Observed{Name: "data", Droplets: []int{102}, Created: old}, finding.Disagree},
		"no tag":               {volume.Observed{Name: "pvc-x", Description: volumes.Description, Created: old}, finding.Unknown},
		"just made":            {volume.Observed{Name: "pvc-x", Description: volumes.Description, Created: now.Add(-time.Minute)}, finding.Settling},
		"another cluster's":    {volume.Observed{Name: "pvc-x", Description: volumes.Description, Tags: []string{"k8s:theirs"}, Created: old}, ""},
		"not of a driver":      {volume.Observed{Name: "backups", Created: old}, ""},
		"on another's droplet": {volume.Observed{Name: "pvc-x", Description: volumes.Description, Droplets: []int{999}, Created: old}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := well()
			test.volume.ID, test.volume.Size = "x", 5
			w.Cloud.Volumes = append(w.Cloud.Volumes, test.volume)
			r := volumes.Compare(w)
			var got finding.State
			for _, v := range r.Volumes {
				if v.ID == "x" {
					got = v.Verdict
				}
			}
			others := map[bool]int{true: 1}[test.verdict == ""]
			if got != test.verdict || r.Totals.Others != others || r.Totals.Claimed != 10 || r.Totals.Unclaimed != int64(5-5*others) {
				t.Errorf("%q, %+v", got, r.Totals)
			}
		})
	}
}

// A claim whose PersistentVolume is gone has lost its data, as far as Kubernetes goes.
func TestLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change change
		want   finding.Verdict // the zero value for no row of its own
	}{
		"gone": {func(*volumes.World) {}, finding.Verdict{
			State: finding.Disagree, What: "its PersistentVolume pvc-9 is gone", Next: "restore it from a snapshot or a backup",
		}},
		"gone from Kubernetes alone": {func(w *volumes.World) {
			w.Cloud.Volumes = append(w.Cloud.Volumes, volume.Observed{ID: "v9", Name: "pvc-9"})
		}, finding.Verdict{
			State: finding.Disagree, What: "its PersistentVolume pvc-9 is gone",
			Next: "DigitalOcean still has volume v9 of that name: create its PersistentVolume again, and then the claim",
		}},
		"nobody was asked": {func(w *volumes.World) { w.Cloud = volumes.Cloud{Side: finding.Side{NotAsked: "there is no token"}} }, finding.Verdict{
			State: finding.Disagree, What: "its PersistentVolume pvc-9 is gone", Next: "restore it from a snapshot or a backup",
		}},
		"another claim's": {func(w *volumes.World) { w.Claims[1].Volume = "pvc-1" }, finding.Verdict{
			State: finding.Disagree, What: "its PersistentVolume pvc-1 is another claim's", Next: "create the claim again",
		}},
		"it exists again": {func(w *volumes.World) {
			w.Volumes = append(w.Volumes, volumes.PersistentVolume{Name: "pvc-9", ID: "v1", Claim: "shop/lost", Phase: "Bound"})
		}, finding.Verdict{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := well()
			w.Claims = append(w.Claims, volumes.Claim{Name: "shop/lost", Volume: "pvc-9", GiB: 3, Lost: true, Created: now.Add(-time.Hour)})
			w.Pods = append(w.Pods, volumes.Pod{Name: "shop/db-1", Node: "worker-2", Claims: []string{"shop/lost"}, Created: now.Add(-time.Hour)})
			test.change(&w)
			r := volumes.Compare(w)
			rows := slices.DeleteFunc(slices.Clone(r.Volumes), func(r volumes.Row) bool { return r.Claim != "shop/lost" })
			if len(rows) != 1 || !slices.Equal(rows[0].Pods, []string{"shop/db-1"}) {
				t.Fatalf("%+v", r)
			}
			if test.want == (finding.Verdict{}) {
				if rows[0].ID != "v1" {
					t.Errorf("%+v", rows[0])
				}
				return
			}
			if got := rows[0]; got.State != volumes.Gone || got.Verdict != finding.Disagree || !slices.Equal(got.Findings, []finding.Verdict{test.want}) || !r.NeedsAttention() {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Snapshots of the cluster's volumes that no VolumeSnapshotContent has are named; what was not read is not fine.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	w := well()
	w.Cloud.Snapshots = []volume.Snapshot{{ID: "s1", Name: "kept", Volume: "v1", MinSize: 10}, {ID: "s2", Name: "orphan", Volume: "v1", MinSize: 10}, {ID: "s3", Name: "theirs", Volume: "v9", MinSize: 1}}
	w.Contents = []volumes.Content{{Name: "c1", Handle: "s1"}}
	r := volumes.Compare(w)
	if len(r.Snapshots) != 1 || r.Snapshots[0].ID != "s2" || r.Totals.Snapshots != 20 || !r.NeedsAttention() {
		t.Errorf("%+v", r)
	}
	for volume, verdict := range map[string]finding.State{"": finding.Settling, "v1": finding.Settling, "v2": finding.Disagree} {
		w.Contents = []volumes.Content{{Name: "c1", Handle: "s1"}, {Name: "c2", Volume: volume, Created: now.Add(-time.Minute)}}
		if r := volumes.Compare(w); len(r.Snapshots) != 1 || r.Snapshots[0].Verdict != verdict || r.NeedsAttention() != (verdict == finding.Disagree) {
			t.Errorf("one is made of %q: %+v", volume, r)
		}
	}
	w.Contents[1] = volumes.Content{Name: "c2", Volume: "v1", Created: now.Add(-time.Hour)} // it is stuck
	if r := volumes.Compare(w); r.Snapshots[0].Verdict != finding.Disagree || r.Snapshots[0].Finding.What !=
		"no VolumeSnapshotContent has it; it may be the one that is made for VolumeSnapshotContent c2, which has none yet" || !strings.HasPrefix(r.Snapshots[0].Finding.Next, "kubectl describe volumesnapshotcontent c2; ") {
		t.Errorf("a content is stuck: %+v", r.Snapshots)
	}
	w.Contents, w.Cloud.Snapshots[1].Created = w.Contents[:1], now.Add(-time.Minute)
	if r := volumes.Compare(w); len(r.Snapshots) != 1 || r.Snapshots[0].Verdict != finding.Settling {
		t.Errorf("just made: %+v", r)
	}
	w.ContentsSide.Problem = "forbidden"
	if r := volumes.Compare(w); len(r.Snapshots) != 0 || !r.NeedsAttention() || !slices.Contains(r.NotRead, "VolumeSnapshotContents: forbidden") {
		t.Errorf("contents are not readable: %+v", r)
	}
	w.ContentsSide = finding.Side{}
	w.Cloud.SnapshotsSide.Problem = "403"
	if r := volumes.Compare(w); r.Totals.Snapshots != -1 || !r.NeedsAttention() {
		t.Errorf("snapshots are not readable: %+v", r)
	}
}

// A snapshot with the cluster's tag is the cluster's although its volume is gone; that of a clone belongs to the claim that waits for the clone.
func TestSnapshotsOfClones(t *testing.T) {
	t.Parallel()
	w := well()
	w.Tag = "k8s:mine"
	w.Cloud.Snapshots = []volume.Snapshot{{ID: "s1", Name: "clone-pvc-u9", Volume: "v9", Tags: []string{"k8s:mine"}}, {ID: "s2", Name: "clone-pvc-u9", Volume: "v9", Tags: []string{"k8s:theirs"}}}
	r := volumes.Compare(w)
	if len(r.Snapshots) != 1 || r.Snapshots[0].ID != "s1" || r.Snapshots[0].Verdict != finding.Disagree {
		t.Errorf("%+v", r)
	}
	w.Claims = append(w.Claims, volumes.Claim{Name: "shop/copy", UID: "u9", Created: now.Add(-time.Hour)})
	if r := volumes.Compare(w); r.Snapshots[0].Verdict != finding.Settling {
		t.Errorf("while the claim waits: %+v", r)
	}
}

// crowd is one of each.
func crowd() volumes.World {
	w := well()
	lose(&w, volumes.Answer{Gone: true}, true)
	w.Volumes = append(w.Volumes, volumes.PersistentVolume{
		Name: "pvc-6ba7b810-9dad-11d1-80b4-00c04fd430c8", ID: "v3", Claim: "a-namespace-with-a-long-name/data-of-a-database-with-a-long-name-0", Phase: "Released", Reclaim: "Retain", GiB: 100,
	})
	w.Claims = append(w.Claims, volumes.Claim{Name: "shop/new", GiB: 7, Created: now.Add(-time.Minute)})
	w.Pods = append(w.Pods, volumes.Pod{Name: "shop/new-0", Claims: []string{"shop/new"}, Created: now.Add(-time.Minute)})
	w.Cloud.Volumes = append(w.Cloud.Volumes,
		volume.Observed{ID: "v3", Name: "pvc-6ba7b810-9dad-11d1-80b4-00c04fd430c8", Size: 100, Created: now.Add(-time.Hour)},
		volume.Observed{ID: "v4", Name: "pvc-f47ac10b-58cc-4372-a567-0e02b2c3d479", Description: volumes.Description, Size: 50, Created: now.Add(-time.Hour)},
		volume.Observed{ID: "v5", Name: "backups", Size: 500})
	w.Cloud.Snapshots = []volume.Snapshot{{ID: "5c5e1b2a", Name: "before-the-upgrade", Volume: "v1", MinSize: 10}}
	return w
}

// The text fits the terminal, and says all, when all is well and in trouble.
func TestText(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]volumes.World{"well": well(), "crowd": crowd()} {
		for _, width := range []int{80, 120} {
			text := volumes.Compare(w).Text(now, width, finding.Plain)
			compareGolden(t, fmt.Sprintf("%s-%d.golden", name, width), text)
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		}
	}
}

func compareGolden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want := must.Get(os.ReadFile(path)).Or(t)
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s, rewrite it with -update if that is meant:\n%s", path, diff)
	}
}

// The order of what was read is nothing, every volume of Kubernetes has a row, and nothing agrees that was not compared.
func TestProperties(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := crowd()
		if rapid.Bool().Draw(t, "not asked") {
			w.Cloud = volumes.Cloud{Side: finding.Side{NotAsked: "there is no token"}}
		}
		w.Pods = w.Pods[:rapid.IntRange(0, len(w.Pods)).Draw(t, "pods")]
		w.Attachments = w.Attachments[:rapid.IntRange(0, len(w.Attachments)).Draw(t, "attachments")]
		w.Cloud.Volumes = w.Cloud.Volumes[:rapid.IntRange(0, len(w.Cloud.Volumes)).Draw(t, "volumes")]
		first := volumes.Compare(w)
		other := w
		other.Volumes = rapid.Permutation(w.Volumes).Draw(t, "order of PersistentVolumes")
		other.Claims = rapid.Permutation(w.Claims).Draw(t, "order of claims")
		other.Pods = rapid.Permutation(w.Pods).Draw(t, "order of Pods")
		other.Cloud.Volumes = rapid.Permutation(w.Cloud.Volumes).Draw(t, "order of volumes")
		if diff := cmp.Diff(first, volumes.Compare(other)); diff != "" {
			t.Error(diff)
		}
		for _, v := range w.Volumes {
			i := slices.IndexFunc(first.Volumes, func(r volumes.Row) bool { return r.Volume == v.Name })
			if i < 0 {
				t.Fatalf("%s has no row", v.Name)
			}
			listed := slices.ContainsFunc(w.Cloud.Volumes, func(c volume.Observed) bool { return c.ID == v.ID })
			if first.Volumes[i].Verdict == finding.Agree && !listed {
				t.Errorf("%s agrees, and DigitalOcean was not heard of it", v.Name)
			}
		}
	})
}

// An account without volumes is told in one sentence: there is nothing to count.
func TestSummaryOfNothing(t *testing.T) {
	t.Parallel()
	if got, want := (volumes.Report{}).Summary(), "There are no volumes of DigitalOcean."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	unread := volumes.Report{Totals: volumes.Totals{Snapshots: -1}}
	if got := unread.Summary(); !strings.HasSuffix(got, "; snapshots were not read.") {
		t.Errorf("%q", got)
	}
}
