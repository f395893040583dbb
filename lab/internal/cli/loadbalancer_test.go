// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
)

func TestPrintLoadBalancers(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	must.Do(t, printLoadBalancers(&out, []digitalocean.LoadBalancer{
		{Name: "web", Status: "active", IP: "198.19.0.2", DropletIDs: []int{3, 2, 9}}, {Name: "young", Status: "new"},
	}, []cloud.Droplet{{ID: 2, Name: "node-1"}, {ID: 3, Name: "node-2"}}))
	want := "LOAD BALANCER   STATUS   ADDRESS      TARGETS\n" +
		"web             active   198.19.0.2   node-1, node-2, 9\n" +
		"young           new      -            -\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}
}
