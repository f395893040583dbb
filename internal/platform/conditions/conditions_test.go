// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var (
	early = time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("x", 3600))
	late  = early.Add(time.Hour)
)

func cond(conditionType string, status metav1.ConditionStatus, generation int64) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, ObservedGeneration: generation, Reason: "Because", Message: "so it is"}
}

func TestSetMovesTheTimeWithTheStatusOnly(t *testing.T) {
	t.Parallel()
	var list []metav1.Condition
	steps := []struct {
		name        string
		set         metav1.Condition
		at          time.Time
		wantChanged bool
		wantTime    time.Time
	}{
		{"new", cond("A", metav1.ConditionFalse, 1), early, true, early},
		{"the same again", cond("A", metav1.ConditionFalse, 1), late, false, early},
		{"another generation", cond("A", metav1.ConditionFalse, 2), late, true, early},
		{"another status", cond("A", metav1.ConditionTrue, 2), late, true, late},
	}
	for _, s := range steps { // each step stands on the one before
		if got := conditions.Set(&list, s.set, s.at); got != s.wantChanged {
			t.Errorf("%s: changed = %v, want %v", s.name, got, s.wantChanged)
		}
		if got, want := list[0].LastTransitionTime.Time, s.wantTime.Truncate(time.Second); !got.Equal(want) {
			t.Errorf("%s: lastTransitionTime = %s, want %s", s.name, got, want)
		}
	}
	if len(list) != 1 {
		t.Errorf("list has %d entries, want 1", len(list))
	}
}

// Next to Ready is Stalled, Reconciling or neither, with the reason and the message of what it follows from; what held
// before goes.
func TestSetReady(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	ready := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: "of " + reason, ObservedGeneration: 4}
	}
	rolling := metav1.Condition{Type: "ProxyReady", Status: yes, Reason: "RollingOut", Message: "of RollingOut", ObservedGeneration: 3}
	var list []metav1.Condition
	for _, s := range []struct {
		name  string
		ready metav1.Condition
		busy  *metav1.Condition
		want  []string
	}{
		{"before it is known", ready(unknown, "Pending"), nil, []string{"Ready=Unknown Pending", "Reconciling=True Pending"}},
		{"a person has to act", ready(no, "Paused"), nil, []string{"Ready=False Paused", "Stalled=True Paused"}},
		{"a person has to act, and something goes on", ready(no, "Paused"), &rolling, []string{"Ready=False Paused", "Stalled=True Paused"}},
		{"waits", ready(no, "Waits"), nil, []string{"Ready=False Waits", "Reconciling=True Waits"}},
		{"ready and busy", ready(yes, "Ready"), &rolling, []string{"Ready=True Ready", "Reconciling=True RollingOut"}},
		{"ready", ready(yes, "Ready"), nil, []string{"Ready=True Ready"}},
	} {
		before := len(list) > 0 && s.busy != nil && s.ready.Status == no
		if changed := conditions.SetReady(&list, s.ready, s.busy, []string{"Paused"}, early); changed == before {
			t.Errorf("%s: changed = %v", s.name, changed)
		}
		var got []string
		for _, c := range list {
			got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason)
			if c.Message != "of "+c.Reason || c.ObservedGeneration != 4 {
				t.Errorf("%s: %+v", s.name, c)
			}
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s: %s", s.name, diff)
		}
		if conditions.SetReady(&list, s.ready, s.busy, []string{"Paused"}, late) {
			t.Errorf("%s: the same again is a change", s.name)
		}
	}
}

// What the API server hands back must equal what was set, or every reconcile would see a difference.
func TestSetSurvivesTheRoundTrip(t *testing.T) {
	t.Parallel()
	var list, back []metav1.Condition
	conditions.Set(&list, cond("A", metav1.ConditionTrue, 1), early)
	data := must.Get(json.Marshal(list)).Or(t)
	must.Do(t, json.Unmarshal(data, &back))
	if !list[0].LastTransitionTime.Equal(&back[0].LastTransitionTime) || conditions.Set(&back, cond("A", metav1.ConditionTrue, 1), late) {
		t.Errorf("after a round trip: %v, before: %v", back, list)
	}
}

