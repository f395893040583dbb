// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A load balancer takes a minute, and is busy for a while after each change.
func likeDigitalOcean() sim.Options {
	return sim.Options{Seed: 1, LoadBalancers: sim.LoadBalancerOptions{ActiveAfter: time.Minute, BusyAfterUpdate: time.Second}}
}

// settled is a cluster that has run for half an hour, and nothing is left to do.
func settled(tb testing.TB, nodes, services int) *bubble {
	tb.Helper()
	b := newBubble(tb, likeDigitalOcean())
	b.extras = everything
	for i := range nodes {
		b.member(fmt.Sprintf("node-%d", i))
	}
	for i := range services {
		b.serve(fmt.Sprintf("service-%d", i), int32(1+i)) //nolint:gosec // there are few
	}
	b.start(death{})
	elapse(30 * time.Minute)
	if n := len(b.cloud.Account("").LoadBalancers()); n != services {
		tb.Fatalf("%d load balancers for %d Services", n, services)
	}
	return b
}

// spent is what was asked of DigitalOcean while something was done.
func (b *bubble) spent(deed func()) journal.Stats {
	b.t.Helper()
	b.cloud.ResetJournal()
	deed()
	stats := b.cloud.Stats()
	for route, s := range stats.Routes {
		if s.Statuses[429] > 0 {
			b.t.Errorf("%d calls of %s were turned away", s.Statuses[429], route)
		}
	}
	if stats.PeakPerMinute > 250 {
		b.t.Errorf("%d calls within a minute", stats.PeakPerMinute)
	}
	return stats
}

// balancerCalls are the calls that have to do with load balancers.
func balancerCalls(stats journal.Stats) int {
	n := 0
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		n += stats.Count(method + " /v2/load_balancers")
	}
	return n
}

// idle is an hour in which nothing happens: the upstream project's figures are those of its formula, 12 for each Node and 20 for the rest, which
// agrees with what was measured.
type idle struct{ nodes, services, notReady, most, predecessor int }

func idles() []idle {
	return []idle{
		{nodes: 200, services: 50, notReady: 10, most: 180, predecessor: 2420 + 10*1440},
		{nodes: 1000, services: 50, most: 420, predecessor: 12_020},
		{nodes: 5000, services: 50, most: 1600, predecessor: 60_024},
		{nodes: 1000, services: 50, notReady: 50, most: 420 + 600, predecessor: 12_020 + 50*1440},
	}
}

func (i idle) String() string {
	return fmt.Sprintf("%d nodes, %d of them not ready, %d services", i.nodes, i.notReady, i.services)
}

// run returns the calls of the hour.
func (i idle) run(tb testing.TB) journal.Stats {
	tb.Helper()
	b := settled(tb, i.nodes, i.services)
	defer b.stop()
	for n := range i.notReady {
		b.unready(fmt.Sprintf("node-%d", n))
	}
	stats := b.spent(func() { elapse(time.Hour) })
	if stats.Writes() > 0 || b.nodes() != i.nodes {
		tb.Errorf("%d writes, %d Nodes are left: %v", stats.Writes(), b.nodes(), stats.Routes)
	}
	return stats
}

// An hour in which nothing happens costs as many calls as there are pages, not as there are Nodes and load balancers.
func TestIdleHour(t *testing.T) {
	t.Parallel()
	most := cases.Number(t, 200, 5000, 5000) // the hour of 5,000 nodes takes half a minute of one processor
	hours := slices.DeleteFunc(idles(), func(i idle) bool { return i.nodes > most })
	for _, i := range cases.Sample(t, 1, hours...) {
		t.Run(i.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stats := i.run(t)
				t.Logf("%d calls, the upstream project makes %d: %v", stats.Total, i.predecessor, stats.Routes)
				if stats.Total > i.most {
					t.Errorf("%d calls, want %d at most", stats.Total, i.most)
				}
			})
		})
	}
}

