// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

func TestJudgeToken(t *testing.T) {
	t.Parallel()
	asked := instance.TokenAnswers{Asked: true}
	refused := instance.TokenAnswers{Asked: true, Refused: true, Forbidden: []string{"GET v2/droplets"}}
	narrow := instance.TokenAnswers{Asked: true, Forbidden: []string{"GET v2/certificates", "GET v2/droplets"}}
	for name, tt := range map[string]struct {
		answers instance.TokenAnswers
		trust   instance.Trust
		want    instance.TokenReason // empty for nothing known
		message string
	}{
		"nobody has asked":                  {answers: instance.TokenAnswers{}, trust: instance.Unverified},
		"accepted, before there is a state": {answers: asked, want: instance.TokenAccepted, message: "accepts"},
		"accepted":                          {answers: asked, trust: instance.Trusted, want: instance.TokenAccepted, message: "accepts"},
		"the list cannot be read":           {answers: asked, trust: instance.Unverified, want: instance.TokenAccepted, message: "accepts"},
		"refused":                           {answers: refused, trust: instance.AnotherAccount, want: instance.TokenRefused, message: "put another one into its Secret"},
		"another account":                   {answers: narrow, trust: instance.AnotherAccount, want: instance.TokenAnotherAccount, message: "why"},
		"a scope is missing":                {answers: narrow, trust: instance.NothingVisible, want: instance.TokenScopeMissing, message: "the scope for GET v2/certificates, GET v2/droplets:"},
		"nothing visible":                   {answers: asked, trust: instance.NothingVisible, want: instance.TokenNothingVisible, message: "why"},
	} {
		got, known := instance.JudgeToken(tt.answers, tt.trust, "why")
		if got.Reason != tt.want || known != (tt.want != "") || !strings.Contains(got.Message, tt.message) {
			t.Errorf("%s: %+v, %v, want %s with %q", name, got, known, tt.want, tt.message)
		}
		if known && !slices.Contains(instance.TokenReasons(), got.Reason) || got.Healthy() != (tt.want == instance.TokenAccepted) {
			t.Errorf("%s: %+v, healthy %v", name, got, got.Healthy())
		}
	}
}

// The reasons are labels and reasons of a condition, that alerts and tools look for.
func TestTokenContract(t *testing.T) {
	t.Parallel()
	want := []instance.TokenReason{"Refused", "AnotherAccount", "ScopeMissing", "NothingVisible", "Accepted"}
	if got := instance.TokenReasons(); !slices.Equal(got, want) || instance.ConditionTokenHealthy != "TokenHealthy" {
		t.Errorf("%q of %s", got, instance.ConditionTokenHealthy)
	}
}

// The condition changes only if it says something else, and its time is when its reason began.
func TestTokenCondition(t *testing.T) {
	t.Parallel()
	bad, good := instance.TokenHealth{Reason: instance.TokenScopeMissing, Message: "a"}, instance.TokenHealth{Reason: instance.TokenAccepted, Message: "b"}
	first, changed := bad.Condition(nil, start.Add(time.Millisecond))
	if !changed || first.Status != metav1.ConditionFalse || first.Reason != "ScopeMissing" || first.Message != "a" || !first.LastTransitionTime.Time.Equal(start.Truncate(time.Second)) {
		t.Fatalf("%+v, %v", first, changed)
	}
	if again, changed := bad.Condition(&first, start.Add(time.Hour)); changed || again != first {
		t.Errorf("the same later: %+v, %v", again, changed)
	}
	bad.Message = "c"
	other, changed := bad.Condition(&first, start.Add(time.Hour))
	if !changed || other.Message != "c" || !other.LastTransitionTime.Equal(&first.LastTransitionTime) {
		t.Errorf("another message: %+v, %v", other, changed)
	}
	bad.Reason = instance.TokenRefused
	worse, changed := bad.Condition(&other, start.Add(time.Hour))
	if !changed || worse.Reason != "Refused" || !worse.LastTransitionTime.Time.Equal(start.Add(time.Hour).Truncate(time.Second)) {
		t.Errorf("another reason: %+v, %v", worse, changed)
	}
	if well, changed := good.Condition(&worse, start.Add(2*time.Hour)); !changed || well.Status != metav1.ConditionTrue || well.Type != "TokenHealthy" {
		t.Errorf("well again: %+v, %v", well, changed)
	}
}
