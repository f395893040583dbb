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
			[]string{"warning|EtcdStorage hanging|EtcdStorage hanging: it is being deleted; finalizers that hold it: f"},
		},
		"no proxy": {
			tenants.Evidence{Storages: []v1alpha1.EtcdStorage{dark}},
			[]string{"problem|EtcdStorage dark|EtcdStorage dark: no proxy of 3 is ready, so that its API server reaches no data"},
		},
		"a core of which nobody knows": {
			tenants.Evidence{Now: now.Time, Storages: []v1alpha1.EtcdStorage{unsure}},
			[]string{"warning|the core etcd of EtcdStorage unsure|EtcdStorage unsure: the health of the core etcd's members is unknown: no member responds"},
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
