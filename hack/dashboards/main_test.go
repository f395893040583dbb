// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestDashboardsAreFresh fails when what the chart has is not what is written here, and finds dashboards of components that are no more.
func TestDashboardsAreFresh(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	for _, d := range all() {
		content := must.Get(d.render()).Or(t)
		want[d.component+".json"] = string(content)
	}
	have := map[string]string{}
	files := must.Get(filepath.Glob(filepath.Join("..", "..", folder, "*"))).Or(t)
	for _, file := range files {
		content := must.Get(os.ReadFile(file)).Or(t)
		have[filepath.Base(file)] = string(content)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s is out of date, run make manifests (-want +have):\n%s", folder, diff)
	}
}

// TestGrid: no panel overlaps another or leaves the grid, IDs are unique, and every row is filled to its right edge.
func TestGrid(t *testing.T) {
	t.Parallel()
	for _, d := range all() {
		taken, ids, widest := map[[2]int]string{}, map[int]bool{}, map[int]int{}
		for _, p := range d.panels() {
			id, title, at := p["id"].(int), p["title"].(string), p["gridPos"].(object)
			if ids[id] {
				t.Errorf("%s: two panels have the ID %d", d.component, id)
			}
			ids[id] = true
			x, y, w, h := at["x"].(int), at["y"].(int), at["w"].(int), at["h"].(int)
			widest[y] = max(widest[y], x+w)
			for i := x; i < x+w; i++ {
				for j := y; j < y+h; j++ {
					if other, ok := taken[[2]int{i, j}]; ok {
						t.Errorf("%s: %q overlaps %q", d.component, title, other)
					}
					taken[[2]int{i, j}] = title
				}
			}
		}
		for y, right := range widest {
			if right != gridColumns {
				t.Errorf("%s: the row at %d ends at column %d of %d", d.component, y, right, gridColumns)
			}
		}
	}
}
