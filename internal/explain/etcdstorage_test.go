// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-3 * time.Hour))}
}

// tenant is an EtcdStorage that is well.
func tenant() explain.EtcdStorageEvidence {
	ends := func(in time.Duration) *metav1.Time {
		at := metav1.NewTime(now.Add(in))
		return &at
	}
	const day = 24 * time.Hour
	keys, bytes, rate, watches := int64(200), resource.MustParse("8Mi"), int32(50), int32(20)
	return explain.EtcdStorageEvidence{Now: now, Storage: v1alpha1.EtcdStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "team-a", Generation: 2},
		Spec: v1alpha1.EtcdStorageSpec{
			Replicas: 3, Quota: v1alpha1.Quota{Keys: &keys, Bytes: &bytes, UnitsPerSecond: &rate, Watches: &watches},
			SigningCertificateValidity: metav1.Duration{Duration: 1095 * day}, ServingCertificateValidity: metav1.Duration{Duration: 90 * day},
			ClientCertificateValidity: metav1.Duration{Duration: 90 * day},
		},
		Status: v1alpha1.EtcdStorageStatus{
			ObservedGeneration: 2, Endpoint: "https://etcd-team-a.mooring-system.svc:2379", Prefix: "/team-a/", Proxies: "3/3", ReadyReplicas: 3,
			Usage:        &v1alpha1.Usage{Keys: 120, Bytes: resource.MustParse("2516582"), Leases: 4, ObservedAt: metav1.NewTime(now.Add(-time.Minute))},
			Certificates: &v1alpha1.CertificateTimes{ServingCA: ends(900 * day), ClientCA: ends(900 * day), Serving: ends(60 * day), Client: ends(61 * day)},
			Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionRotationInProgress, metav1.ConditionFalse, "Steady", ""), condition("Later", metav1.ConditionUnknown, "New", "of a newer operator"),
				condition(v1alpha1.ConditionQuotaExceeded, metav1.ConditionFalse, "WithinQuota", "120 keys"), condition(v1alpha1.ConditionProxyReady, metav1.ConditionTrue, "Available", ""),
				condition(v1alpha1.ConditionDeployed, metav1.ConditionTrue, "Deployed", ""), condition(v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", ""),
				condition(v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", ""), condition(v1alpha1.ConditionCoreReachable, metav1.ConditionTrue, "Answers", ""),
				condition("Ready", metav1.ConditionTrue, "Ready", ""),
			},
		},
	}}
}

func TestTenantThatIsWell(t *testing.T) {
	t.Parallel()
	got := explain.EtcdStorage(tenant())
	says(t, got, false,
		"keys: under /team-a/ of the core; they are kept when it is deleted (spec.deletionPolicy Retain)", "served at: https://etcd-team-a.mooring-system.svc:2379",
		"proxies: 3/3 ready", "Ready: it is ready (Ready) (since 3h)", "Later: it is not known (New): of a newer operator (since 3h)",
		"keys: 120 of 200 (60 %)", "bytes: 2.4 MiB of 8.0 MiB (29 %)", "leases: 4, unbounded", "counted: 60s ago",
		"work: the proxies together let through at most 50 units per second; kubectl mooring etcd capacity team-a measures how many requests that is", "watches: each proxy has at most 20 open",
		"serving CA: it expires at 2029-05-10T12:00:00Z, in 900d; the next one signs after five sixths of 1095d",
		"client: it expires at 2027-01-22T12:00:00Z, in 61d; it is renewed after two thirds of 90d",
	)
	silent(t, got, "pending")
	golden(t, "tenant-well", got)
}

// A bound that the operator gives holds where the spec has none.
func TestTenantWithTheOperatorsBound(t *testing.T) {
	t.Parallel()
	e, limit := tenant(), resource.MustParse("4Mi")
	e.Storage.Spec.Quota.Bytes, e.Storage.Status.Usage.BytesLimit = nil, &limit
	says(t, explain.EtcdStorage(e), false, "bytes: 2.4 MiB of 4.0 MiB (59 %)")
}

