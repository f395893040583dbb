// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/topology"
)

// A replacement is no finding while it is new, and one with its age once it takes long; each finding has a next step.
func TestFindingsOfAReplacement(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w1 := topology.Reflector{Node: "w1", Role: "Leaving", Expected: 3, Established: 3}
	m := topology.Map{Name: "main", Phase: "Progressing", Since: &began, Groups: []topology.Group{{Reflectors: []topology.Reflector{w1}}}}
	if found := topology.Findings([]topology.Map{m}, began.Add(time.Minute)); finding.Worst(found) != finding.OK {
		t.Errorf("a replacement that began a minute ago needs attention: %+v", found)
	}
	found := topology.Findings([]topology.Map{m}, began.Add(time.Hour))
	if finding.Worst(found) != finding.Warning || !strings.Contains(found[0].What, "60m ago") {
		t.Errorf("a replacement that takes an hour: %+v", found)
	}
	for name, change := range map[string]func(m *topology.Map, r *topology.Reflector){
		"nobody says since when":    func(m *topology.Map, _ *topology.Reflector) { m.Since = nil },
		"its Node is gone":          func(_ *topology.Map, r *topology.Reflector) { r.Missing = true },
		"its Node is NotReady":      func(_ *topology.Map, r *topology.Reflector) { r.NotReady = true },
		"its Node is another's":     func(_ *topology.Map, r *topology.Reflector) { r.Unlike = "its Node has another cluster ID" },
		"nobody has listed it":      func(_ *topology.Map, r *topology.Reflector) { r.Role = topology.NotReported },
		"it has lost a session":     func(_ *topology.Map, r *topology.Reflector) { r.Role, r.Established = "Reflector", 2 },
		"the operator is in doubt":  func(m *topology.Map, _ *topology.Reflector) { m.Troubles = []string{"Degraded is True"} },
		"nobody has reported on it": func(m *topology.Map, _ *topology.Reflector) { m.Phase = "" },
	} {
		m, r := m, w1
		change(&m, &r)
		m.Groups = []topology.Group{{Reflectors: []topology.Reflector{r}}}
		found := topology.Findings([]topology.Map{m}, began.Add(time.Minute))
		if finding.Worst(found) == finding.OK {
			t.Errorf("%s, and nothing is found", name)
		}
		for _, f := range found {
			if f.Where != "RouteReflectorTopology main" || f.Do == "" {
				t.Errorf("%s: a finding without the topology or a next step: %+v", name, f)
			}
		}
	}
}
