// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// TestNetworkInStatus compares the line of `lab status`.
func TestNetworkInStatus(t *testing.T) {
	t.Parallel()
	one, other := netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("10.244.1.1")
	state := network.State{Nodes: []network.NodeState{{Name: "a", Pods: []netip.Addr{one}, Missing: []netip.Addr{other}}, {Name: "b", Pods: []netip.Addr{other}}}}
	if got, want := describeNetwork(state), "BGP, 2 machines, 1 of 2 routes to pods of others"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	state.Pending = []string{"c", "d"}
	if got, want := describeNetwork(state), "BGP, 2 machines, 1 of 2 routes to pods of others; yet to come or go: c, d"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for want, names := range map[string][]string{
		"": {blueprint.Nodes},
		"\nnetwork: the BGP network does not run now; look at `lab logs bgp-network`\n": {blueprint.Nodes, blueprint.BGPNetwork},
	} {
		var out bytes.Buffer
		var processes []folder.Process
		for _, name := range names {
			processes = append(processes, folder.Process{Name: name})
		}
		printNetwork(t.Context(), &out, blueprint.Layout{Dir: t.TempDir()}, folder.State{Processes: processes})
		if out.String() != want {
			t.Errorf("with %v: %q, want %q", names, out.String(), want)
		}
	}
}
