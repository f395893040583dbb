// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// unfits are the ways in which a Node's droplet cannot be a target, and what people are told of it.
func unfits() map[string]struct {
	make  func(b *bubble) sim.DropletSpec
	spoil func(b *bubble, d sim.Droplet)
	words string
} {
	return map[string]struct {
		make  func(b *bubble) sim.DropletSpec
		spoil func(b *bubble, d sim.Droplet)
		words string
	}{
		"of another region": {
			func(*bubble) sim.DropletSpec { return sim.DropletSpec{Region: "fra1"} }, nil,
			"which is in region fra1, and the load balancer is in nyc1",
		},
		"of another VPC": {
			func(b *bubble) sim.DropletSpec {
				return sim.DropletSpec{VPCUUID: b.cloud.Account("").AddVPC(sim.VPC{Name: "other", Region: "nyc1"}).ID}
			}, nil, "which is in VPC ",
		},
		"gone": {
			func(*bubble) sim.DropletSpec { return sim.DropletSpec{} }, func(b *bubble, d sim.Droplet) {
				must.Do(b.t, b.cloud.Account("").DeleteDroplet(fmt.Sprint(d.ID)))
			}, "",
		},
		"refused without a cause": {
			func(*bubble) sim.DropletSpec { return sim.DropletSpec{} }, func(b *bubble, d sim.Droplet) {
				b.cloud.Account("").RefuseTarget(d.ID)
			}, "which DigitalOcean refuses as a target: the request is not valid",
		},
	}
}

// TestOneBadTargetHarmsNobody: a Node whose droplet no load balancer takes, in whatever way and whenever it comes,
// keeps no Node that joins from any load balancer, no edit from taking effect, and no new Service from its load
// balancer. What was a target stays one. The Service says which Node and droplet it is, and calls stay few.
func TestOneBadTargetHarmsNobody(t *testing.T) {
	t.Parallel()
	for name, bad := range unfits() {
		for _, first := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, likeDigitalOcean())
				b.extras = everything
				for i := range 5 {
					b.member(fmt.Sprintf("node-%d", i))
				}
				if !first {
					b.serve("service-0", 1)
					b.serve("service-1", 2)
				}
				b.start(death{})
				defer b.stop()
				elapse(30 * time.Minute)
				spec := bad.make(b)
				spec.Name, spec.Tags = "bad", []string{workerTag}
				d := must.Get(b.cloud.Account("").CreateDroplet(spec)).Or(t)
				b.join("bad")
				for i := range 3 {
					b.boot(fmt.Sprintf("new-%d", i))
					b.join(fmt.Sprintf("new-%d", i))
				}
				if bad.spoil != nil {
					bad.spoil(b, d)
				}
				want := map[string]string{}
				for port, service := range []string{"service-0", "service-1", "service-2"} {
					if first || service == "service-2" {
						b.serve(service, int32(1+port)) //nolint:gosec // there are few
					}
					b.change(service, func(s *corev1.Service) {
						if s.Annotations == nil {
							s.Annotations = map[string]string{}
						}
						s.Annotations[annotation.Prefix+"healthcheck-healthy-threshold"] = "4"
					})
					want[service] = "4"
				}
				stats := b.spent(func() { elapse(10 * time.Minute) })
				b.checkTargets(fmt.Sprintf("%s, Services first %t", name, !first), d.ID, bad.words)
				t.Logf("%s, Services first %t: %d calls in ten minutes", name, !first, stats.Total)
				if stats.Total > 150 {
					t.Errorf("%s: %d calls in ten minutes: %v", name, stats.Total, stats.Routes)
				}
				quiet := b.spent(func() { elapse(50 * time.Minute) })
				if n := quiet.Total; n > 150 {
					t.Errorf("%s: %d calls in the rest of the hour: %v", name, n, quiet.Routes)
				}
			})
		}
	}
}

// checkTargets looks whether each load balancer has all good droplets and its settings, and whether the bad one is
// named.
func (b *bubble) checkTargets(what string, bad int, words string) {
	b.t.Helper()
	lbs := b.cloud.Account("").LoadBalancers()
	if len(lbs) != 3 {
		b.t.Errorf("%s: %d load balancers for three Services", what, len(lbs))
	}
	for _, lb := range lbs {
		if len(lb.DropletIDs) != 8 || slices.Contains(lb.DropletIDs, bad) {
			b.t.Errorf("%s: %s has the targets %v, want the eight good ones without %d", what, lb.Name, lb.DropletIDs, bad)
		}
		if lb.HealthCheck.HealthyThreshold != 4 {
			b.t.Errorf("%s: %s has not the settings of its Service", what, lb.Name)
		}
	}
	if words == "" {
		return
	}
	for _, service := range []string{"service-0", "service-1", "service-2"} {
		if !slices.ContainsFunc(b.events(), func(e corev1.Event) bool {
			return e.InvolvedObject.Name == service && e.Reason == loadbalancer.ReasonLeftOut &&
				strings.Contains(e.Message, fmt.Sprintf("node bad has droplet %d, %s", bad, words))
		}) {
			b.t.Errorf("%s: %s does not say which Node is left out", what, service)
		}
	}
}
