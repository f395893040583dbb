// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/tenants"
)

// tenantWith is an EtcdStorage that is ready on a core that is well, but for the conditions given.
func tenantWith(name string, change ...metav1.Condition) v1alpha1.EtcdStorage {
	s := v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	is := map[string]metav1.Condition{}
	for _, c := range append([]metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue}, {Type: v1alpha1.ConditionCoreHealthy, Status: metav1.ConditionTrue, Reason: "Healthy"},
		{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionFalse}, {Type: v1alpha1.ConditionQuotaExceeded, Status: metav1.ConditionFalse},
	}, change...) {
		is[c.Type] = c
	}
	for _, c := range is {
		s.Status.Conditions = append(s.Status.Conditions, c)
	}
	return s
}

// partly is one of whose three proxies one is ready, since the operator began to replace them.
func partly(name string, since time.Time) v1alpha1.EtcdStorage {
	s := tenantWith(name, metav1.Condition{
		Type: "Reconciling", Status: metav1.ConditionTrue, Reason: "RollingOut", LastTransitionTime: metav1.NewTime(since),
	})
	s.Spec.Replicas, s.Status.ReadyReplicas = 3, 1
	return s
}

// What is settling does not stay so: a tenant that is partly ready for longer than its operator's work takes is in
// trouble, with its age and what to do. One that is being deleted loses its proxies.
func TestPartlyReady(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	late := partly("a", now.Add(-25*time.Minute))
	late.Status.ObservedGeneration = late.Generation
	going := *late.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: now}
	unsaid := *late.DeepCopy()
	unsaid.Status.Conditions = tenantWith("a").Status.Conditions
	for name, test := range map[string]struct {
		storage v1alpha1.EtcdStorage
		state   finding.State
		text    string
		next    string
	}{
		"for long":   {late, finding.Disagree, "2 of 3 proxies are not ready (since 25m)", "kubectl get pods -A -l etcd.mooring.dev/storage=a"},
		"not long":   {partly("a", now.Add(-time.Minute)), finding.Settling, "2 of 3 proxies are not ready (since 60s)", ""},
		"deleted":    {going, finding.Settling, "2 of 3 proxies are not ready (since 25m)", ""},
		"since when": {unsaid, finding.Settling, "2 of 3 proxies are not ready", ""},
	} {
		report := tenants.Judge(test.storage, now)
		v := report.Tenant[len(report.Tenant)-1]
		if v.State != test.state || v.Text(now) != test.text || v.Next != test.next {
			t.Errorf("%s: %+v", name, v.Verdict)
		}
	}
}

