// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestAPostWithoutAnAnswerMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON, fault.ShortBody, fault.Reset, fault.ProxyError} {
		for name, late := range map[string]digitalocean.Consistency{"": {}, "-late": {List: time.Second, Get: time.Second}} {
			t.Run(string(kind)+name, func(t *testing.T) {
				t.Parallel()
				simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
					w.Sim.SetConsistency(late)
					must.Do(w.T, w.Sim.Inject(fault.Rule{Route: postRoute, Kind: kind, Nth: 1}))
					np := "tcp " + w.nodePort("np") + everybody
					w.run()
					f := w.becomes(np)
					w.resyncs()
					if again := w.becomes(np); again.ID != f.ID {
						t.Error("it was made twice")
					}
				})
			})
		}
	}
}

func TestFaultsPass(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]fault.Rule{
		"lists are not whole":    {Route: "GET /v2/firewalls", Kind: fault.OmitItems, Fraction: 1, Nth: 1, Times: 6},
		"lists are cut":          {Route: "GET /v2/firewalls", Kind: fault.TruncatedJSON, Nth: 1, Times: 6},
		"reads fail":             {Route: "GET /v2/firewalls/{firewall_id}", Kind: fault.Error, Status: 503, Nth: 1, Times: 6},
		"a PUT gets no response": {Route: putRoute, Kind: fault.CutAfterApply, Nth: 1, Times: 3},
		"PUTs fail":              {Route: putRoute, Kind: fault.Error, Status: 500, Nth: 1, Times: 4},
		"the limit is reached":   {Route: "", Kind: fault.TooManyRequests, Delay: time.Second, Nth: 5, Times: 3},
		"a PUT is refused once":  {Route: putRoute, Kind: fault.Error, Status: 422, Nth: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				w.predecessors(open("22"))
				before := w.Account.Firewalls()[0].ID
				must.Do(w.T, w.Sim.Inject(rule))
				np := "tcp " + w.nodePort("np") + everybody
				w.run()
				if f := w.becomes(np); f.ID != before {
					t.Error("another one was made")
				}
				more := "tcp " + w.nodePort("more") + everybody
				w.becomes(np, more)
			})
		})
	}
}

// TestCrashBeforeAndAfterEachWrite stops the program at the n-th write to DigitalOcean, just before or just after it is made, and starts another.
// However it went, the end is the same.
func TestCrashBeforeAndAfterEachWrite(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%t", n, after), func(t *testing.T) {
				t.Parallel()
				simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
					crashed := w.API.CrashAt(n, after)
					w.run()
					seen := func() bool {
						select {
						case <-crashed:
							return true
						default:
							return false
						}
					}
					until := func(what string, rules int) {
						testkit.Eventually(t, what, func() string {
							if all := w.Account.Firewalls(); seen() || len(all) == 1 && len(all[0].InboundRules) == rules {
								return ""
							}
							return w.Story()
						})
					}
					until("the firewall", 0)
					np := "tcp " + w.nodePort("np") + everybody
					until("the first PUT", 1)
					more := "tcp " + w.nodePort("more") + everybody
					until("the second PUT", 2)
					testkit.Eventually(t, "the crash", func() string {
						if seen() {
							return ""
						}
						return w.Story()
					})
					w.Stop()
					w.API.Set(nil)
					w.run()
					w.becomes(np, more)
					w.resyncs()
					w.becomes(np, more)
				})
			})
		}
	}
}
