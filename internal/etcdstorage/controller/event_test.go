// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Which steps are told in Events, and with which reasons, which are a contract with anyone who watches them.
func TestEventsOfSteps(t *testing.T) {
	t.Parallel()
	what := operator.About{Object: "what", Reason: "why"}
	write, record, delivery := operator.Write{About: what}, operator.Record{About: what}, operator.Delivery{About: what}
	for want, steps := range map[string][]operator.Step{
		"Normal Claimed what: why\n":           {operator.Claim{Record: record}},
		"Normal CACreated what: why\n":         {operator.MakeCA{Write: write}},
		"Normal CATaken what: why\n":           {operator.TakeCA{Write: write}},
		"Normal ClientRevoked what: why\n":     {operator.Revoke{Write: write}},
		"Warning CAKeysLost what: why\n":       {operator.Recover{Write: write}},
		"Normal CertificateIssued what: why\n": {operator.IssueServing{Write: write}, operator.DeliverClient{Delivery: delivery}},
		"Normal UserCreated what: why\n":       {operator.EnsureUser{About: what}},
		"Normal UserRemoved what: why\n":       {operator.RetireUsers{About: what}},
		"Normal DataRetained what: why\n":      {operator.Release{Record: record}},
		"Normal DataDeleted what: why\n":       {operator.Forget{Record: record}},
		"": {
			operator.Hold{}, operator.Unhold{}, operator.Bind{}, operator.Apply{}, operator.DeliverBundle{}, operator.Withdraw{},
			operator.MakePassword{}, operator.Remove{}, operator.DeleteKeys{}, operator.DeleteRecords{}, operator.RevokeLeases{},
		},
	} {
		for _, step := range steps {
			recorder := events.NewFakeRecorder(10)
			New(Options{Events: recorder}).event(serving(t).s.object, step)
			if got := drain(recorder); got != want {
				t.Errorf("%s: %q, want %q", operator.Kind(step), got, want)
			}
		}
	}
	New(Options{}).event(serving(t).s.object, operator.Claim{}) // without a recorder
}

// Which conditions are told of when they change, and in which direction: what became bad, once, and not what a new tenant has not got yet.
func TestEventsOfConditions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind    string
		was, is metav1.ConditionStatus
		reason  string
		told    bool
	}{
		{"Conflict", "False", "True", "ForeignObject", true},
		{"Conflict", "", "True", "ForeignObject", true},
		{"Conflict", "True", "True", "PrefixTaken", true}, // for another reason
		{"Conflict", "True", "False", "NoConflict", false},
		{"CoreWentBack", "False", "True", "WentBack", true},
		{"CoreWentBack", "True", "False", "NotSeen", false},
		{"CoreOvercommitted", "False", "True", "CoreOvercommitted", true},
		{"QuotaExceeded", "False", "True", "Exceeded", true},
		{"QuotaExceeded", "True", "False", "WithinQuota", false},
		{"QuotaExceeded", "True", "Unknown", "InvalidSpec", false},
		{"CertificatesReady", "", "False", "MissingPermission", true},
		{"CoreHealthy", "True", "False", "NoSpace", true},
		{"CoreHealthy", "False", "True", "Healthy", false},
		{"CertificatesReady", "True", "False", "WriteFailed", true},
		{"CertificatesReady", "False", "True", "Issued", false},
		{"CertificatesReady", "True", "False", "Deleting", false},
		{"CoreReachable", "True", "False", "CoreUnreachable", true},
		{"CoreReachable", "False", "True", "Reachable", false},
		{"ProxyReady", "True", "False", "NoProxyReady", true},
		{"ProxyReady", "", "False", "NoProxyReady", false},
		{"ProxyReady", "Unknown", "False", "NoProxyReady", false},
		{"Deployed", "True", "False", "FailedDeploying", false}, // the same as ProxyReady
		{"Deployed", "True", "False", "WriteFailed", true},
		{"RotationInProgress", "False", "True", "Overlap", false},
		{"Ready", "True", "False", "NoProxyReady", false}, // the others say why
	} {
		recorder := events.NewFakeRecorder(10)
		r := New(Options{Events: recorder})
		var was []metav1.Condition
		if c.was != "" {
			was = []metav1.Condition{{Type: c.kind, Status: c.was, Reason: "Before"}}
		}
		is := []metav1.Condition{{Type: c.kind, Status: c.is, Reason: c.reason, Message: "what to do"}}
		r.announce(serving(t).s.object, was, is)
		want := ""
		if c.told {
			want = "Warning " + c.reason + " what to do\n"
		}
		if got := drain(recorder); got != want {
			t.Errorf("%+v: %q", c, got)
		}
		if r.announce(serving(t).s.object, is, is); drain(recorder) != "" {
			t.Errorf("%+v: told again", c)
		}
	}
}

// A write that is decided again is not a failure, nor is one that a tenant has not granted; the alert counts failures.
func TestHowWritesEnd(t *testing.T) {
	t.Parallel()
	m := NewMetrics(prometheus.NewRegistry())
	secrets := schema.GroupResource{Resource: "secrets"}
	m.wrote("Apply", false, nil)
	for _, err := range []error{apierrors.NewConflict(secrets, "x", nil), apierrors.NewAlreadyExists(secrets, "x"), reconcile.As(reconcile.Conflict, core.ErrConflict)} {
		m.wrote("Apply", false, err)
	}
	m.wrote("DeliverClient", true, apierrors.NewForbidden(secrets, "x", errors.New("no right")))
	m.wrote("Apply", false, apierrors.NewForbidden(secrets, "x", errors.New("no right")))
	m.wrote("DeliverClient", true, errors.New("no response"))
	want := `# HELP mooring_etcdstorage_operator_writes_total Writes by kind of the step and outcome: success; conflict, which is requeued; forbidden, by a tenant that has not granted the right yet; error.
# TYPE mooring_etcdstorage_operator_writes_total counter
mooring_etcdstorage_operator_writes_total{kind="Apply",outcome="conflict"} 3
mooring_etcdstorage_operator_writes_total{kind="Apply",outcome="error"} 1
mooring_etcdstorage_operator_writes_total{kind="Apply",outcome="success"} 1
mooring_etcdstorage_operator_writes_total{kind="DeliverClient",outcome="error"} 1
mooring_etcdstorage_operator_writes_total{kind="DeliverClient",outcome="forbidden"} 1
`
	if err := testutil.CollectAndCompare(m.writes, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
