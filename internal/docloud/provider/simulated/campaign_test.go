// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Whatever fails and whenever the leader is killed: all ends as it must be, nothing was made twice or
// deleted that should not be, and nothing was done to what is another cluster's, a person's or another Service's, whoever names it.
func TestAnyHistoryConverges(t *testing.T) {
	t.Parallel()
	const batch = 25
	first, all := cases.Seed(t), uint64(cases.Number(t, 50, 200, 10_000)) //nolint:gosec // it is not negative
	for from := uint64(0); from < all; from += batch {
		t.Run(fmt.Sprintf("from %d", from), func(t *testing.T) {
			t.Parallel()
			sum, played := tally{}, 0
			for number := from; number < from+batch; number++ {
				t.Run(fmt.Sprint(number), func(t *testing.T) { //nolint:paralleltest // a batch is as much as runs at a time
					cases.Seed(t)
					synctest.Test(t, func(t *testing.T) {
						h := newHistory(t, first+number)
						h.play()
						sum.add(h.tally)
						played++
					})
				})
			}
			t.Logf("%+v", sum)
			if played < batch {
				return // -run has chosen one
			}
			if slices.Contains([]int{
				sum.leaders, sum.faults, sum.limited, sum.made, sum.changed, sum.deleted, sum.nodesGone, sum.squatters, sum.forgotten,
			}, 0) {
				t.Errorf("something never happened: %+v", sum)
			}
		})
	}
}

// One and the same history, with the leader killed before and after each of its writes, to DigitalOcean and to Kubernetes.
func TestLeaderKilledBeforeAndAfterEveryWrite(t *testing.T) {
	t.Parallel()
	writes := 0
	synctest.Test(t, func(t *testing.T) { writes = newHistory(t, 1).fixed(death{}) })
	t.Logf("%d writes", writes)
	if writes < 15 {
		t.Errorf("only %d writes", writes)
	}
	var deaths []death
	for at := range int64(writes) {
		deaths = append(deaths, death{at: at + 1}, death{at: at + 1, after: true})
	}
	for _, d := range cases.Sample(t, 8, deaths...) {
		t.Run(fmt.Sprintf("write %d, after %t", d.at, d.after), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newHistory(t, 1).fixed(d) })
		})
	}
}

// play plays a history that the seed decides.
func (h *history) play() {
	h.t.Helper()
	h.begin()
	deeds := h.deeds()
	for range 12 + h.random.IntN(14) {
		deed := deeds[h.random.IntN(len(deeds))]
		h.say("%s", deed.name)
		deed.do()
		elapse(time.Duration(h.random.Int64N(int64(90 * time.Second))))
		h.succeed(h.mayDie())
		h.check()
	}
	h.end()
}

// fixed plays one history with the first leader killed as planned, and returns how many writes it made.
func (h *history) fixed(plan death) int {
	h.t.Helper()
	h.plan = plan
	h.begin()
	step := func(deed func()) {
		deed()
		elapse(3 * time.Minute)
		h.succeed(death{})
		h.check()
	}
	step(func() { h.addService(); h.addService() })
	step(h.joinNode)
	step(func() { h.editService("enable-proxy-protocol", "true") })
	step(h.openPort)
	step(h.loseDroplet)
	step(h.editElsewhere)
	step(h.editFirewallElsewhere)
	step(h.deleteElsewhere)
	step(h.deleteFirewallElsewhere)
	step(h.closePort)
	step(h.deleteService)
	writes := int(h.b.process.writes.Load())
	h.end()
	return writes
}

// mayDie plans the death of the next leader, or none.
func (h *history) mayDie() death {
	if h.random.IntN(3) > 0 {
		return death{}
	}
	return death{at: 1 + h.random.Int64N(12), after: h.random.IntN(2) == 0}
}

// tally is how much happened.
type tally struct {
	histories, leaders, calls, faults, limited, made, changed, deleted, nodesGone, squatters, forgotten int
}

func (t *tally) add(o tally) {
	t.histories++
	t.leaders += o.leaders
	t.calls += o.calls
	t.faults += o.faults
	t.limited += o.limited
	t.made += o.made
	t.changed += o.changed
	t.deleted += o.deleted
	t.nodesGone += o.nodesGone
	t.squatters += o.squatters
	t.forgotten += o.forgotten
}

// deed is something that happens.
type deed struct {
	name string
	do   func()
}

func (h *history) deeds() []deed {
	chance := func() float64 { return 0.02 + 0.3*h.random.Float64() }
	return []deed{
		{"a Service is made", h.addService},
		{"a Service is deleted", h.deleteService},
		{"a Service is edited", func() { h.editService("enable-proxy-protocol", strconv.FormatBool(h.random.IntN(2) == 0)) }},
		{"a Service's load balancer is renamed", func() { h.editService("name", fmt.Sprintf("name-%d", h.random.IntN(1000))) }},
		{"a Node joins", h.joinNode},
		{"a Node joins", h.joinNode},
		{"a droplet is lost", h.loseDroplet},
		{"a kubelet is silent", h.silence},
		{"a load balancer is edited elsewhere", h.editElsewhere},
		{"a load balancer is deleted elsewhere", h.deleteElsewhere},
		{"a port is opened", h.openPort},
		{"a port is closed", h.closePort},
		{"the firewall is edited elsewhere", h.editFirewallElsewhere},
		{"the firewall is deleted elsewhere", h.deleteFirewallElsewhere},
		{"a load balancer loses its tag", h.untag},
		{"somebody names another's load balancer", h.squat},
		{"who named another's load balancer goes", func() {
			if all := slices.Sorted(maps.Keys(h.squatters)); len(all) > 0 {
				h.evict(all[h.random.IntN(len(all))])
			}
		}},
		{"a status is lost", h.forget},
		{"the leader is killed", func() { h.b.process.kill() }},
		{"a storm", func() { h.inject(fault.Storm(chance())...) }},
		{"writes get no response", func() {
			for _, kind := range []fault.Kind{fault.CutAfterApply, fault.HangAfterApply, fault.Hang, fault.ErrorAfterApply} {
				for _, method := range []string{"POST *", "PUT *", "DELETE *"} {
					h.inject(fault.Rule{Route: method, Kind: kind, Probability: chance() / 2})
				}
			}
		}},
		{"too many requests", func() {
			h.inject(fault.Rule{Kind: fault.TooManyRequests, Delay: time.Duration(h.random.IntN(60)) * time.Second, Probability: chance()})
		}},
		{"lists miss objects", func() {
			h.inject(fault.Rule{Route: "GET *", Kind: fault.OmitItems, Fraction: h.random.Float64(), Probability: chance()})
		}},
		{"lists hide objects", func() {
			h.inject(fault.Rule{Route: "GET *", Kind: fault.HideItems, Fraction: h.random.Float64(), Probability: 2 * chance()})
		}},
		{"pages are cut", func() {
			h.inject(fault.Rule{Route: "GET *", Kind: fault.TruncatedJSON, Probability: chance()}, fault.Rule{Route: "GET *", Kind: fault.ShortBody, Probability: chance()})
		}},
		{"errors", func() { h.inject(fault.Rule{Kind: fault.Error, Status: 500 + h.random.IntN(5), Probability: chance()}) }},
		{"all is well again", h.b.cloud.ClearFaults},
		{"all is well again", h.b.cloud.ClearFaults},
	}
}

func (h *history) inject(rules ...fault.Rule) {
	h.t.Helper()
	must.Do(h.t, h.b.cloud.Inject(rules...))
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) } //nolint:gosec // it is to be the same again