// Nodes of which nothing can be said use what there is for them and not more, whatever DigitalOcean answers: here each GET by ID fails.
func TestNodesInDoubtCostABoundedNumberOfCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const nodes, lost = 200, 60
		b := settled(t, nodes, 1)
		defer b.stop()
		quiet := b.spent(func() { elapse(time.Hour) }).Total
		must.Do(t, b.cloud.Inject(fault.Rule{Route: "GET /v2/droplets/{droplet_id}", Kind: fault.Error, Nth: 1, Times: -1}))
		for n := range lost {
			must.Do(t, b.cloud.Account("").DeleteDroplet(fmt.Sprintf("node-%d", n)))
			b.unready(fmt.Sprintf("node-%d", n))
		}
		elapse(time.Minute)
		b.cloud.ResetJournal()
		asked := map[string]int{}
		stats := b.spent(func() { elapse(time.Hour) })
		elapse(30 * time.Minute) // each has its turn
		for _, e := range b.cloud.Requests(journal.Filter{Route: "GET /v2/droplets/{droplet_id}"}) {
			asked[e.URL]++ // all are kept: there are fewer than 4,096
		}
		t.Logf("%d calls, %d in a quiet hour, the upstream project makes %d more: %v", stats.Total, quiet, lost*1440, stats.Routes)
		if more := stats.Total - quiet; more > 100 {
			t.Errorf("%d more calls in an hour, want 100 at most", more)
		}
		least := math.MaxInt
		most := 0
		for _, n := range asked {
			least, most = min(least, n), max(most, n)
		}
		if len(asked) != lost || most > 2*least {
			t.Errorf("%d of %d were asked for, some %d times and some %d", len(asked), lost, least, most)
		}
	})
}

// A machine that joins is served although DigitalOcean refuses the droplet of one that is lost, whose Node is still there: the list that
// tells which are lost may be older than the new machine.
func TestAMachineThatJoinsIsServedWhileALostOneLingers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 5, 1)
		defer b.stop()
		must.Do(t, b.cloud.Account("").DeleteDroplet("node-0"))
		b.change("service-0", func(s *corev1.Service) { s.Annotations[annotation.Prefix+"healthcheck-healthy-threshold"] = "4" }) // a PUT with all droplets
		elapse(time.Second)
		b.boot("new")
		b.join("new")
		elapse(30 * time.Second)
		droplet := must.Get(b.cloud.Account("").Droplet("new")).Or(t)
		if lbs := b.cloud.Account("").LoadBalancers(); !slices.Contains(lbs[0].DropletIDs, droplet.ID) || len(lbs[0].DropletIDs) != 5 {
			t.Errorf("the load balancer has %v, droplet %d has joined", lbs[0].DropletIDs, droplet.ID)
		}
	})
}

// Half of a cluster is scaled down: the Nodes go as soon as it is proven that their machines have.
func TestALargeScaleDownIsDoneInMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 200, 1)
		defer b.stop()
		for n := range 100 {
			must.Do(t, b.cloud.Account("").DeleteDroplet(fmt.Sprintf("node-%d", n)))
			b.unready(fmt.Sprintf("node-%d", n))
		}
		began := time.Now()
		stats := b.spent(func() {
			for range 180 {
				if elapse(time.Second); b.nodes() == 100 {
					break
				}
			}
		})
		t.Logf("%d Nodes are left after %s and %d calls", b.nodes(), time.Since(began), stats.Total)
		if n := b.nodes(); n != 100 {
			t.Errorf("%d Nodes are left after three minutes, want 100", n)
		}
	})
}

// awaitResync lets time pass until all load balancers have just been looked at, as they are every five to six minutes.
func (b *bubble) awaitResync() {
	b.t.Helper()
	b.cloud.ResetJournal()
	for range 400 {
		elapse(time.Second)
		if _, listed := b.cloud.Stats().Routes["GET /v2/load_balancers"]; listed {
			return
		}
	}
	b.t.Fatal("load balancers were not looked at for 400 s")
}

