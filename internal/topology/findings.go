// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// CheckTopologies is the check of [Findings]. The name stands in JSON and MUST NOT change.
const CheckTopologies = "topologies"

// replacementTime is how long the replacement of a reflector may take: its sessions come up within minutes.
const replacementTime = 15 * time.Minute

// Where is the topology with that name, as findings name it.
func Where(name string) string { return "RouteReflectorTopology " + name }

// Findings are what needs attention of topologies as they are seen, each with what to do next. Reflectors that join or
// leave need none while that is new.
func Findings(maps []Map, now time.Time) []finding.Finding {
	find := func(maps []Map) (out []finding.Finding) {
		for _, m := range maps {
			out = append(out, m.findings(now)...)
		}
		if len(out) == 0 && len(maps) > 0 {
			what := fmt.Sprintf("topologies whose operator reports all reflectors with all sessions: %d", len(maps))
			out = append(out, finding.OK.Say("%s", what))
		}
		return out
	}
	return finding.Make([]finding.Check[[]Map]{{Name: CheckTopologies, Find: find}}, maps)
}

func (m Map) findings(now time.Time) (out []finding.Finding) {
	where := Where(m.Name)
	describe := "kubectl describe routereflectortopology " + m.Name
	add := func(severity finding.Severity, what, why, do string) {
		out = append(out, severity.Say("%s: %s", where, what).At(where).Because(why).Advise(do))
	}
	for _, trouble := range m.Troubles {
		add(finding.Problem, trouble, "its operator reports it", describe)
	}
	if m.Phase == "" {
		add(finding.Warning, "its operator has not reported on it", "nobody keeps its reflectors",
			"check that calico-route-reflector-operator runs: kubectl mooring doctor controllers")
	}
	for _, g := range m.Groups {
		for _, r := range g.Reflectors {
			text, well := r.State()
			if well || m.Replacing(r, now) {
				continue
			}
			do := describe
			switch {
			case r.Missing, r.joinsOrLeaves():
				do = "see what its operator waits for: " + describe
			case r.NotReady:
				do = "kubectl mooring explain node " + r.Node
			case r.Role == NotReported:
				do = "kubectl mooring doctor routereflectors"
			case r.Unlike == "":
				do = "see BIRD on that node: kubectl -n kube-system logs -l k8s-app=calico-node --field-selector spec.nodeName=" + r.Node
			}
			if m.Since != nil && r.joinsOrLeaves() {
				text += "; the change began " + prose.Span(now.Sub(*m.Since)) + " ago"
			}
			add(finding.Warning, "reflector "+r.Node+": "+text, "its clients have one reflector less", do)
		}
	}
	return out
}

func (r Reflector) joinsOrLeaves() bool { return r.Role == "Joining" || r.Role == "Leaving" }

// Replacing reports whether a reflector joins or leaves, is well apart from that, and has not had the time for it yet.
func (m Map) Replacing(r Reflector, now time.Time) bool {
	fine := !r.Missing && !r.NotReady && r.Unlike == ""
	return fine && r.joinsOrLeaves() && m.Since != nil && now.Sub(*m.Since) < replacementTime
}
