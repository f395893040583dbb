// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// A Node that may not be its droplet brings in no target and takes none away: what is one stays, be it that a droplet was renamed, unless another Node has
// it. Without a Node that is a target no load balancer is made.
func TestDisputedNodes(t *testing.T) {
	t.Parallel()
	disputed := func(owned bool) instance.Identities {
		return instance.Identities{Disputed: map[string]instance.Dispute{"node-3": {Droplet: 3, Why: "names droplet 3", Owned: owned}}}
	}
	unseen := instance.Identities{Unseen: map[string]int{"node-3": 3}}
	for name, tt := range map[string]struct {
		ids     instance.Identities
		current []int
		want    []int
		leftOut string
		reads   bool
	}{
		"new":                         {disputed(false), []int{1, 2}, []int{1, 2}, "names droplet 3", false},
		"of a new load balancer":      {disputed(false), nil, []int{1, 2}, "names droplet 3", false},
		"a target":                    {disputed(false), []int{1, 3}, []int{1, 2, 3}, "", false},
		"a target by another node":    {disputed(true), []int{1, 3}, []int{1, 2}, "names droplet 3", false},
		"not seen yet":                {unseen, []int{1, 2}, []int{1, 2}, "names a droplet that DigitalOcean does not show yet", true},
		"a target that was not seen":  {unseen, []int{1, 3}, []int{1, 2, 3}, "", false},
		"nothing speaks against them": {instance.Identities{}, []int{1}, []int{1, 2, 3}, "", false},
	} {
		in := input(service())
		in.Nodes = nodes(v4(1), v4(2), v4(3))
		if tt.current != nil {
			o := keeps(desired(t, in))
			o.DropletIDs = tt.current
			in.Observed = &o
		}
		in.Identities = &tt.ids
		got, err := loadbalancer.Desired(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(got.Request.DropletIDs, tt.want) {
			t.Errorf("%s: targets %v, want %v", name, got.Request.DropletIDs, tt.want)
		}
		var reasons []string
		for _, l := range got.LeftOut {
			reasons = append(reasons, l.Reason)
		}
		if why := strings.Join(reasons, "; "); why != tt.leftOut {
			t.Errorf("%s: left out because it %q, want %q", name, why, tt.leftOut)
		}
		if reads := loadbalancer.NeedsOf(in).Droplets; reads != tt.reads {
			t.Errorf("%s: droplets are read: %v", name, reads)
		}
	}
	in := input(service())
	ids := disputed(false)
	in.Nodes, in.Identities = nodes(v4(3)), &ids
	if _, err := loadbalancer.Desired(in); !errors.Is(err, loadbalancer.ErrNoNodes) || !strings.Contains(err.Error(), "node node-3 names droplet 3") {
		t.Error(err)
	}
}