func TestSetCutsLongMessages(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"x", "ä", "€", "😀"} {
		var list []metav1.Condition
		c := cond("A", metav1.ConditionTrue, 1)
		c.Message = strings.Repeat(unit, 2000)
		conditions.Set(&list, c, early)
		got := list[0].Message
		if len(got) > 1024 || len(got) < 1018 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("message of %q is cut to %d bytes, valid %v, end %q", unit, len(got), utf8.ValidString(got), got[len(got)-8:])
		}
		if conditions.Set(&list, c, late) {
			t.Errorf("setting the same long message of %q again is a change", unit)
		}
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	silent := cond("B", no, 2)
	silent.Message = ""
	tests := map[string]struct {
		list []metav1.Condition
		want metav1.Condition
	}{
		"all true": {
			[]metav1.Condition{cond("B", yes, 2), cond("A", yes, 2)},
			metav1.Condition{Status: yes, Reason: "Ready"},
		},
		"one false": {
			[]metav1.Condition{cond("A", yes, 2), cond("B", no, 2)},
			metav1.Condition{Status: no, Reason: "Because", Message: "B: so it is"},
		},
		"false outweighs unknown, in any order": {
			[]metav1.Condition{cond("A", unknown, 2), cond("B", no, 2)},
			metav1.Condition{Status: no, Reason: "Because", Message: "B: so it is"},
		},
		"the first of equals": {
			[]metav1.Condition{cond("B", no, 2), cond("A", no, 2)},
			metav1.Condition{Status: no, Reason: "Because", Message: "A: so it is"},
		},
		"missing": {
			[]metav1.Condition{cond("A", yes, 2)},
			metav1.Condition{Status: unknown, Reason: "Pending", Message: "B: not reported yet"},
		},
		"outdated": {
			[]metav1.Condition{cond("A", yes, 1), cond("B", yes, 2)},
			metav1.Condition{Status: unknown, Reason: "Pending", Message: "A: last reported for generation 1, now at 2"},
		},
		"without a message": {
			[]metav1.Condition{cond("A", yes, 2), silent},
			metav1.Condition{Status: no, Reason: "Because", Message: "B is False"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.Type, tt.want.ObservedGeneration = "Ready", 2
			if diff := cmp.Diff(tt.want, conditions.Summarize(tt.list, 2, "A", "B")); diff != "" {
				t.Errorf("summary differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsTrue(t *testing.T) {
	t.Parallel()
	list := []metav1.Condition{cond("A", metav1.ConditionTrue, 2), cond("B", metav1.ConditionFalse, 2)}
	for _, tt := range []struct {
		conditionType string
		generation    int64
		want          bool
	}{{"A", 2, true}, {"A", 3, false}, {"B", 2, false}, {"C", 2, false}} {
		if got := conditions.IsTrue(list, tt.conditionType, tt.generation); got != tt.want {
			t.Errorf("IsTrue(%s, %d) = %v, want %v", tt.conditionType, tt.generation, got, tt.want)
		}
	}
}

// Laws: Ready is True exactly when every condition is; Set of the same thing twice changes nothing.
func TestSummaryLaws(t *testing.T) {
	t.Parallel()
	types := []string{"A", "B", "C"}
	cases.Check(t, func(t *rapid.T) {
		var list []metav1.Condition
		all := true
		for _, conditionType := range types {
			if rapid.Bool().Draw(t, "missing") {
				all = false
				continue
			}
			status := rapid.SampledFrom([]metav1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "status")
			generation := rapid.Int64Range(1, 2).Draw(t, "generation")
			conditions.Set(&list, cond(conditionType, status, generation), early)
			all = all && status == metav1.ConditionTrue && generation == 2
		}
		ready := conditions.Summarize(list, 2, types...)
		if (ready.Status == metav1.ConditionTrue) != all {
			t.Fatalf("Ready is %s for %v", ready.Status, list)
		}
		conditions.Set(&list, ready, early)
		if again := conditions.Summarize(list, 2, types...); conditions.Set(&list, again, late) {
			t.Fatalf("a second summary of the same conditions is a change: %v", list)
		}
	})
}
