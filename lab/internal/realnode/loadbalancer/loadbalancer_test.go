// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/realnode/loadbalancer"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	const network = "REGIONAL_NETWORK"
	check := digitalocean.HealthCheck{Protocol: "http", Port: 10256, Path: "/healthz"}
	got := loadbalancer.Plan([]digitalocean.LoadBalancer{
		{IP: "198.19.0.1", Type: network, HealthCheck: check, DropletIDs: []int{3, 1, 2, 9}},
		{IP: "198.19.0.2", Type: network, HealthCheck: digitalocean.HealthCheck{Protocol: "tcp", Port: 80, Path: "/"}, DropletIDs: []int{1}},
		{IP: "198.19.0.3", Type: network},
		{IP: "198.19.0.4", Type: "REGIONAL", DropletIDs: []int{1}},
		{IP: "", Type: network, DropletIDs: []int{1}}, // it has no address yet
	}, []cloud.Droplet{
		{ID: 1, Status: "active", PrivateIP: "172.30.0.3"}, {ID: 2, Status: "off", PrivateIP: "172.30.0.4"}, {ID: 3, Status: "active", PrivateIP: "172.30.0.2"},
	})
	at := netip.MustParseAddr
	want := map[netip.Addr][]loadbalancer.Target{
		at("198.19.0.1"): {{Address: at("172.30.0.2"), Port: 10256, Path: "/healthz"}, {Address: at("172.30.0.3"), Port: 10256, Path: "/healthz"}},
		at("198.19.0.2"): {{Address: at("172.30.0.3"), Port: 80}},
		at("198.19.0.3"): {},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}
