// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

func volumeRow(claim, machine string, verdict finding.State, what ...string) volumes.Row {
	r := volumes.Row{Volume: "pvc-" + claim, ID: "id-" + claim, Claim: "shop/" + claim, Pods: []string{"shop/" + claim + "-0"}, Machine: machine, Droplet: 1, GiB: 5, State: volumes.InUse, Verdict: verdict}
	for _, w := range what {
		r.Findings = append(r.Findings, finding.Verdict{State: verdict, What: w, Next: "do: " + w})
	}
	return r
}

// someVolumes has each thing that is shown of volumes once.
func someVolumes() ui.Volumes {
	return ui.Volumes{
		At: at(1), Report: volumes.Report{
			Volumes: []volumes.Row{
				volumeRow("fine", "w1", finding.Agree), volumeRow("moving", "w3", finding.Settling, "it is being detached from w3"), volumeRow("lost", "w1", finding.Disagree, "its volume is gone"),
				{Volume: "pvc-orphan", ID: "id-orphan", GiB: 7, State: volumes.Unclaimed, Verdict: finding.Unknown},
			},
			Snapshots: []volumes.SnapshotRow{{Name: "s", ID: "id-s", GiB: 2, Verdict: finding.Disagree, Finding: finding.Verdict{What: "no VolumeSnapshotContent has it", Next: "delete it"}}},
			Totals:    volumes.Totals{Claimed: 15, Unclaimed: 7, Snapshots: 2},
		},
	}
}

// anyVolume is one with a text anywhere.
func anyVolume(text string, i int) volumes.Row {
	r := volumeRow(fmt.Sprint(i, text), text, finding.States()[i%6], text)
	r.Pods = slices.Repeat([]string{text}, i%40)
	return r
}

func volumesOf(t *testing.T, w ui.World, f ui.Filter) (l ui.List, claims []string, tile ui.Tile) {
	t.Helper()
	p := ui.View(w, f, "")
	at := slices.IndexFunc(p.Lists, func(l ui.List) bool { return l.Key == "volumes" })
	for _, r := range p.Lists[at].Rows {
		claims = append(claims, r.Cells[0].Text)
	}
	return p.Lists[at], claims, p.Health[slices.IndexFunc(p.Health, func(x ui.Tile) bool { return x.Key == "volumes" })]
}

// What disagrees is first, whatever it is; above a number those that agree are counted, and named when somebody looks for them.
func TestVolumes(t *testing.T) {
	t.Parallel()
	w := ui.World{ReadAt: at(0), Volumes: someVolumes()}
	l, claims, tile := volumesOf(t, w, ui.Filter{})
	if want := []string{"shop/lost", "(pvc-orphan)", "snapshot s", "shop/moving", "shop/fine"}; !slices.Equal(claims, want) || l.Ill != 3 || l.All != 5 || l.Old {
		t.Errorf("%q, want %q; %d of %d", claims, want, l.Ill, l.All)
	}
	if tile.State != ui.Bad || tile.Text != "2 disagree, 1 unknown, 1 settling, 1 agree" || !strings.HasPrefix(l.Summary, "4 volumes: ") || l.Rows[0].Cells[2].Machine != "w1" {
		t.Errorf("%+v, %q, %+v", tile, l.Summary, l.Rows[0])
	}
	w.Volumes.Volumes = nil
	for i := range 300 {
		w.Volumes.Volumes = append(w.Volumes.Volumes, volumeRow(fmt.Sprintf("c%03d", i), "", map[bool]finding.State{true: finding.Disagree, false: finding.Agree}[i%100 == 42]))
	}
	l, claims, _ = volumesOf(t, w, ui.Filter{})
	if want := []string{"shop/c042", "shop/c142", "shop/c242", "snapshot s"}; !slices.Equal(claims, want) || l.All != 301 || l.More != "297 that agree are not named: filter to see them" {
		t.Errorf("%q, %d, %q", claims, l.All, l.More)
	}
	if _, claims, _ = volumesOf(t, w, ui.Filter{Text: "c29"}); len(claims) != 10 {
		t.Errorf("found %q", claims)
	}
	w.Volumes.Volumes = w.Volumes.Volumes[:agreement.FoldAbove]
	if _, claims, _ = volumesOf(t, w, ui.Filter{}); len(claims) != agreement.FoldAbove+1 {
		t.Errorf("%d are named", len(claims))
	}
}

// What was not compared, or not read, is never green; a cluster without volumes has nothing to read.
func TestVolumesThatWereNotRead(t *testing.T) {
	t.Parallel()
	report := func(notRead string, verdicts ...finding.State) ui.Volumes {
		v := ui.Volumes{At: at(0)}
		for i, verdict := range verdicts {
			v.Volumes = append(v.Volumes, volumeRow(fmt.Sprint(i), "", verdict))
		}
		if notRead != "" {
			v.NotRead = []string{notRead}
		}
		return v
	}
	for name, test := range map[string]struct {
		volumes ui.Volumes
		want    string
	}{
		"none":                            {report(""), "absent none"},
		"none, and no token":              {report("DigitalOcean: no token"), "absent none"},
		"may not be read":                 {ui.Volumes{Problem: "listing StorageClasses: forbidden"}, "unread listing StorageClasses: forbidden"},
		"one side":                        {report("DigitalOcean: no token", finding.OneSide, finding.OneSide), "unread 2 one side; DigitalOcean: no token"},
		"all agree":                       {report("", finding.Agree), "good 1 agree"},
		"all agree, snapshots unreadable": {report("snapshots: 403", finding.Agree), "unread 1 agree; snapshots: 403"},
		"settling":                        {report("", finding.Agree, finding.Settling), "changing 1 settling, 1 agree"},
		"disagree, and one side":          {report("x", finding.Disagree, finding.OneSide), "bad 1 disagree, 1 one side"},
	} {
		_, _, tile := volumesOf(t, ui.World{ReadAt: at(0), Volumes: test.volumes}, ui.Filter{})
		if got := string(tile.State) + " " + tile.Text; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
