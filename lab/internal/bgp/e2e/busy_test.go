// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// busyVariable is for how long TestNoFalseAlarms lasts, such as 20m; without it, not at all.
const busyVariable = "MOORING_BGP_BUSY"

// TestNoFalseAlarms lets reflectors be while two busy loops run alongside: no role changes. It logs how often one was lost
// all the same, and returned before its spare was promoted.
func TestNoFalseAlarms(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv(busyVariable))
	if err != nil {
		t.Skip("set " + busyVariable + " to a time, such as 20m")
	}
	l := startScenarios(t, failing, "--zones", "3", "--bird-templates",
		cmp.Or(os.Getenv(templatesVariable), blueprint.TemplatesOfCalico))
	l.awaitRoutes()
	l.connect()
	l.scenario(scenario.Enable)
	l.patchTopology(`{"spec":{"redundancy":3}}`)
	l.operated(func(l *lab) {
		l.settled()
		before := l.awaitReflectors(nil)
		for range 2 {
			loop := exec.CommandContext(t.Context(), "yes")
			if err := loop.Start(); err != nil {
				t.Fatal(err)
			}
		}
		end, begun, lost := l.begin(), time.Now(), map[string]bool{}
		for time.Since(begun) < lasts {
			l.pass(time.Second)
			for _, e := range l.topology().Status.LostReflectors {
				lost[e.Node+" at "+e.Since.UTC().Format(time.TimeOnly)] = true
			}
			if _, now := l.nodes(); !slices.Equal(now, before) {
				t.Fatalf("after %v the reflectors are %v, were %v", time.Since(begun), now, before)
			}
		}
		l.noCollateral(end())
		t.Logf("in %v no role changed; lost and back in time: %v", lasts, slices.Sorted(maps.Keys(lost)))
	})
}
