// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package clusterroutes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
)

// table has a row for each value of Felix, a column for each of BGP, and in each cell whose the routes of pools with
// VXLAN, with IPIP and without encapsulation are, from Calico 3.33 on: f is Felix, b BIRD, 2 both and - nobody. A test
// reads it beside the facts about Calico's own design.
const table = `
                    Disabled EnabledIPIPOnly EnabledNoEncapOnly Enabled
Disabled            f--      fb-             f-b                fbb
EnabledIPIPOnly     ff-      f2-             ffb                f2b
EnabledNoEncapOnly  f-f      fbf             f-2                fb2
Enabled             fff      f2f             ff2                f22
`

func kinds() []clusterroutes.Encapsulation {
	return []clusterroutes.Encapsulation{clusterroutes.VXLAN, clusterroutes.IPIP, clusterroutes.None}
}

// owner is the letter of the table for one pool of an encapsulation.
func owner(s clusterroutes.Settings, e clusterroutes.Encapsulation) string {
	s.Pools = []clusterroutes.Pool{{Name: "p", Encapsulation: e}}
	v := s.Judge()
	switch 1 {
	case len(v.Felix):
		return "f"
	case len(v.BIRD):
		return "b"
	case len(v.Both):
		return "2"
	case len(v.Nobody):
		return "-"
	case len(v.Unknown):
		return "?"
	}
	return fmt.Sprint(v)
}

func owners(s clusterroutes.Settings) string {
	out := ""
	for _, e := range kinds() {
		out += owner(s, e)
	}
	return out
}

func TestAllPairsFromCalico333(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	columns := strings.Fields(lines[0])
	rows := 0
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		for i, want := range cells[1:] {
			for _, running := range []string{"v3.33.0", "v3.34.1", "v3.33.0-0.dev-12-gabc"} {
				s := clusterroutes.Settings{Version: running, Felix: cells[0], BGP: columns[i]}
				if got := owners(s); got != want {
					t.Errorf("%+v: %s, want %s", s, got, want)
				}
			}
			rows += len(kinds())
		}
	}
	if rows != 48 {
		t.Errorf("%d rows, want 48", rows)
	}
}

func TestDefaultsAreThoseOfTheRunningVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings clusterroutes.Settings
		want     string
	}{
		"3.31":                               {clusterroutes.Settings{Version: "v3.31.2"}, "fbb"},
		"3.33":                               {clusterroutes.Settings{Version: "v3.33.0"}, "ffb"},
		"4.0":                                {clusterroutes.Settings{Version: "v4.0.0"}, "ffb"},
		"3.31, Felix too":                    {clusterroutes.Settings{Version: "v3.31.2", Felix: "Enabled"}, "f22"},
		"3.31 does not know the field":       {clusterroutes.Settings{Version: "v3.31.2", BGP: "Disabled"}, "fbb"},
		"3.31 does not know the value":       {clusterroutes.Settings{Version: "v3.31.2", Felix: "EnabledIPIPOnly"}, "fbb"},
		"3.33 does not know the value":       {clusterroutes.Settings{Version: "v3.33.0", Felix: "Sometimes", BGP: "x"}, "ffb"},
		"unknown version":                    {clusterroutes.Settings{}, "f?b"},
		"unknown version, Felix and BGP set": {clusterroutes.Settings{Felix: "Disabled", BGP: "Enabled"}, "fbb"},
		"unreadable version":                 {clusterroutes.Settings{Version: "master"}, "f?b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := owners(c.settings); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestCarried(t *testing.T) {
	t.Parallel()
	pool := func(e clusterroutes.Encapsulation) clusterroutes.Pool {
		return clusterroutes.Pool{Name: "p", Encapsulation: e}
	}
	for name, c := range map[string]struct {
		settings clusterroutes.Settings
		want     bool
	}{
		"no pool":        {clusterroutes.Settings{Version: "v3.33.0"}, true},
		"VXLAN alone":    {clusterroutes.Settings{Pools: []clusterroutes.Pool{pool(clusterroutes.VXLAN)}}, false},
		"IPIP in 3.31":   {clusterroutes.Settings{Version: "v3.31.2", Pools: []clusterroutes.Pool{pool(clusterroutes.IPIP)}}, true},
		"IPIP in 3.33":   {clusterroutes.Settings{Version: "v3.33.0", Pools: []clusterroutes.Pool{pool(clusterroutes.IPIP)}}, false},
		"IPIP somewhere": {clusterroutes.Settings{Pools: []clusterroutes.Pool{pool(clusterroutes.IPIP)}}, true},
		"a mix":          {clusterroutes.Settings{Pools: []clusterroutes.Pool{pool(clusterroutes.VXLAN), pool(clusterroutes.None)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.settings.Judge().Carried(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	var got clusterroutes.Settings
	for _, d := range []struct{ resource, text string }{
		{clusterroutes.Pools, `{"metadata":{"name":"b"},"spec":{"vxlanMode":"CrossSubnet","ipipMode":"Never"}}`},
		{clusterroutes.Pools, `{"metadata":{"name":"a"},"spec":{"ipipMode":"Always","disabled":true}}`},
		{clusterroutes.Pools, `{"metadata":{"name":"c"},"spec":{"allowedUses":["Workload","Tunnel"]}}`},
		{clusterroutes.Pools, `{"metadata":{"name":"lb"},"spec":{"allowedUses":["LoadBalancer"]}}`},
		{clusterroutes.Felix, `{"metadata":{"name":"default"},"spec":{"programClusterRoutes":"EnabledIPIPOnly"}}`},
		{clusterroutes.Felix, `{"metadata":{"name":"node.x"},"spec":{"programClusterRoutes":"Disabled"}}`},
		{clusterroutes.BGP, `{"metadata":{"name":"default"},"spec":{"programClusterRoutes":"EnabledNoEncapOnly"}}`},
		{clusterroutes.Informations, `{"metadata":{"name":"default"},"spec":{"calicoVersion":"v3.33.1"}}`},
	} {
		if err := got.Add(d.resource, []byte(d.text)); err != nil {
			t.Fatal(err)
		}
	}
	want := clusterroutes.Settings{
		Version: "v3.33.1", Felix: "EnabledIPIPOnly", BGP: "EnabledNoEncapOnly",
		Pools: []clusterroutes.Pool{
			{Name: "b", Encapsulation: clusterroutes.VXLAN}, {Name: "a", Encapsulation: clusterroutes.IPIP},
			{Name: "c", Encapsulation: clusterroutes.None},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings differ (-want +got):\n%s", diff)
	}
	if err := got.Add(clusterroutes.Pools, []byte("{")); err == nil || !strings.Contains(err.Error(), "ippools") {
		t.Error(err)
	}
	if text := clusterroutes.Describe(want.Pools); text != "b (VXLAN), a (IPIP), c (no encapsulation)" {
		t.Error(text)
	}
}

// FuzzAdd gives it any bytes.
func FuzzAdd(f *testing.F) {
	f.Add(clusterroutes.Pools, []byte(`{"metadata":{"name":"b"},"spec":{"vxlanMode":"CrossSubnet"}}`))
	f.Fuzz(func(_ *testing.T, resource string, document []byte) {
		var s clusterroutes.Settings
		if s.Add(resource, document) == nil {
			s.Judge()
		}
	})
}
