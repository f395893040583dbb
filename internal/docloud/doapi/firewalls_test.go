// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func firewallRequest(name string) firewall.Request {
	anywhere := firewall.Peers{Addresses: []string{"0.0.0.0/0", "::/0"}}
	return firewall.Request{
		Name: name, Tags: []string{"k8s:worker"},
		InboundRules:  []firewall.InboundRule{{Protocol: "tcp", Ports: "80", Sources: anywhere}},
		OutboundRules: []firewall.OutboundRule{{Protocol: "tcp", Ports: "all", Destinations: anywhere}, {Protocol: "icmp", Destinations: anywhere}},
	}
}

// A firewall's life: what was sent does not differ from what comes back.
func TestFirewalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		droplets(t, cloud, 1, sim.DropletSpec{Tags: []string{"k8s:worker"}})
		c, ctx := client(t, cloud), t.Context()
		request := firewallRequest("fw")
		made, err := c.CreateFirewall(ctx, request)
		if err != nil || made.ID == "" || len(firewall.Diff(made, request)) > 0 {
			t.Fatalf("%+v, %v", made, err)
		}
		if _, err := c.CreateFirewall(ctx, request); !errors.Is(err, doapi.ErrRefused) {
			t.Errorf("a second one of the name: %v", err)
		}
		request.InboundRules = nil
		updated, err := c.UpdateFirewall(ctx, made.ID, request)
		if err != nil || updated.ID != made.ID || len(firewall.Diff(updated, request)) > 0 {
			t.Errorf("%+v, %v", updated, err)
		}
		if got, err := c.Firewall(ctx, made.ID); err != nil || got.Name != "fw" || !slices.Equal(got.Tags, request.Tags) {
			t.Errorf("%+v, %v", got, err)
		}
		request.Tags = []string{"nobody"}
		if _, err := c.UpdateFirewall(ctx, made.ID, request); !errors.Is(err, doapi.ErrRefused) {
			t.Errorf("a tag that does not exist: %v", err)
		}
		for range 2 { // one that is gone is not an error
			if err := c.DeleteFirewall(ctx, made.ID); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Firewall(ctx, made.ID); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := c.UpdateFirewall(ctx, made.ID, firewallRequest("fw")); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("after the end: %v", err)
		}
		for _, id := range []string{"", ".", ".."} {
			_, get := c.Firewall(ctx, id)
			_, put := c.UpdateFirewall(ctx, id, request)
			if get == nil || put == nil || c.DeleteFirewall(ctx, id) == nil {
				t.Errorf("the ID %q was asked for", id)
			}
		}
	})
}

// All pages or an error, and a POST that may have been made is not made again.
func TestFirewallsAreWholeAndAmbiguityIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		droplets(t, cloud, 1, sim.DropletSpec{Tags: []string{"k8s:worker"}})
		c, ctx := client(t, cloud), t.Context()
		for i := range 201 {
			made := sim.Firewall{Name: fmt.Sprintf("fw-%d", i), InboundRules: []sim.InboundRule{{Protocol: "tcp", Ports: "80"}}}
			must.Get(cloud.Account("").CreateFirewall(made)).Or(t)
		}
		if all, err := c.Firewalls(ctx); err != nil || len(all) != 201 {
			t.Errorf("%d firewalls, %v", len(all), err)
		}
		inject(t, cloud, fault.Rule{Route: "GET /v2/firewalls", Kind: fault.OmitItems, Fraction: .1, Nth: 1, Times: -1})
		if all, err := c.Firewalls(ctx); err == nil {
			t.Errorf("%d firewalls of 201 and no error", len(all))
		}
		for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON, fault.ShortBody} {
			inject(t, cloud, fault.Rule{Route: "POST /v2/firewalls", Kind: kind, Nth: 1})
			before := len(cloud.Account("").Firewalls())
			if _, err := c.CreateFirewall(ctx, firewallRequest(string(kind))); !errors.Is(err, doapi.ErrAmbiguous) {
				t.Errorf("%s: %v", kind, err)
			}
			if after := len(cloud.Account("").Firewalls()); after != before+1 {
				t.Errorf("%s: %d firewalls were made", kind, after-before)
			}
		}
	})
}

func TestTags(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		c, ctx := client(t, cloud), t.Context()
		lb := must.Get(c.CreateLoadBalancer(ctx, request("web"), loadbalancer.CreateOnly{})).Or(t)
		if err := c.TagLoadBalancers(ctx, "k8s:new", []string{lb.ID}); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("without the tag: %v", err)
		}
		for range 2 { // one that is there is no error
			if err := c.CreateTag(ctx, "k8s:new"); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if err := c.TagLoadBalancers(ctx, "k8s:new", []string{lb.ID}); err != nil {
				t.Error(err)
			}
		}
		if got, err := c.LoadBalancer(ctx, lb.ID); err != nil || !slices.Contains(got.Tags, "k8s:new") {
			t.Errorf("tags %v, %v", got.Tags, err)
		}
		if err := c.TagLoadBalancers(ctx, "k8s:new", []string{lb.ID, "gone"}); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("with one that is gone: %v", err)
		}
		if err := c.CreateTag(ctx, "a b"); !errors.Is(err, doapi.ErrRefused) {
			t.Errorf("a name that is none: %v", err)
		}
		if c.TagLoadBalancers(ctx, "", []string{lb.ID}) == nil || c.TagLoadBalancers(ctx, "k8s:new", nil) == nil {
			t.Error("no tag and no load balancer are taken")
		}
	})
}