// Ten Nodes join within ten seconds. The upstream project reads and writes each load balancer for each of them.
func TestJoiningNodesAreOneChangeOfEachLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 30, 6)
		defer b.stop()
		b.awaitResync() // the next is five minutes away
		for i := range 10 {
			b.boot(fmt.Sprintf("new-%d", i))
		}
		elapse(30 * time.Second)
		stats := b.spent(func() {
			for i := range 10 {
				b.join(fmt.Sprintf("new-%d", i))
				elapse(time.Second)
			}
			elapse(time.Minute)
		})
		t.Logf("%d calls about load balancers, the upstream project makes 120; %d in all: %v", balancerCalls(stats), stats.Total, stats.Routes)
		if n := balancerCalls(stats); n > 8 {
			t.Errorf("%d calls, want 8 at most", n)
		}
		for _, lb := range b.cloud.Account("").LoadBalancers() {
			if len(lb.DropletIDs) != 40 {
				t.Errorf("load balancer %s has %d droplets, want 40", lb.Name, len(lb.DropletIDs))
			}
		}
	})
}

// Machines that are made and join one a second are described within a second each, by a call each: nobody waits for a list that is old enough.
func TestJoiningNodesAreDescribedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 30, 6)
		defer b.stop()
		b.awaitResync()
		stats := b.spent(func() {
			for i := range 10 {
				name := fmt.Sprintf("new-%d", i)
				b.boot(name)
				b.join(name)
				elapse(time.Second)
				if node := b.node(name); node.Spec.ProviderID == "" || len(node.Spec.Taints) > 0 {
					t.Errorf("node %s has waited for a second: provider ID %q, taints %v", name, node.Spec.ProviderID, node.Spec.Taints)
				}
			}
		})
		calls := stats.Total - balancerCalls(stats)
		t.Logf("%d calls about machines, the upstream project makes 10: %v", calls, stats.Routes)
		if calls > 12 {
			t.Errorf("%d calls about machines for 10 that join, want 12 at most: %v", calls, stats.Routes)
		}
	})
}

// A machine whose public address comes after its Node was described is a target within seconds of it, not at the framework's next look at
// addresses; one that never gets any costs a few calls.
func TestAPublicAddressThatComesLateIsServedSoon(t *testing.T) {
	t.Parallel()
	for after, most := range map[time.Duration]time.Duration{8 * time.Second: 15 * time.Second, 100 * time.Second: 100 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := settled(t, 5, 1)
			defer b.stop()
			b.awaitResync()
			account := b.cloud.Account("")
			private := func(name string) sim.Networks {
				b.boot(name)
				droplet := must.Get(account.Droplet(name)).Or(t)
				some := sim.Networks{V4: slices.DeleteFunc(slices.Clone(droplet.Networks.V4), func(n sim.NetworkV4) bool { return n.Type == "public" })}
				must.Do(t, account.SetDropletNetworks(name, some))
				return droplet.Networks
			}
			all := private("late")
			stats := b.spent(func() {
				b.join("late")
				elapse(after)
				must.Do(t, account.SetDropletNetworks("late", all))
				elapse(most)
			})
			droplet := must.Get(account.Droplet("late")).Or(t)
			if lb := account.LoadBalancers()[0]; !slices.Contains(lb.DropletIDs, droplet.ID) {
				t.Errorf("%s after its public address came, which took %s, the machine is not a target: %v, %v", most, after, b.node("late").Status.Addresses, stats.Routes)
			}
			private("never")
			b.join("never")
			elapse(time.Minute)
			stats = b.spent(func() { elapse(14 * time.Minute) })
			if calls := stats.Total - balancerCalls(stats); calls > 3*2+14+15 { // looks at addresses, which list twice, and what 14 minutes cost without
				t.Errorf("%d calls for a machine without a public address: %v", calls, stats.Routes)
			}
		})
	}
}

// A port that somebody else has opened in the firewall is closed in little more than a minute.
func TestAnOpenedPortIsClosedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 3, 1)
		defer b.stop()
		account := b.cloud.Account("")
		before := len(account.Firewalls()[0].InboundRules)
		if err := account.EditFirewall(account.Firewalls()[0].ID, func(f *sim.Firewall) {
			f.InboundRules = append(f.InboundRules, sim.InboundRule{Protocol: "tcp", Ports: "22", Sources: sim.Peers{Addresses: []string{"0.0.0.0/0"}}})
		}); err != nil {
			t.Fatal(err)
		}
		elapse(75 * time.Second)
		if rules := account.Firewalls()[0].InboundRules; len(rules) != before {
			t.Errorf("75 s later: %v", rules)
		}
	})
}