// Each condition says in its own words what holds, what does not, and what is not known, and which of that needs attention.
func TestConditionsInWords(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string][3]string{
		"Ready":                                 {"it is ready", "!it is not ready", "!whether it is ready is not known"},
		v1alpha1.ConditionConflict:              {"!an object or data of another owner prevents the work", "no object or data of another owner prevents the work", "whether there is a conflict is unknown"},
		v1alpha1.ConditionCoreReachable:         {"the core etcd responds", "!the core etcd cannot be used", "!whether the core etcd responds is not known"},
		v1alpha1.ConditionCoreHealthy:           {"the members of the core etcd are healthy", "!the core etcd is not healthy: its operator has to act", "!the health of the core etcd's members is unknown"},
		v1alpha1.ConditionCertificatesReady:     {"every certificate is in place", "!a certificate or bundle is missing", "!whether certificates are in place is unknown"},
		v1alpha1.ConditionProxyReady:            {"a proxy serves", "!no proxy of the current template serves", "!whether a proxy serves is not known"},
		v1alpha1.ConditionDeployed:              {"it is deployed", "!it is not deployed", "!whether it is deployed is not known"},
		v1alpha1.ConditionCoreWentBack:          {"!the core etcd went back to an earlier revision", "the core etcd did not go back to an earlier revision", "whether the core etcd went back is not known"},
		v1alpha1.ConditionCoreOvercommitted:     {"!the core etcd has promised its tenants more than it has", "what the core etcd has promised its tenants fits", "what the core etcd may promise its tenants is unknown"},
		v1alpha1.ConditionQuotaExceeded:         {"!it is at a limit of its quota", "it is within its quota", "what it stores has not been counted yet"},
		v1alpha1.ConditionRotationInProgress:    {"two generations of a CA are trusted", "no CA is being replaced", "there is no CA yet"},
		"AnythingThatANewerOperatorHasToTellUs": {"it holds", "it does not hold", "it is not known"},
	} {
		for i, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			e := tenant()
			e.Storage.Status.Conditions = []metav1.Condition{condition(kind, status, "Why", "the message")}
			text, attention := want[i], want[i][0] == '!'
			mark := ""
			if attention {
				mark, text = "!", text[1:]
			}
			says(t, explain.EtcdStorage(e), attention, mark+kind+": "+text+" (Why): the message (since 3h)")
		}
	}
}

func TestTenantInTrouble(t *testing.T) {
	t.Parallel()
	e := tenant()
	s := &e.Storage
	s.Spec.DeletionPolicy, s.Generation, s.Status.ReadyReplicas, s.Status.Proxies = v1alpha1.DeletionDelete, 3, 1, "1/3"
	deleted := metav1.NewTime(now.Add(-30 * time.Minute))
	s.DeletionTimestamp, s.Finalizers = &deleted, []string{v1alpha1.Finalizer}
	ended, soon := metav1.NewTime(now.Add(-2*time.Hour)), metav1.NewTime(now.Add(5*24*time.Hour))
	s.Status.Certificates = &v1alpha1.CertificateTimes{Serving: &ended, Client: &soon}
	s.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, "MissingPermission", "Secret shop/etcd: the operator may not get it; run: kubectl create role …"),
		condition("Ready", metav1.ConditionFalse, "MissingPermission", "Secret shop/etcd: the operator may not get it"),
	}
	e.Events = []finding.Event{{At: now.Add(-2 * time.Minute), Warning: true, Reason: "MissingPermission", Text: "Secret shop/etcd: …", Source: "etcd-storage-operator"}}
	got := explain.EtcdStorage(e)
	says(t, got, true,
		"keys: under /team-a/ of the core; they are deleted with it (spec.deletionPolicy Delete)",
		"!pending: it is being deleted; finalizers that hold it: etcd.mooring.dev/storage (since 30m)",
		"pending: a change of the spec: what is reported is about generation 2, and the current generation is 3", "proxies: 2 of 3 proxies are not ready",
		"!serving: it expired at 2026-11-22T10:00:00Z, 2h ago",
		"!client: it expires at 2026-11-27T12:00:00Z, in 5d, which is late for a validity of 90d: it is renewed after two thirds of that",
		"serving CA: none yet", "!2m ago: Warning MissingPermission: Secret shop/etcd: … (etcd-storage-operator)",
	)
	golden(t, "tenant-trouble", got)
}

// One that the operator has not seen says so.
func TestTenantThatNobodyHasSeen(t *testing.T) {
	t.Parallel()
	e := tenant()
	e.Storage.Status = v1alpha1.EtcdStorageStatus{}
	got := explain.EtcdStorage(e)
	says(t, got, true, "!pending: the operator has not reported on it yet", "next: check that etcd-storage-operator runs: kubectl mooring doctor controllers", "counted: not yet", "issued: none yet",
		"keys: under /team-a/ of the core; they are kept when it is deleted (spec.deletionPolicy Retain)")
	silent(t, got, "proxies", "served at")
}

// A tenant that is Ready is not well while nobody keeps its status, or without a proxy.
func TestTenantIsNotWellByItsReadyAlone(t *testing.T) {
	t.Parallel()
	e := tenant()
	says(t, explain.EtcdStorage(e), false)
	e.Unkept = "not kept up to date: etcd-storage-operator: it is scaled to 0"
	says(t, explain.EtcdStorage(e), true, "!reported: "+e.Unkept, "next: kubectl mooring doctor controllers")
	e = tenant()
	e.Storage.Status.ReadyReplicas = 0
	says(t, explain.EtcdStorage(e), true, "!proxies: no proxy of 3 is ready, so that its API server reaches no data",
		"next: kubectl get pods -A -l etcd.mooring.dev/storage=team-a")
}
