// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/birdc"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

// TestFamilies runs a lab in dual stack and one of IPv6 alone. The short run sees only that routes and packets are there in both families.
func TestFamilies(t *testing.T) {
	if testing.Short() {
		l := start(t, 3, "--cloud", blueprint.CloudNone, "--ip-families", blueprint.BothFamilies)
		l.awaitRoutes()
		inFamilies(l, true, true)
		return
	}
	for _, c := range []struct {
		families string
		v4, v6   bool
		names    []string
	}{
		{blueprint.BothFamilies, true, true, []string{scenario.Enable, scenario.ReplaceOne, scenario.Disable}},
		{blueprint.FamilyIPv6, false, true, []string{scenario.Enable, scenario.ReplaceOne}},
	} {
		t.Run(c.families, func(t *testing.T) {
			l := startScenarios(t, 5, "--ip-families", c.families)
			l.awaitRoutes()
			inFamilies(l, c.v4, c.v6)
			for _, name := range c.names {
				if !l.part(name, func(l *lab) { judgeFamilies(l.t, l.scenario(name), c.v4, len(l.state().Nodes)) }) {
					return
				}
			}
		})
	}
}

// inFamilies sees that machines, pods, sessions and packets are of the families that were asked for, and of no other.
func inFamilies(l *lab, v4, v6 bool) {
	l.t.Helper()
	nodes, err := l.kubernetes().CoreV1().Nodes().List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, n := range nodes.Items {
		internal := netip.MustParseAddr(n.Status.Addresses[0].Address)
		want := map[string]string{}
		if v4 {
			want[routereflector.IPv4Annotation] = internal.String() + "/16"
		}
		if v6 {
			want[routereflector.IPv6Annotation] = machines.IPv6(internal).String() + "/64"
		}
		for _, annotation := range []string{routereflector.IPv4Annotation, routereflector.IPv6Annotation} {
			if got := n.Annotations[annotation]; got != want[annotation] {
				l.t.Errorf("%s: annotation %s is %q, want %q", n.Name, annotation, got, want[annotation])
			}
		}
	}
	state := l.state()
	perFamily := map[bool]int{false: 0, true: 0} // by whether it is IPv6
	for _, n := range state.Nodes {
		for _, pod := range n.Pods {
			perFamily[pod.Is6()]++
		}
	}
	if perFamily[false] != count(v4, len(state.Nodes)) || perFamily[true] != count(v6, len(state.Nodes)) {
		l.t.Errorf("pods have %d IPv4 and %d IPv6 addresses on %d machines", perFamily[false], perFamily[true], len(state.Nodes))
	}
	for _, n := range state.Nodes {
		for socket, speaks := range map[string]bool{"bird.ctl": v4, "bird6.ctl": v6} {
			lines, err := birdc.Ask(l.t.Context(), filepath.Join(l.BGPNetwork(), "nodes", n.Name, "run", "calico", socket), "show protocols")
			if err != nil {
				l.t.Fatal(err)
			}
			if got := len(birdc.Sessions(lines)); got != count(speaks, len(state.Nodes)-1) {
				l.t.Errorf("%s, %s: %d sessions of %d machines", n.Name, socket, got, len(state.Nodes))
			}
		}
	}
	var report probe.Report
	if err := json.Unmarshal([]byte(l.run("probe", "--for", "2s", "--output", "json")), &report); err != nil {
		l.t.Fatal(err)
	}
	if err := sentIn(report, v4); err != nil || report.All.Outages > 0 || report.All.Lost == report.All.Sent {
		l.t.Errorf("%v; %+v, by IPv6 %+v", err, report.All, report.IPv6)
	}
}

func count(speaks bool, many int) int {
	if speaks {
		return many
	}
	return 0
}

// sentIn reports whether all pairs were probed by IPv6, and by IPv4 as well if that is there.
func sentIn(r probe.Report, v4 bool) error {
	pairs := r.Nodes * (r.Nodes - 1)
	if v4 {
		pairs *= 2
	}
	switch {
	case r.Pairs != pairs:
		return fmt.Errorf("%d pairs of %d nodes were probed, want %d", r.Pairs, r.Nodes, pairs)
	case r.IPv6 == nil || r.IPv6.All.Sent == 0 || !v4 && r.IPv6.All != r.All || v4 && r.IPv6.All.Sent == r.All.Sent:
		return fmt.Errorf("%d of %d packets were sent by IPv6", r.IPv6.All.Sent, r.All.Sent)
	}
	return nil
}

// judgeFamilies is judge, and that each family was looked at: packets of both were sent, also between pairs that kept their roles, and the operator
// saw the sessions of each before it went on.
func judgeFamilies(t *testing.T, r scenario.Result, v4 bool, nodes int) {
	t.Helper()
	judge(t, r)
	if err := sentIn(r.Report, v4); err != nil {
		t.Error(err)
	} else if r.Report.IPv6.Collateral.Sent == 0 {
		t.Error("no pair that kept its roles was probed by IPv6")
	}
	sessions := nodes - 1
	if v4 {
		sessions *= 2
	}
	for i, c := range r.Changes {
		for _, w := range c.Reflectors {
			if w.Expected != sessions {
				t.Errorf("step %d: %d sessions of reflector %s were looked for, want %d", i, w.Expected, w.Node, sessions)
			}
		}
	}
}
