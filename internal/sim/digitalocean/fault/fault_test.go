// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"slices"
	"strings"
	"testing"
	"time"
)

const put = "PUT /v2/load_balancers/{lb_id}"

func added(t *testing.T, seed uint64, rules ...Rule) *Injector {
	t.Helper()
	i := NewInjector(seed)
	must.Do(t, i.Add(rules...))
	return i
}

func TestScriptedRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule Rule
		want string // one letter for each of six requests
	}{
		"the third":               {Rule{Kind: Error, Nth: 3}, "..x..."},
		"two from the second on":  {Rule{Kind: Error, Nth: 2, Times: 2}, ".xx..."},
		"all from the fourth on":  {Rule{Kind: Error, Nth: 4, Times: -1}, "...xxx"},
		"of this route":           {Rule{Route: put, Kind: Error, Nth: 1}, "x....."},
		"of this method":          {Rule{Route: "PUT *", Kind: Error, Nth: 1}, "x....."},
		"of routes that begin so": {Rule{Route: "PUT /v2/load*", Kind: Error, Nth: 2}, ".x...."},
		"of another route":        {Rule{Route: "PUT /v2/load", Kind: Error, Nth: 1}, "......"},
	} {
		i := added(t, 1, c.rule)
		var got strings.Builder
		for range 6 {
			if i.Decide(put).Fault.Kind == Error {
				got.WriteByte('x')
			} else {
				got.WriteByte('.')
			}
		}
		if got.String() != c.want {
			t.Errorf("%s: %s, not %s", name, got.String(), c.want)
		}
	}
}

// TestRandomRulesReplay: with one seed requests to a route fail alike, whatever happens on other routes in between.
func TestRandomRulesReplay(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, others int) []Kind {
		i := added(t, seed, Storm(0.2)...)
		var kinds []Kind
		for range 200 {
			for range others {
				i.Decide("GET /v2/droplets")
			}
			kinds = append(kinds, i.Decide(put).Fault.Kind)
		}
		return kinds
	}
	first := run(7, 0)
	if !slices.Equal(first, run(7, 3)) {
		t.Error("requests to another route changed what happens to this one")
	}
	if slices.Equal(first, run(8, 0)) {
		t.Error("another seed changes nothing")
	}
	for _, kind := range []Kind{"", Reset, CutAfterApply, Error, TruncatedJSON} {
		if !slices.Contains(first, kind) {
			t.Errorf("in 200 requests of a storm %q never happened", kind)
		}
	}
}

func TestProbabilityIsKept(t *testing.T) {
	t.Parallel()
	i := added(t, 3, Rule{Kind: Reset, Probability: 0.1})
	struck := 0
	for range 10_000 {
		if i.Decide(put).Fault.Kind == Reset {
			struck++
		}
	}
	if struck < 800 || struck > 1200 {
		t.Errorf("a rule with a chance of a tenth struck %d of 10000 requests", struck)
	}
}

func TestDelaysAddUpAndTheFirstFaultDecides(t *testing.T) {
	t.Parallel()
	i := added(t, 1,
		Rule{Kind: Delay, Delay: time.Second, Nth: 1, Times: -1}, Rule{Kind: Delay, Delay: time.Second, Jitter: time.Second, Probability: 1},
		Rule{Kind: Reset, Nth: 1}, Rule{Kind: Error, Nth: 1})
	got := i.Decide(put)
	if got.Delay < 2*time.Second || got.Delay >= 3*time.Second || got.Fault.Kind != Reset {
		t.Errorf("decision: %+v", got)
	}
}

func TestWrongRules(t *testing.T) {
	t.Parallel()
	for want, rule := range map[string]Rule{
		"unknown":             {Kind: "explode", Nth: 1},
		"needs either nth":    {Kind: Reset},
		"either nth or":       {Kind: Reset, Nth: 1, Probability: 0.5},
		"between 0 and 1":     {Kind: Reset, Probability: 1.5},
		"counted from 1":      {Kind: Reset, Nth: -1},
		"between 400 and 599": {Kind: Error, Nth: 1, Status: 200},
	} {
		i := NewInjector(1)
		err := i.Add(Rule{Kind: Reset, Nth: 1}, rule)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v does not say %q", rule, err, want)
		}
		if len(i.Rules()) != 0 {
			t.Errorf("%+v: another rule was added all the same", rule)
		}
	}
	if Storm(0) != nil {
		t.Error("a storm with no chance has rules")
	}
}

func TestKindsThatApply(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		named := strings.Contains(string(kind), "after-apply")
		if named && !kind.Applies() {
			t.Errorf("%s does not apply", kind)
		}
	}
	for _, kind := range []Kind{Reset, Hang, Error, ProxyError, TooManyRequests} {
		if kind.Applies() {
			t.Errorf("%s applies", kind)
		}
	}
}
