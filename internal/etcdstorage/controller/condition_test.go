// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// sight is what the conditions are made of.
type sight struct {
	s      *scene
	plan   operator.Plan
	is     v1alpha1.EtcdStorageStatus
	failed trouble
}

// serving is a tenant with all in order and nothing to do.
func serving(t *testing.T) *sight {
	t.Helper()
	storage := v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", Generation: 3}}
	v1alpha1.SetDefaults(&storage)
	content := must.Get(runtime.DefaultUnstructuredConverter.ToUnstructured(&storage)).Or(t)
	out := &sight{
		s: &scene{object: &unstructured.Unstructured{Object: content}, record: &operator.CoreRecord{}},
		plan: operator.Plan{Certificates: []operator.Certificates{
			{Purpose: pki.Serving, Plan: pki.Plan{Issuer: 1}}, {Purpose: pki.Client, Plan: pki.Plan{Issuer: 1}},
		}},
	}
	out.s.health = operator.Health{At: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC), Members: []operator.CoreMember{{URL: "https://core:2379", Leader: true, Size: 1, InUse: 1, Quota: 1000}}}
	out.s.world = operator.World{Now: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC), Storage: storage, Settings: operator.Settings{Namespace: "storage"}}
	return out.proxies(3, 3)
}

// proxies lets a Deployment have so many that are ready, and so many of the newest template.
func (g *sight) proxies(ready, updated int64) *sight {
	yes := true
	g.s.world.Objects = []operator.Object{{Kind: operator.KindDeployment, Content: map[string]any{
		"metadata": map[string]any{
			"name": "etcd-a", "generation": int64(1),
			"ownerReferences": []any{map[string]any{"uid": "uid", "controller": yes}},
		},
		"status": map[string]any{"observedGeneration": int64(1), "replicas": updated, "updatedReplicas": updated, "readyReplicas": ready},
	}}}
	return g
}

// refused is a plan that makes nothing, for a reason.
func (g *sight) refused(reason operator.Reason, message string) {
	g.plan = operator.Plan{Refusals: []operator.Refusal{{Reason: reason, Message: message}}}
}

func (g *sight) deleted() {
	now := metav1.NewTime(g.s.world.Now)
	g.s.object.SetDeletionTimestamp(&now)
	g.s.world.Storage.DeletionTimestamp = &now
	g.plan = operator.Plan{}
}

// stores lets a tenant with a quota have been counted.
func (g *sight) stores(bytes string, keys, leases int64) {
	g.is.Usage = &v1alpha1.Usage{Bytes: resource.MustParse(bytes), Keys: keys, Leases: leases}
}

func (g *sight) bounded() *v1alpha1.Quota {
	bytes, keys, leases := resource.MustParse("100Mi"), int64(1000), int64(10)
	g.s.world.Storage.Spec.Quota = v1alpha1.Quota{Bytes: &bytes, Keys: &keys, Leases: &leases}
	return &g.s.world.Storage.Spec.Quota
}

func applying(kind string) operator.Step {
	return operator.Apply{Write: operator.Write{Ref: operator.Ref{Kind: kind}}}
}

// A write that failed is told on the condition to which it belongs, and on Ready.
func TestWhereAFailedWriteIsTold(t *testing.T) {
	t.Parallel()
	for want, steps := range map[string][]operator.Step{
		"CertificatesReady": {
			operator.MakeCA{}, operator.TakeCA{}, operator.Recover{}, operator.Revoke{}, operator.IssueServing{}, operator.DeliverBundle{}, operator.DeliverClient{},
			applying(operator.KindSecret), applying(operator.KindConfigMap), applying(operator.KindCertificate), operator.Remove{Ref: operator.Ref{Kind: operator.KindCertificate}},
		},
		"Deployed": {
			operator.MakePassword{}, applying(operator.KindDeployment), applying(operator.KindService), applying(operator.KindBudget), applying(operator.KindNetworkPolicy),
			operator.Remove{Ref: operator.Ref{Kind: operator.KindNetworkPolicy}},
		},
		"CoreReachable": {
			operator.Claim{}, operator.Bind{}, operator.EnsureUser{}, operator.RetireUsers{}, operator.Release{}, operator.Forget{}, operator.DeleteKeys{},
			operator.DeleteRecords{}, operator.RevokeLeases{},
		},
		"": {operator.Hold{}, operator.Unhold{}, operator.Withdraw{}},
	} {
		for _, step := range steps {
			if got := (trouble{step, "x"}).on(); got != want {
				t.Errorf("%#v: %q, want %q", step, got, want)
			}
		}
	}
}

