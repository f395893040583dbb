// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// ordered puts the writes of a step that frees addresses of several blocks in one order: Calico goes through the blocks of
// a handle in the order of a Go map (libcalico-go, ipam.go, releaseByHandle), and what the handle lists in between depends
// on that as well.
func ordered(writes []string) []string {
	blocks, frees := 0, false
	for _, w := range writes {
		if strings.HasPrefix(w, "PUT /calico/ipam/v2/assignment/") {
			blocks++
		}
		frees = frees || strings.HasPrefix(w, "DELETE /calico/ipam/v2/handle/")
	}
	if blocks < 2 || !frees {
		return writes
	}
	for i, w := range writes {
		if strings.HasPrefix(w, "PUT /calico/ipam/v2/handle/") {
			writes[i], _, _ = strings.Cut(w, " {")
		}
	}
	slices.Sort(writes)
	return writes
}

// compare takes the plugin and the simulator through one history, and fails the test for everything that only one of them has written.
func compare(t *testing.T, real, simulated *cluster) map[string]int {
	t.Helper()
	occurred, known := map[string]int{}, map[string]bool{}
	look := func(when string) {
		t.Helper()
		for _, difference := range differences(real.contents(occurred), simulated.contents(occurred)) {
			if !known[difference] {
				known[difference] = true
				t.Errorf("%s: %s", when, difference)
			}
		}
	}
	look("before the first pod")
	for _, s := range real.history.steps {
		real.do(s)
		simulated.do(s)
		if diff := cmp.Diff(ordered(real.writes()), ordered(simulated.writes())); diff != "" {
			t.Errorf("%s: other writes, or in another order (-plugin +simulator):\n%s", s, diff)
		}
		look("after " + s.String())
	}
	return occurred
}

// TestEtcd compares what stands in etcd. The pods are in one API server, from which the plugin reads them.
func TestEtcd(t *testing.T) {
	needNamespaces(t)
	api := controlplane.Shared(t)
	for _, name := range slices.Sorted(maps.Keys(histories())) {
		t.Run(name, func(t *testing.T) {
			h := histories()[name]
			occurred := compare(t, newCluster(t, h, api, testkit.NewEtcd(t), true), newCluster(t, h, api, testkit.NewEtcd(t), false))
			for field := range natural() {
				if occurred[field] == 0 {
					t.Errorf("no value has a field %s, which natural lists", field)
				}
			}
		})
	}
}

// TestKubernetes compares the objects with the kubernetes datastore, where each writer has an API server of its own.
func TestKubernetes(t *testing.T) {
	needNamespaces(t)
	real, simulated := controlplane.Lend(t), controlplane.Lend(t)
	real.InstallCalicoCRDs(t)
	simulated.InstallCalicoCRDs(t)
	for _, name := range slices.Sorted(maps.Keys(histories())) {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "sandboxes" {
				t.Skip("the full run has this history")
			}
			h := histories()[name]
			plugin := newCluster(t, h, real, nil, true)
			occurred := compare(t, plugin, newCluster(t, h, simulated, nil, false))
			plugin.wantLabels()
			for field := range naturalInKubernetes() {
				if occurred[field] == 0 {
					t.Errorf("no object has a field %s, which naturalInKubernetes lists", field)
				}
			}
		})
	}
}

// wantLabels fails the test unless the plugin has put the labels on each affinity by which Calico's confd lists them: 3.31 lists affinities by labels,
// so a fixture without them is not seen.
func (c *cluster) wantLabels() {
	c.t.Helper()
	affinities := 0
	for key, flat := range c.contents(map[string]int{}) {
		if !strings.HasPrefix(key, "blockaffinities/") {
			continue
		}
		affinities++
		for _, label := range []string{"hostname-hash", "affinity-type", "ip-version"} {
			if flat["metadata.labels.projectcalico.org/"+label] == "" {
				c.t.Errorf("%s has no label %s: %v", key, label, flat)
			}
		}
	}
	if affinities == 0 {
		c.t.Error("the plugin has left no affinity, so nothing is shown")
	}
}