// rolling replaces Nodes one after the other, and returns the calls and how long it took.
func rolling(tb testing.TB, nodes, services int, every time.Duration) (journal.Stats, time.Duration) {
	tb.Helper()
	b := settled(tb, nodes, services)
	defer b.stop()
	began := time.Now()
	b.boot("new-0")
	stats := b.spent(func() {
		for i := range nodes {
			b.boot(fmt.Sprintf("new-%d", i+1))
			elapse(every / 2)
			b.join(fmt.Sprintf("new-%d", i))
			b.leave(fmt.Sprintf("node-%d", i))
			elapse(every / 2)
		}
		elapse(time.Minute)
	})
	for _, lb := range b.cloud.Account("").LoadBalancers() {
		if len(lb.DropletIDs) != nodes {
			tb.Errorf("load balancer %s has %d droplets, want %d", lb.Name, len(lb.DropletIDs), nodes)
		}
	}
	return stats, time.Since(began)
}

// A rolling replacement costs a change of each load balancer in each fifteen seconds at most, however many Nodes are replaced in them.
func TestRollingReplacementIsBoundedByTime(t *testing.T) {
	t.Parallel()
	for _, every := range cases.Sample(t, 1, time.Minute, 6*time.Second) {
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const nodes, services = 100, 20
				stats, took := rolling(t, nodes, services, every)
				most := services * (int(took/(15*time.Second)) + 3) // a burst of three, and one in each fifteen seconds
				t.Logf("%s: %d changes of load balancers, %d calls about them, the upstream project makes %d: %v", took, stats.Writes(),
					balancerCalls(stats), 4*nodes*services, stats.Routes)
				if n := stats.Count("POST /v2/load") + stats.Count("PUT /v2/load") + stats.Count("DELETE /v2/load"); n > most {
					t.Errorf("%d changes of load balancers in %s, want %d at most", n, took, most)
				}
				if reads := stats.Count("GET /v2/load"); reads > int(took/(5*time.Second)) {
					t.Errorf("%d lists of load balancers in %s", reads, took)
				}
			})
		})
	}
}

// Many Services at once are served as fast as the limits allow: no minute has more than 250 calls, none is turned away, and none is a PUT to a load
// balancer that is still being made.
func TestManyServicesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services = 150
		b := settled(t, 3, 1)
		defer b.stop()
		stats := b.spent(func() {
			for i := range services {
				b.serve(fmt.Sprintf("more-%d", i), int32(1000+i)) //nolint:gosec // there are few
			}
			elapse(10 * time.Minute)
		})
		t.Logf("%d calls, %d in the busiest minute: %v", stats.Total, stats.PeakPerMinute, stats.Routes)
		if n := len(b.cloud.Account("").LoadBalancers()); n != services+1 {
			t.Errorf("%d load balancers, want %d", n, services+1)
		}
		if stats.Count("PUT /v2/load_balancers") > 0 || stats.Count("POST /v2/load_balancers") != services {
			t.Errorf("%v", stats.Routes)
		}
		if most := 2*services + 120; balancerCalls(stats) > most {
			t.Errorf("%d calls, want %d at most", balancerCalls(stats), most)
		}
		for name, address := range b.addresses() {
			if address == "" {
				t.Errorf("Service %s has no address", name)
			}
		}
	})
}

// The address of a load balancer is published within seconds after DigitalOcean has made it, without a warning, by lists that are shared.
func TestNewLoadBalancersArePublishedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const services = 20
		b := settled(t, 3, 0)
		defer b.stop()
		stats := b.spent(func() {
			for i := range services {
				b.serve(fmt.Sprintf("service-%d", i), int32(1+i)) //nolint:gosec // there are few
			}
			elapse(time.Minute + 8*time.Second)
		})
		for name, address := range b.addresses() {
			if address == "" {
				t.Errorf("Service %s has no address", name)
			}
		}
		t.Logf("%v", stats.Routes)
		if most := 2*services + 2 + 15; balancerCalls(stats) > most || stats.Count("PUT") > 0 {
			t.Errorf("%d calls, want %d at most: %v", balancerCalls(stats), most, stats.Routes)
		}
		warnings := map[string]int{}
		for _, e := range b.events() {
			warnings[e.Type+" "+e.Reason]++
		}
		if warnings["Normal EnsuringLoadBalancer"] < services || warnings["Warning SyncLoadBalancerFailed"] > 0 || warnings["Normal EnsuredLoadBalancer"] != services || warnings["Normal LoadBalancerPending"] != services {
			t.Errorf("events %v", warnings)
		}
	})
}

