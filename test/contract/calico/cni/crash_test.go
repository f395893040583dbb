// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// TestCrash compares what the simulator leaves as the debris of a crash with what the plugin has written before it could crash.
func TestCrash(t *testing.T) {
	needNamespaces(t)
	h := history{
		pools: []caliconode.Pool{{CIDR: "10.30.0.0/30", BlockSize: 30}}, hosts: []caliconode.Host{bare("west", 1)},
		ipam: map[string]any{"type": "calico-ipam"},
	}
	api := controlplane.Shared(t)
	real := newCluster(t, h, api, testkit.NewEtcd(t), true)
	real.do(step{deed: add, host: "west", pod: "cart-a"})
	claim := slices.DeleteFunc(real.writes(), func(change string) bool { return strings.HasPrefix(change, "PUT /calico/ipam/v2/config ") }) // once per cluster
	real.do(step{deed: add, host: "west", pod: "cart-b"})
	assignment := real.writes()

	claiming := newCluster(t, h, api, testkit.NewEtcd(t), false)
	_, err := claiming.agents["west"].LeavePendingAffinity(t.Context())
	claiming.must(err)
	if diff := cmp.Diff(claim[:1], claiming.writes()); diff != "" {
		t.Errorf("LeavePendingAffinity is not the plugin's first write to claim a block (-plugin +simulator):\n%s", diff)
	}
	assigning := newCluster(t, h, api, testkit.NewEtcd(t), false)
	assigning.do(step{deed: add, host: "west", pod: "cart-a"})
	assigning.writes()
	handle, err := assigning.agents["west"].LeaveOrphanedHandle(t.Context())
	assigning.must(err)
	ofPod := caliconode.HandleID(inSandbox(object("cart-b", "west"), 0))
	want := strings.ReplaceAll(assignment[0], ofPod, handle)
	if diff := cmp.Diff([]string{want}, assigning.writes()); diff != "" {
		t.Errorf("LeaveOrphanedHandle is not the plugin's first write to assign an address (-plugin +simulator):\n%s", diff)
	}
}