// Every condition with each status that it can have, its reason, and the words that say what to do. Conditions, reasons and the commands are
// a contract with users' alerts and scripts.
func TestEachConditionWithEachStatus(t *testing.T) {
	t.Parallel()
	const away = "the core etcd https://core:2379 does not respond within 5s: check whether it runs"
	unreachable := func(g *sight) { g.s.world.Core.Problem = away; g.refused(operator.ReasonCoreUnreachable, away) }
	seen := map[string]map[metav1.ConditionStatus]bool{}
	for _, c := range []struct {
		kind   string
		status metav1.ConditionStatus
		reason string
		words  string
		change func(*sight)
	}{
		{"Ready", "True", "Ready", "", func(*sight) {}},
		{"Ready", "False", "NoProxyReady", "ProxyReady: 0 of 3 proxies are ready; find the cause with: kubectl", func(g *sight) { g.proxies(0, 0) }},
		{"Ready", "False", "PrefixTaken", "choose another one", func(g *sight) { g.refused(operator.ReasonPrefixTaken, "choose another one") }},
		{"Ready", "False", "ForeignCore", "accept", func(g *sight) { g.refused(operator.ReasonForeignCore, "accept") }},
		{"CertificatesReady", "False", "ForeignCore", "accept", func(g *sight) { g.refused(operator.ReasonForeignCore, "accept") }},
		{"Conflict", "True", "ForeignCore", "accept", func(g *sight) { g.refused(operator.ReasonForeignCore, "accept") }},
		{"Ready", "False", "WriteFailed", "forbidden", func(g *sight) { g.failed.message = "forbidden" }},
		{"Ready", "False", "Deleting", "2 proxies still exist", func(g *sight) { g.deleted(); g.plan.Waiting = "2 proxies still exist" }},
		{"Ready", "False", "Deleting", "it is being deleted", func(g *sight) { g.deleted() }},
		{"CertificatesReady", "True", "Issued", "", func(*sight) {}},
		{"CertificatesReady", "False", "MissingPermission", "run: kubectl x", func(g *sight) {
			g.plan.Refusals = []operator.Refusal{{Reason: operator.ReasonMissingPermission, Message: "run: kubectl x"}}
		}},
		{"CertificatesReady", "False", "CertManagerMissing", "install cert-manager", func(g *sight) { g.refused(operator.ReasonNoCertManager, "install cert-manager") }},
		{"CertificatesReady", "False", "IssuerNotReady", "describe issuer", func(g *sight) { g.refused(operator.ReasonIssuerNotReady, "describe issuer") }},
		{"CertificatesReady", "False", "UnusableCA", "name another", func(g *sight) { g.refused(operator.ReasonUnusableCA, "name another") }},
		{"CertificatesReady", "False", "Pending", "it is worn", func(g *sight) { g.plan.Certificates[1].Plan.Steps = []pki.Step{pki.MakeCA{Reason: "it is worn"}} }},
		{"CertificatesReady", "False", "Pending", "no CA has been created yet: the core etcd must respond first, see CoreReachable", unreachable},
		{"CertificatesReady", "False", "WriteFailed", "forbidden", func(g *sight) { g.failed = trouble{operator.MakeCA{}, "forbidden"} }},
		{"CertificatesReady", "True", "Issued", "", func(g *sight) { g.failed = trouble{applying(operator.KindDeployment), "forbidden"} }},
		{"Deployed", "False", "WriteFailed", "forbidden", func(g *sight) { g.failed = trouble{applying(operator.KindDeployment), "forbidden"} }},
		{"Deployed", "True", "Deployed", "3 of 3", func(g *sight) { g.failed = trouble{operator.MakeCA{}, "forbidden"} }},
		{"ProxyReady", "True", "Available", "3 of 3", func(g *sight) { g.failed = trouble{applying(operator.KindService), "forbidden"} }},
		{"CoreReachable", "False", "WriteFailed", "permission denied", func(g *sight) { g.failed = trouble{operator.EnsureUser{}, "permission denied"} }},
		{"CoreReachable", "True", "Reachable", "", func(g *sight) { g.failed = trouble{applying(operator.KindService), "forbidden"} }},
		{"CertificatesReady", "False", "Deleting", "", func(g *sight) { g.deleted() }},
		{"ProxyReady", "True", "Available", "3 of 3 proxies are ready", func(*sight) {}},
		{"ProxyReady", "True", "RollingOut", "2 of 3 proxies are ready; not all are of the newest template; if this persists, find the cause with: " +
			"kubectl -n storage get pods -l " + v1alpha1.StorageLabel + "=a", func(g *sight) { g.proxies(2, 1) }},
		{"ProxyReady", "False", "NoProxyReady", "0 of 3 proxies are ready; find the cause with: kubectl -n storage get pods -l " + v1alpha1.StorageLabel + "=a", func(g *sight) { g.proxies(0, 3) }},
		{"ProxyReady", "False", "NoProxyReady", "there is no Deployment yet; the condition Ready says what it waits for", func(g *sight) { g.s.world.Objects = nil }},
		{"ProxyReady", "False", "Deleting", "0 of 3", func(g *sight) { g.deleted(); g.s.world.Objects = nil }},
		{"Deployed", "True", "Deployed", "1 of 3 proxies are ready", func(g *sight) { g.proxies(1, 3) }},
		{"Deployed", "False", "FailedDeploying", "0 of 3 proxies are ready", func(g *sight) { g.proxies(0, 3) }},
		{"Deployed", "False", "FailedDeploying", "there is no Deployment yet", func(g *sight) { g.s.world.Objects = nil }},
		{"CoreReachable", "True", "Reachable", "", func(*sight) {}},
		{"CoreReachable", "False", "CoreUnreachable", away, unreachable},
		{"CoreReachable", "False", "CoreCredentials", "put them there", func(g *sight) { g.refused(operator.ReasonCoreCredentials, "put them there") }},
		{"CoreReachable", "False", "SharedCoreUser", "put one there", func(g *sight) { g.refused(operator.ReasonSharedUser, "put one there") }},
		{"CoreHealthy", "True", "Healthy", "", func(*sight) {}},
		{"CoreHealthy", "Unknown", "NotObserved", "see CoreReachable", unreachable},
		{"CoreHealthy", "Unknown", "NotObserved", "see CoreReachable", func(g *sight) { g.s.health = operator.Health{} }},
		{"CoreHealthy", "False", "NoSpace", "run kubectl mooring etcd defragment", func(g *sight) { g.s.health.NoSpace = []string{"a1"} }},
		{"CoreHealthy", "False", "Corrupt", "replace them", func(g *sight) { g.s.health.Corrupt = []string{"a1"} }},
		{"CoreHealthy", "False", "NoLeader", "https://core:2379", func(g *sight) { g.s.health.Members[0].Leader = false }},
		{"CoreHealthy", "False", "MemberUnreachable", "https://core:2379", func(g *sight) { g.s.health.Members[0].Problem = "away" }},
		{"CoreHealthy", "False", "NearlyFull", "has 90 % of its quota, 0 % in use", func(g *sight) { g.s.health.Members[0].Size = 900 }},
		{"Ready", "True", "Ready", "", func(g *sight) { g.s.health.NoSpace = []string{"a1"} }},
		{"CoreWentBack", "False", "NotSeen", "", func(*sight) {}},
		{"CoreWentBack", "True", "WentBack", "from revision 9 to 4, noticed at 2026-11-21T03:00:00Z", func(g *sight) {
			g.s.record.WentBack = &operator.WentBack{At: g.s.world.Now, From: 9, To: 4}
		}},
		{"CoreWentBack", "Unknown", "Pending", "has not been read yet", func(g *sight) { g.s.record = nil }},
		{"CoreOvercommitted", "False", "Fits", "", func(g *sight) { g.bounded(); g.s.world.CoreQuota = 356 << 20 }},
		{"CoreOvercommitted", "False", "Fits", "which are not counted: 1", func(g *sight) { g.s.world.CoreQuota = 256 << 20 }},
		{"CoreOvercommitted", "True", "CoreOvercommitted", "may store and write 356Mi between two compactions, and its smallest member has a quota of 355Mi: lower spec.quota.bytes", func(g *sight) {
			g.bounded()
			g.s.world.CoreQuota = 355 << 20
		}},
		{"Ready", "True", "Ready", "", func(g *sight) { g.s.world.CoreQuota = 1 << 20 }},
		{"CoreOvercommitted", "Unknown", "NotObserved", "older than etcd 3.6", func(*sight) {}},
		{"CertificatesReady", "False", "CoreOvercommitted", "no room", func(g *sight) { g.refused(operator.ReasonCoreOvercommitted, "no room") }},
		{"QuotaExceeded", "False", "WithinQuota", "spec.quota does not limit storage", func(*sight) {}},
		{"QuotaExceeded", "False", "WithinQuota", "", func(g *sight) { g.bounded(); g.stores("94Mi", 999, 9) }},
		{"QuotaExceeded", "True", "Exceeded", "the tenant stores 1000 keys of 1000; proxies refuse writes that need space, reads and deletes work: delete what is not needed, or raise spec.quota.keys",
			func(g *sight) { g.bounded(); g.stores("1Mi", 1000, 9) }},
		{"QuotaExceeded", "True", "Exceeded", "95Mi bytes of 100Mi; proxies refuse", func(g *sight) { g.bounded(); g.stores("95Mi", 1, 1) }},
		{"QuotaExceeded", "True", "Exceeded", "10 leases of 10; proxies refuse writes that need space, reads and deletes work: delete what is not needed, or raise spec.quota.leases",
			func(g *sight) { g.bounded(); g.stores("1Mi", 1, 10) }},
		{"QuotaExceeded", "True", "Exceeded", "1001 keys of 1000, 11 leases of 10; proxies refuse writes that need space, reads and deletes work: delete what is not needed, or raise spec.quota.keys and spec.quota.leases",
			func(g *sight) { g.bounded().Bytes = nil; g.stores("200Mi", 1001, 11) }},
		{"QuotaExceeded", "Unknown", "NotMeasured", "has not been counted yet; the operator counts it every --measure-period", func(g *sight) { g.bounded() }},
		{"RotationInProgress", "False", "Steady", "", func(*sight) {}},
		{"RotationInProgress", "True", "Overlap", "two generations of the serving CA are trusted; generation 1 signs; API servers that read the bundle at their start only must be restarted before the next one signs; waits for x",
			func(g *sight) {
				g.plan.Certificates[0].Plan.Rotating, g.plan.Certificates[0].Plan.Waiting = true, "waits for x"
			}},
		{"RotationInProgress", "True", "Overlap", "two generations of the client CA are trusted; generation 1 signs", func(g *sight) { g.plan.Certificates[1].Plan.Rotating = true }},
		{"RotationInProgress", "Unknown", "Pending", "when the problem in the condition Ready is solved", unreachable},
		{"RotationInProgress", "False", "Deleting", "", func(g *sight) { g.deleted() }},
		{"Conflict", "False", "NoConflict", "", func(*sight) {}},
		{"Conflict", "True", "ExistingData", "set spec.adoptExistingData", func(g *sight) { g.refused(operator.ReasonExistingData, "set spec.adoptExistingData") }},
		{"Conflict", "True", "ForeignObject", "rename", func(g *sight) { g.refused(operator.ReasonForeignObject, "rename") }},
		{"Conflict", "True", "DestinationTaken", "name another", func(g *sight) { g.refused(operator.ReasonDestinationTaken, "name another") }},
		{"Conflict", "Unknown", "CoreUnreachable", "the owner of the prefix is unknown until the core etcd responds", unreachable},
		{"Conflict", "False", "NoConflict", "", func(g *sight) { g.s.world.Core.Problem = away }}, // it has its prefix already
	} {
		g := serving(t)
		c.change(g)
		setConditions(&g.is, g.s, g.plan, g.failed)
		got := meta.FindStatusCondition(g.is.Conditions, c.kind)
		if got == nil || got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.words) || got.ObservedGeneration != 3 {
			t.Errorf("want %s=%s %s: …%s…\ngot %+v", c.kind, c.status, c.reason, c.words, got)
		}
		if seen[c.kind] == nil {
			seen[c.kind] = map[metav1.ConditionStatus]bool{}
		}
		seen[c.kind][c.status] = true
		last := g.is.Conditions[min(len(conditionKinds())+1, len(g.is.Conditions)):] // after those and Ready
		next := slices.ContainsFunc(last, func(c metav1.Condition) bool { return c.Type != conditions.Reconciling && c.Type != conditions.Stalled })
		if len(g.is.Conditions) <= len(conditionKinds()) || len(last) > 1 || next {
			t.Errorf("conditions %v", g.is.Conditions)
		}
	}
	if got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(slices.Values(append(conditionKinds(), conditions.Ready))); !slices.Equal(got, want) {
		t.Errorf("conditions with a case: %v, want %v", got, want)
	}
	for kind, statuses := range seen {
		if !statuses["True"] || !statuses["False"] {
			t.Errorf("%s is not seen both true and false: %v", kind, statuses)
		}
	}
}

