// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// tried is a load balancer that refuses some droplets and does not say which.
type tried struct {
	memory   Memory
	now      time.Time
	wanted   []int
	targets  []int
	bad      map[int]bool
	settings bool // that differ
	calls    int
}

// pass makes one request as a plan would, and reports whether there was something to send.
func (l *tried) pass(made bool) bool {
	l.now = l.now.Add(time.Second)
	p := &planning{World: World{Now: l.now, Memory: l.memory}, plan: Plan{Memory: l.memory.clone()}}
	for _, id := range l.wanted {
		p.Droplets.Items = append(p.Droplets.Items, instance.Droplet{ID: id})
	}
	result, observed := Result{Request: Request{DropletIDs: l.wanted}}, &Observed{DropletIDs: l.targets}
	if !made {
		observed = nil
	}
	p.fit(observed, &result)
	added := Change{LoadBalancer: Observed{DropletIDs: l.targets}, Request: result.Request}.added()
	switch {
	case made && !l.settings && slices.Equal(result.Request.DropletIDs, l.targets):
		if p.held == 0 {
			return false
		}
		p.learn(nil, false, nil)
	case slices.ContainsFunc(added, func(id int) bool { return l.bad[id] }):
		l.calls++
		p.learn(added, l.settings, &Trouble{Said: "no"})
	default:
		l.calls++
		l.targets, l.settings = result.Request.DropletIDs, false
		p.learn(added, false, nil)
	}
	l.memory = p.plan.Memory
	return true
}

// TestHalvesFindTheBadTargets, any number of them among any others: the good ones all become targets, settings arrive
// after three requests at most, nothing that is a target is taken away, and requests are few.
func TestHalvesFindTheBadTargets(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(t, "targets")
		l := &tried{now: time.Unix(0, 0), bad: map[int]bool{}, settings: rapid.Bool().Draw(t, "settings differ")}
		made := rapid.IntRange(0, n-1).Draw(t, "targets there are")
		var good []int
		for id := 1; id <= n; id++ {
			l.wanted = append(l.wanted, id)
			switch {
			case id <= made:
				l.targets, good = append(l.targets, id), append(good, id)
			case rapid.IntRange(0, 9).Draw(t, "bad") == 0:
				l.bad[id] = true
			default:
				good = append(good, id)
			}
		}
		if len(good) == 0 {
			return
		}
		before := slices.Clone(l.targets)
		most := 4 + (2*len(l.bad)+1)*(2+bits.Len(uint(n))) //nolint:gosec // it is positive
		for l.pass(made > 0) || l.calls == 0 {
			if l.calls > most {
				t.Fatalf("%d requests for %d bad ones of %d targets, at most %d are right", l.calls, len(l.bad), n, most)
			}
			if l.settings && l.calls > 3 && made > 0 {
				t.Fatal("the settings are not there after three requests")
			}
			if slices.ContainsFunc(before, func(id int) bool { return !slices.Contains(l.targets, id) }) {
				t.Fatalf("of the targets %v only %v are left", before, l.targets)
			}
			made = max(made, len(l.targets))
		}
		slices.Sort(l.targets)
		if !slices.Equal(l.targets, good) {
			t.Fatalf("the targets are %v, want %v", l.targets, good)
		}
		if len(l.memory.Trial.Refused) != len(l.bad) {
			t.Fatalf("%v were refused alone, want %v", l.memory.Trial.Refused, l.bad)
		}
	})
}

// TestARefusedTargetIsTriedAgain after an hour, and settings that are refused by themselves are not blamed on targets.
func TestARefusedTargetIsTriedAgain(t *testing.T) {
	t.Parallel()
	l := &tried{now: time.Unix(0, 0), wanted: []int{1, 2}, targets: []int{1}, bad: map[int]bool{2: true}}
	for l.pass(true) {
	}
	l.bad = nil
	if l.pass(true) {
		t.Error("it is tried again at once")
	}
	l.now = l.now.Add(refusedFor)
	for l.pass(true) {
	}
	if !slices.Equal(l.targets, []int{1, 2}) {
		t.Errorf("the targets are %v", l.targets)
	}
	p := &planning{plan: Plan{Memory: Memory{Suspect: true}}}
	if p.learn(nil, true, &Trouble{Said: "no"}) || p.plan.Memory.Trial.On {
		t.Error("a refusal of settings is taken for one of targets")
	}
}
