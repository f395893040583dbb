// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// hands are what somebody changes in DigitalOcean's panel.
func hands() map[string]func(*sim.LoadBalancer) {
	return map[string]func(*sim.LoadBalancer){
		"a rule is added": func(lb *sim.LoadBalancer) {
			lb.ForwardingRules = append(lb.ForwardingRules, sim.ForwardingRule{
				EntryProtocol: "tcp", EntryPort: 22, TargetProtocol: "tcp", TargetPort: 22,
			})
		},
		"a rule leads elsewhere":  func(lb *sim.LoadBalancer) { lb.ForwardingRules[0].TargetPort = 22 },
		"targets are taken away":  func(lb *sim.LoadBalancer) { lb.DropletIDs = lb.DropletIDs[:1] },
		"the health check":        func(lb *sim.LoadBalancer) { lb.HealthCheck.Port = 9 },
		"its firewall":            func(lb *sim.LoadBalancer) { lb.Firewall = sim.LBFirewall{Deny: []string{"cidr:0.0.0.0/0"}} },
		"somebody's proxy header": func(lb *sim.LoadBalancer) { lb.EnableProxyProtocol = true },
	}
}

// settings are those of a load balancer that people change.
func settings(lb sim.LoadBalancer) []any {
	return []any{lb.ForwardingRules, lb.DropletIDs, lb.HealthCheck, lb.Firewall, lb.EnableProxyProtocol}
}

// What somebody changes of a load balancer elsewhere is put right within a minute, and of one that is deleted another is
// made, by the one list that is read anyway: whatever it is, whenever it happens, and also right after a change of our own.
func TestDriftIsRepairedWithinAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 3, 3)
		defer b.stop()
		account := b.cloud.Account("")
		var slowest time.Duration
		wait := time.Duration(0)
		repaired := func(what string, done func() bool) {
			t.Helper()
			began := time.Now()
			for !done() && time.Since(began) < 10*time.Minute {
				elapse(time.Second)
			}
			slowest = max(slowest, time.Since(began))
			if took := time.Since(began); took > time.Minute {
				t.Errorf("%s: repaired after %s", what, took)
			}
			wait += 7 * time.Second // another moment of the period each time
			elapse(wait)
		}
		b.cloud.ResetJournal()
		its := func() sim.LoadBalancer {
			lb := must.Get(account.LoadBalancer(b.service("service-0").Annotations[annotation.LoadBalancerID])).Or(t)
			return lb
		}
		for what, hand := range hands() {
			lb := its()
			before := settings(lb)
			must.Do(t, account.EditLoadBalancer(lb.ID, hand))
			repaired(what, func() bool { now, _ := account.LoadBalancer(lb.ID); return reflect.DeepEqual(settings(now), before) })
		}
		if n := b.cloud.Stats().Count("GET /v2/load_balancers/{lb_id}"); n > 0 {
			t.Errorf("%d load balancers were read one by one", n)
		}
		lb := its()
		b.set("default", "service-0", "7") // what the list shows soon after counts less than this change
		elapse(2 * time.Second)
		must.Do(t, account.EditLoadBalancer(lb.ID, hands()["the health check"]))
		repaired("right after a change of our own", func() bool { now, _ := account.LoadBalancer(lb.ID); return now.HealthCheck.Port != 9 })
		must.Do(t, account.DeleteLoadBalancer(lb.ID))
		repaired("deleted", func() bool { return len(account.LoadBalancers()) == 3 })
		told := 0
		for _, e := range b.events() {
			if e.Reason == loadbalancer.ReasonRepaired {
				told++
			}
		}
		if told < len(hands())-1 { // of targets alone nothing is reported
			t.Errorf("%d Events of repairs", told)
		}
		t.Logf("the slowest of %d repairs took %s", len(hands())+2, slowest)
	})
}

// An idle hour with 1,000 Nodes and 50 load balancers costs no more calls than when the list of load balancers was read
// every five minutes: that of droplets is read less often while nothing is expected of it. Three hours are counted, for
// what is read each half hour is read three times in some hours.
func TestDriftCostsNoMoreCalls(t *testing.T) {
	t.Parallel()
	const before = 79 // 67 for droplets, 11 for load balancers, and one for the account
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 1000, 50)
		defer b.stop()
		hours := cases.Number(t, 1, 1, 3)
		stats := b.spent(func() { elapse(time.Duration(hours) * time.Hour) })
		calls := stats.Total - stats.Count("GET /v2/firewalls/{firewall_id}")
		t.Logf("%d calls in %d hours without those for the firewall, %d an hour before: %v",
			calls, hours, before, stats.Routes)
		if calls > hours*before {
			t.Errorf("%d calls, want %d at most", calls, hours*before)
		}
	})
}

// Machines that are not ready cost a hundred calls an hour at most, for all of them together.
func TestNotReadyMachinesCostAHundredCalls(t *testing.T) {
	t.Parallel()
	type failure struct{ lost, nodes int }
	nodes := cases.Number(t, 200, 1000, 1000)
	failures := []failure{{1, nodes}, {10, nodes}, {100, nodes}}
	if cases.Number(t, 1000, 5000, 5000) == 5000 { // which takes a minute of one processor
		failures = append(failures, failure{100, 5000})
	}
	for _, f := range cases.Sample(t, 1, failures...) {
		t.Run(fmt.Sprintf("%d of %d", f.lost, f.nodes), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := settled(t, f.nodes, 1)
				defer b.stop()
				quiet := b.spent(func() { elapse(time.Hour) })
				for n := range f.lost {
					b.unready(fmt.Sprintf("node-%d", n))
				}
				for hour := range 2 {
					stats := b.spent(func() { elapse(time.Hour) })
					t.Logf("hour %d: %d calls more than %d", hour+1, stats.Total-quiet.Total, quiet.Total)
					if more := stats.Total - quiet.Total; more > 100 {
						t.Errorf("hour %d: %d calls more than %d: %v", hour+1, more, quiet.Total, stats.Routes)
					}
				}
				// One whose droplet is destroyed now is not forgotten.
				must.Do(t, b.cloud.Account("").DeleteDroplet("node-0"))
				if elapse(28 * time.Minute); b.has("node-0") {
					t.Error("28 minutes after its droplet was destroyed the Node is still there")
				}
			})
		})
	}
}