// The time of a condition is that of its last change of status, and no other (S11).
func TestTheTimeOfACondition(t *testing.T) {
	t.Parallel()
	g := serving(t)
	g.bounded()
	at := func() string {
		c := meta.FindStatusCondition(g.is.Conditions, v1alpha1.ConditionQuotaExceeded)
		return fmt.Sprint(c.Status, " ", c.LastTransitionTime.UTC().Format(time.TimeOnly))
	}
	var got []string
	for _, keys := range []int64{1, 1000, 1001, 999} {
		g.stores("1Mi", keys, 1)
		setConditions(&g.is, g.s, g.plan, trouble{})
		got = append(got, at())
		g.s.world.Now = g.s.world.Now.Add(time.Minute)
	}
	if want := []string{"False 03:00:00", "True 03:01:00", "True 03:01:00", "False 03:03:00"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// The series of a tenant follow its status and its quota, and go with it.
func TestTheSeriesOfATenant(t *testing.T) {
	t.Parallel()
	g := serving(t)
	g.bounded()
	g.stores("2Mi", 7, 3)
	setConditions(&g.is, g.s, g.plan, trouble{})
	end := metav1.NewTime(time.Unix(1000, 0))
	g.is.ReadyReplicas, g.is.Certificates = 3, &v1alpha1.CertificateTimes{Serving: &end}
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	m.observe(g.s, g.is)
	series := func() map[string]float64 {
		t.Helper()
		families := must.Get(registry.Gather()).Or(t)
		out := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.Metric {
				var labels []string
				for _, l := range metric.Label {
					labels = append(labels, l.GetValue())
				}
				out[strings.TrimPrefix(family.GetName(), "mooring_etcdstorage_operator_")+" "+strings.Join(labels, " ")] = metric.GetGauge().GetValue()
			}
		}
		return out
	}
	want := map[string]float64{
		"condition a Ready": 1, "condition a CertificatesReady": 1, "condition a ProxyReady": 1, "condition a CoreReachable": 1, "condition a QuotaExceeded": 0,
		"condition a RotationInProgress": 0, "condition a Conflict": 0, "condition a Deployed": 1, "condition a CoreHealthy": 1, "condition a CoreWentBack": 0, "condition a CoreOvercommitted": -1, "proxies_ready a": 3, "proxies_wanted a": 3, "deleting a": 0, "keys a": 7,
		"bytes a": 2 << 20, "leases a": 3, "quota bytes a": 100 << 20, "quota keys a": 1000, "quota leases a": 10, "certificate_not_after_timestamp_seconds serving a": 1000,
	}
	if got := series(); !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	g.s.world.Storage.Spec.Quota, g.s.world.Objects = v1alpha1.Quota{}, nil
	g.deleted()
	g.is.Conditions[0].Status = metav1.ConditionUnknown
	m.observe(g.s, g.is)
	if got := series(); got["condition a "+g.is.Conditions[0].Type] != -1 || testutil.CollectAndCount(m.quota) != 0 || got["deleting a"] != 1 || got["proxies_wanted a"] != 0 {
		t.Errorf("%v", got)
	}
	m.forget("a")
	if got := series(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
