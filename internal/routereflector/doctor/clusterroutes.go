// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
)

// goodPairs are the settings of Calico 3.33 with which each pool has one owner (its design/cluster-route-programming).
const goodPairs = "set spec.programClusterRoutes of FelixConfiguration default and of BGPConfiguration default to " +
	"EnabledIPIPOnly and EnabledNoEncapOnly (which is the default from Calico 3.33 on), to Enabled and Disabled, or to Disabled and Enabled"

// clusterRoutes tells whether BGP carries routes between nodes, which is what reflectors are for.
func clusterRoutes(x examined) []finding.Finding {
	if x.NoRoutes != "" {
		what := "whether BGP carries routes between nodes is unknown: " + x.NoRoutes
		return []finding.Finding{finding.Note.Say("%s", what).AsUnread()}
	}
	if x.Routes == nil {
		return nil
	}
	v := x.Routes.Judge()
	var out []finding.Finding
	if len(v.Nobody) > 0 {
		out = append(out, finding.Problem.Say("nobody programs the routes between nodes of IP pools %s", clusterroutes.Describe(v.Nobody)).
			Because("their pods reach no pod on another node").
			Advise(goodPairs))
	}
	if len(v.Both) > 0 {
		out = append(out, finding.Problem.Say("Felix and BIRD both program the routes between nodes of IP pools %s", clusterroutes.Describe(v.Both)).
			Because("each replaces the other's routes, again and again").
			Advise(goodPairs))
	}
	if len(v.Unknown) > 0 {
		out = append(out, finding.Note.Say("who programs the routes between nodes of IP pools %s depends on Calico's version, which ClusterInformation default does not tell (%q)",
			clusterroutes.Describe(v.Unknown), x.Routes.Version).AsUnread())
	}
	switch what := v.NotNeeded(); {
	case what != "":
		out = append(out, x.uncarried(what))
	case len(v.BIRD) > 0:
		out = append(out, finding.OK.Say("BGP carries the routes between nodes of IP pools %s", clusterroutes.Describe(v.BIRD)))
	}
	return out
}

// uncarried tells that reflectors are of no use, which is worse where there are some.
func (x examined) uncarried(what string) finding.Finding {
	f := finding.OK.Say("%s", what)
	if len(x.Topologies) > 0 || len(x.reflectors) > 0 {
		f.Severity = finding.Note
		f.Why = fmt.Sprintf("%s with a cluster ID carry at most routes of Services and to routers outside the cluster", prose.Plural(len(x.reflectors), "node"))
		f.Do = "keep them if you announce such routes; otherwise delete the RouteReflectorTopology"
	}
	return f
}

// useless reports that BGP is known to carry no route between nodes.
func (x examined) useless() bool { return x.Routes != nil && !x.Routes.Judge().Carried() }