// Certificates are judged by the operator's own renewals, in the words of explain and status.
func TestCertificates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	with := func(name string, days ...int) v1alpha1.EtcdStorage {
		s := tenantWith(name)
		at := func(n int) *metav1.Time { return &metav1.Time{Time: now.Add(time.Duration(n) * 24 * time.Hour)} }
		s.Status.Certificates = &v1alpha1.CertificateTimes{ServingCA: at(days[0]), Serving: at(days[1])}
		return s
	}
	for name, test := range map[string]struct {
		storages []v1alpha1.EtcdStorage
		want     []string
	}{
		"none": {[]v1alpha1.EtcdStorage{tenantWith("a")}, nil},
		"well": {[]v1alpha1.EtcdStorage{with("a", 900, 60), with("b", 800, 50)}, []string{
			"ok certificates of EtcdStorages that are not about to expire: 4; the first, serving of b: it expires at " +
				"2027-01-11T12:00:00Z, in 50d; it is renewed after two thirds of 90d",
		}},
		"late, and expired": {[]v1alpha1.EtcdStorage{with("a", -1, 8)}, []string{
			"problem EtcdStorage a: certificate serving CA: it expired at 2026-11-21T12:00:00Z, 24h ago",
			"warning EtcdStorage a: certificate serving: it expires at 2026-11-30T12:00:00Z, in 8d, which is late for a validity of 90d: " +
				"it is renewed after two thirds of that",
		}},
	} {
		var got []string
		for _, f := range tenants.Certificates(tenants.Evidence{Now: now, Storages: test.storages}) {
			if f.Check != "certificates" || f.Severity != finding.OK && (f.Why == "" || f.Do != "kubectl mooring explain etcdstorage a") {
				t.Errorf("%s: %+v", name, f)
			}
			got = append(got, string(f.Severity)+" "+f.What)
		}
		if strings.Join(got, "\n") != strings.Join(test.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

func TestFindings(t *testing.T) {
	t.Parallel()
	core := func(reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionCoreHealthy, Status: metav1.ConditionFalse, Reason: reason, Message: "the core: " + reason}
	}
	unready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Message: "no proxy serves"}
	conflict := metav1.Condition{Type: v1alpha1.ConditionConflict, Status: metav1.ConditionTrue, Message: "the prefix is another's"}
	full := metav1.Condition{Type: v1alpha1.ConditionQuotaExceeded, Status: metav1.ConditionTrue, Message: "10 of 10 keys"}
	back := metav1.Condition{Type: v1alpha1.ConditionCoreWentBack, Status: metav1.ConditionTrue, Message: "restart"}
	much := metav1.Condition{Type: v1alpha1.ConditionCoreOvercommitted, Status: metav1.ConditionTrue, Message: "too much"}
	now := metav1.Now()
	leaving := tenantWith("leaving", unready)
	leaving.DeletionTimestamp = &now
	hanging := tenantWith("hanging")
	hanging.DeletionTimestamp, hanging.Finalizers = &metav1.Time{Time: now.Add(-time.Hour)}, []string{"f"}
	dark := tenantWith("dark")
	dark.Spec.Replicas = 3
	unsure := tenantWith("unsure", metav1.Condition{
		Type: v1alpha1.ConditionCoreHealthy, Status: metav1.ConditionUnknown, Message: "no member responds",
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
	})
	for name, c := range map[string]struct {
		e tenants.Evidence
		// want are severity, place and what of each finding, in their order.
		want []string
	}{
		"none":                     {},
		"well":                     {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a"), tenantWith("b")}}, []string{"ok||EtcdStorages that are ready, on a healthy core etcd: 2"}},
		"not ready":                {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a", unready)}}, []string{"problem|EtcdStorage a|EtcdStorage a: it is not ready: no proxy serves"}},
		"in conflict":              {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a", unready, conflict)}}, []string{"problem|EtcdStorage a|EtcdStorage a: an object or data of another owner prevents the work: the prefix is another's"}},
		"at its quota":             {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a", full)}}, []string{"warning|EtcdStorage a|EtcdStorage a: it is at a limit of its quota: 10 of 10 keys"}},
		"on a core that went back": {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a", back)}}, []string{"problem|EtcdStorage a|EtcdStorage a: the core etcd went back to an earlier revision: restart"}},
		"on a core that has promised too much": {
			tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a", much), tenantWith("b", much)}}, []string{"warning|the core etcd of EtcdStorage a, b|EtcdStorage a, b: the core etcd has promised its tenants more than it has: too much"},
		},
		"being deleted":    {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{leaving}}, []string{"ok||EtcdStorages that are ready, on a healthy core etcd: 1"}},
		"without operator": {tenants.Evidence{Storages: []v1alpha1.EtcdStorage{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}, []string{"warning|EtcdStorage a|EtcdStorage a: the operator has not reported on it yet"}},
		"a full core is said once": {
			tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("e", core("NoSpace")), tenantWith("b", core("NoSpace")), tenantWith("c", core("NoSpace")), tenantWith("d", core("NoSpace"))}},
			[]string{"problem|the core etcd of EtcdStorage b, c, d and 1 more|EtcdStorage b, c, d and 1 more: the core etcd is not healthy: its operator has to act (NoSpace): the core: NoSpace"},
		},
		"two cores, the worse first": {
			tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a", core("NearlyFull")), tenantWith("b", core("Corrupt"))}},
			[]string{"problem|the core etcd of EtcdStorage b|EtcdStorage b: the core etcd is not healthy: its operator has to act (Corrupt): the core: Corrupt", "warning|the core etcd of EtcdStorage a|EtcdStorage a: the core etcd is not healthy: its operator has to act (NearlyFull): the core: NearlyFull"},
		},
		"a deletion that hangs": {
			tenants.Evidence{Now: now.Time, Storages: []v1alpha1.EtcdStorage{hanging}},
			[]string{"warning|EtcdStorage hanging|EtcdStorage hanging: it is being deleted; finalizers that hold it: f (since 60m)"},
		},
		"no proxy": {
			tenants.Evidence{Storages: []v1alpha1.EtcdStorage{dark}},
			[]string{"problem|EtcdStorage dark|EtcdStorage dark: no proxy of 3 is ready, so that its API server reaches no data"},
		},
		"proxies that are replaced": {
			tenants.Evidence{Now: now.Time, Storages: []v1alpha1.EtcdStorage{partly("a", now.Add(-9*time.Minute))}},
			[]string{"ok||EtcdStorages that are ready, on a healthy core etcd: 1"},
		},
		"proxies that are not ready for long, with the age of the first": {
			tenants.Evidence{Now: now.Time, Storages: []v1alpha1.EtcdStorage{
				partly("a", now.Add(-10*time.Minute)), partly("b", now.Add(-time.Hour)), partly("c", now.Add(-20*time.Minute)),
			}},
			[]string{"warning|EtcdStorage a, b, c|EtcdStorage a, b, c: 2 of 3 proxies are not ready (since 60m)"},
		},
		"a core of which nobody knows": {
			tenants.Evidence{Now: now.Time, Storages: []v1alpha1.EtcdStorage{unsure}},
			[]string{"warning|the core etcd of EtcdStorage unsure|EtcdStorage unsure: the health of the core etcd's members is unknown: no member responds (since 60m)"},
		},
		"what nobody keeps up to date is not ok": {
			tenants.Evidence{Storages: []v1alpha1.EtcdStorage{tenantWith("a")}, Unkept: finding.NotKept + "the operator is scaled to 0"},
			[]string{"warning|EtcdStorage a|the status of EtcdStorage a is not kept up to date: the operator is scaled to 0"},
		},
		"not to be read": {tenants.Evidence{Unread: []finding.Side{{Name: "EtcdStorages", Problem: "forbidden"}}}, []string{"warning|EtcdStorages|not read: EtcdStorages: forbidden"}},
	} {
		var got []string
		for _, f := range tenants.Findings(c.e) {
			if f.Check != "etcdstorages" || f.Severity != finding.OK && (f.Why == "" || f.Do == "") {
				t.Errorf("%s: %+v", name, f)
			}
			got = append(got, strings.Join([]string{string(f.Severity), f.Where, f.What}, "|"))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
