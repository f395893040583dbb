// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// A list of pods that cannot be read holds promotions back, and neither the mesh in an emergency nor the requests that show whether there is one.
func TestPodsHoldNoMeshBack(t *testing.T) {
	t.Parallel()
	s := sceneOf("a")
	s.topology = &v1alpha1.RouteReflectorTopology{}
	promotes, mesh := []routereflector.Step{promotion("a", "")}, []routereflector.Step{routereflector.MeshOn{}}
	emergency, troubles := &v1alpha1.Emergency{}, []routereflector.Trouble{{Node: "r"}}
	for name, c := range map[string]struct {
		plan             routereflector.Plan
		steps, witnesses int
	}{
		"a promotion":                    {routereflector.Plan{Steps: promotes}, 0, 0},
		"a promotion in an emergency":    {routereflector.Plan{Steps: promotes, Emergency: emergency}, 0, 0},
		"the mesh in an emergency":       {routereflector.Plan{Steps: mesh, Emergency: emergency, Troubles: troubles}, 1, 1},
		"the mesh for other options":     {routereflector.Plan{Steps: mesh}, 0, 0},
		"a reflector in trouble":         {routereflector.Plan{Troubles: troubles}, 0, 1},
		"one that is to be replaced now": {routereflector.Plan{Steps: promotes, Troubles: troubles}, 0, 1},
	} {
		c.plan.Witnesses = []string{"a"}
		o := decide(s, &memory{}, c.plan)
		got := o.permitted()
		if len(got.Steps) != c.steps || len(got.Witnesses) != c.witnesses || o.act != (c.steps > 0) || !o.act && o.held != reasonPodsUnread {
			t.Errorf("%s: steps %v, witnesses %v, held by %q", name, got.Steps, got.Witnesses, o.held)
		}
	}
	s.podsRead = true
	if o := decide(s, &memory{}, routereflector.Plan{Steps: promotes}); !o.act {
		t.Errorf("once the pods have been read it is held by %q", o.held)
	}
	for _, read := range []bool{true, false} {
		for _, mode := range []v1alpha1.RolloutMode{v1alpha1.RolloutDryRun, v1alpha1.RolloutManual} {
			s.podsRead, s.world.Topology.Spec.Rollout.Mode = read, mode
			plan := routereflector.Plan{Steps: promotes, Troubles: troubles, Witnesses: []string{"a"}, Hash: "unapproved"}
			if got := decide(s, &memory{}, plan).permitted(); len(got.Steps)+len(got.Witnesses) != 0 {
				t.Errorf("%s with pods read %v: steps %v, and %v are asked", mode, read, got.Steps, got.Witnesses)
			}
		}
	}
}
