// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// inVain is a cluster in which BGP carries no routes.
func inVain() rr.World {
	w := cluster(9, 3)
	w.Uncarried = "route reflectors are not needed: Felix programs all routes"
	return w
}

// Nothing is enabled where BGP carries nothing, without a person's word; what is enabled already goes on and may end.
func TestNothingIsEnabledInVain(t *testing.T) {
	t.Parallel()
	w := inVain()
	p := MakePlan(w)
	if len(p.Steps) > 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != rr.ReasonNotNeeded {
		t.Fatalf("%v %+v", p.Steps, p.Refusals)
	}
	const command = "`kubectl mooring confirm topology main NotNeeded`"
	if m := p.Refusals[0].Message; !strings.HasPrefix(m, w.Uncarried+"; ") || !strings.Contains(m, command) {
		t.Errorf("it says %q", m)
	}
	meant := w
	meant.Topology.Annotations = map[string]string{v1alpha1.ConfirmAnnotation: string(rr.ReasonNotNeeded)}
	if p := MakePlan(meant); len(p.Refusals) > 0 || len(p.Steps) == 0 {
		t.Errorf("confirmed: %+v", p.Refusals)
	}
	begun := cluster(9, 3)
	begun, _ = carryOut(t, begun, nil)
	begun.Uncarried = w.Uncarried
	if p := MakePlan(begun); len(p.Refusals) > 0 {
		t.Errorf("enabled: %+v", p.Refusals)
	}
	ends := w
	ends.Topology.DeletionTimestamp = &begun.Topology.CreationTimestamp
	if p := MakePlan(ends); len(p.Refusals) > 0 {
		t.Errorf("deleted: %+v", p.Refusals)
	}
}
