// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// value is a metric of the newest controller as a collector of its own.
type value struct {
	w     *world
	name  string
	label string
}

// collect sums up a metric, or its series with a label's value.
func collect(w *world, name string, label ...string) prometheus.Collector {
	v := value{w: w, name: name}
	if len(label) > 0 {
		v.label = label[0]
	}
	return v
}

func (v value) Describe(ch chan<- *prometheus.Desc) {
	ch <- prometheus.NewDesc("sum", "A sum.", nil, nil)
}

func (v value) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("sum", "A sum.", nil, nil), prometheus.GaugeValue, v.sum())
}

func (v value) sum() float64 {
	families, err := v.w.registry.Gather()
	if err != nil {
		v.w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != v.name {
			continue
		}
		for _, m := range f.GetMetric() {
			if v.label == "" || has(m, v.label) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func has(m *dto.Metric, label string) bool {
	for _, pair := range m.GetLabel() {
		if pair.GetValue() == label {
			return true
		}
	}
	return false
}

// waitForSeveralResyncs waits for other things than calls, of which there are none.
func waitForSeveralResyncs(t *testing.T, w *world) {
	t.Helper()
	began := time.Now()
	testkit.Eventually(t, "some time", func() string {
		if time.Since(began) < 4*w.timing.Resync {
			return "not yet"
		}
		return ""
	})
}

func TestAPostWithoutAnAnswerMakesNoDuplicate(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON, fault.ShortBody, fault.Reset, fault.ProxyError} {
		for name, late := range map[string]digitalocean.Consistency{"": {}, "-late": {List: time.Second, Get: time.Second}} {
			t.Run(string(kind)+name, func(t *testing.T) {
				w := newWorld(t)
				w.sim.SetConsistency(late)
				w.must(w.sim.Inject(fault.Rule{Route: postRoute, Kind: kind, Nth: 1}))
				np := "tcp " + w.nodePort("np") + everybody
				w.run()
				f := w.becomes(np)
				w.looked()
				if again := w.becomes(np); again.ID != f.ID {
					t.Error("it was made twice")
				}
			})
		}
	}
}

func TestFaultsPass(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
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
			w := newWorld(t)
			w.predecessors(open("22"))
			before := w.account.Firewalls()[0].ID
			w.must(w.sim.Inject(rule))
			np := "tcp " + w.nodePort("np") + everybody
			w.run()
			if f := w.becomes(np); f.ID != before {
				t.Error("another one was made")
			}
			more := "tcp " + w.nodePort("more") + everybody
			w.becomes(np, more)
		})
	}
}

// errCrash is what a program that has died sees.
var errCrash = errors.New("crashed")

// TestCrashBeforeAndAfterEachWrite stops the program at the n-th write to DigitalOcean, just before or just after it is made, and starts another.
// However it went, the end is the same.
func TestCrashBeforeAndAfterEachWrite(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%t", n, after), func(t *testing.T) {
				w := newWorld(t)
				crashed := w.crashAt(n, after)
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
						if all := w.account.Firewalls(); seen() || len(all) == 1 && len(all[0].InboundRules) == rules {
							return ""
						}
						return w.story()
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
					return w.story()
				})
				w.stop()
				w.wire.set(nil)
				w.run()
				w.becomes(np, more)
				w.looked()
				w.becomes(np, more)
			})
		}
	}
}

// crashAt cuts the program off at its n-th write, for good.
func (w *world) crashAt(n int, after bool) <-chan struct{} {
	crashed := make(chan struct{})
	writes := 0
	var mu sync.Mutex
	w.wire.set(func(r *http.Request, served bool) error {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-crashed:
			return errCrash
		default:
		}
		if r.Method == http.MethodGet || served != after {
			return nil
		}
		if writes++; writes == n {
			close(crashed)
			return errCrash
		}
		return nil
	})
	return crashed
}