// While DigitalOcean has said to wait not one call is made, on any route; and when it is over all goes on.
func TestNoCallIsWastedWhileLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 50, 10)
		defer b.stop()
		for n := range 5 {
			b.unready(fmt.Sprintf("node-%d", n))
		}
		must.Do(t, b.cloud.Inject(fault.Rule{Kind: fault.TooManyRequests, Delay: 2 * time.Minute, Probability: 0.3}))
		b.cloud.ResetJournal()
		for i := range 10 {
			b.boot(fmt.Sprintf("new-%d", i))
			b.join(fmt.Sprintf("new-%d", i))
			b.serve(fmt.Sprintf("more-%d", i), int32(1000+i)) //nolint:gosec // there are few
			elapse(time.Minute)
		}
		elapse(2 * time.Hour)
		// Calls of the same instant as an answer were under way when it came: time stands still in here while anything runs.
		answered, limited, wasted := time.Time{}, 0, 0
		for _, e := range b.cloud.Requests(journal.Filter{}) {
			if e.Time.After(answered) && e.Time.Before(answered.Add(2*time.Minute)) {
				wasted++
			}
			if e.Status == 429 {
				limited++
				answered = e.Time
			}
		}
		t.Logf("%d calls were turned away, %d were made in vain", limited, wasted)
		if limited < 10 || wasted > 0 {
			t.Errorf("%d calls were turned away, %d were made before it was time", limited, wasted)
		}
		b.cloud.ClearFaults()
		elapse(time.Hour)
		for _, lb := range b.cloud.Account("").LoadBalancers() {
			if len(lb.DropletIDs) != 60 {
				t.Errorf("load balancer %s has %d droplets, want 60", lb.Name, len(lb.DropletIDs))
			}
		}
		if n := len(b.cloud.Account("").LoadBalancers()); n != 20 {
			t.Errorf("%d load balancers, want 20", n)
		}
	})
}

// BenchmarkCalls prints the calls of an hour, and of a rolling replacement of Nodes, alongside the upstream project's.
func BenchmarkCalls(b *testing.B) {
	report := func(b *testing.B, ours, predecessor int) {
		b.Helper()
		b.ReportMetric(float64(ours), "calls")
		b.ReportMetric(float64(predecessor), "predecessor's")
		b.ReportMetric(float64(predecessor)/float64(ours), "times-fewer")
		b.ReportMetric(0, "ns/op")
	}
	for _, i := range idles() {
		b.Run("hour of "+i.String(), func(b *testing.B) {
			inBubble(b, func(tb testing.TB) { report(b, i.run(tb).Total, i.predecessor) })
		})
	}
	b.Run("replacing 100 nodes one a minute, 20 services", func(b *testing.B) {
		inBubble(b, func(tb testing.TB) {
			stats, _ := rolling(tb, 100, 20, time.Minute)
			report(b, balancerCalls(stats), 4*100*20)
		})
	})
}

// BenchmarkMemory prints what an hour of 5,000 Nodes takes: the live heap, and what the process has of the system at most. The simulator and the
// objects of the API server are part of it.
func BenchmarkMemory(b *testing.B) {
	const most = 400 << 20
	inBubble(b, func(tb testing.TB) {
		c := settled(tb, 5000, 50)
		defer c.stop()
		elapse(time.Hour)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc>>20), "MiB-live")
		b.ReportMetric(float64(before.Sys>>20), "MiB-of-the-system")
		b.ReportMetric(0, "ns/op")
		if after.HeapAlloc > most {
			tb.Errorf("%d MiB live, want %d at most", after.HeapAlloc>>20, most>>20)
		}
	})
}
