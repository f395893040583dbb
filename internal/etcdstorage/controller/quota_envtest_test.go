// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// measured counts what a tenant stores, as is done every few minutes.
func (g *stage) measured(name string) {
	g.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(StorageKind())
	must.Do(g.t, g.admin.Get(g.t.Context(), client.ObjectKey{Name: name}, o))
	must.Do(g.t, g.r.measureOne(g.t.Context(), o))
}

// The bounds of the spec hold at the proxy that the Deployment starts, are told once they are reached, in status and an Event, and no more when
// there is room again, by a deletion or by another quota. The proxies get another quota as another template.
func TestAQuotaHoldsAndIsTold(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	recorder := events.NewFakeRecorder(100)
	g.r.Events = recorder
	ns, name := g.tenant(), "bounded"
	g.storage(name, toTenant(ns, ", quota: {bytes: 1Mi, keys: 3, leases: 2, watches: 1, unitsPerSecond: 3000}, priority: 100, replicas: 1"))
	g.sync(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionUnknown, "NotMeasured", "has not been counted yet")
	g.deployed(name)
	c := g.startProxy(name, ns)
	g.full(c)
	g.measured(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionTrue, "Exceeded", "3 keys of 3, 2 leases of 2; proxies refuse writes that need space")
	g.expect(name, "Ready", metav1.ConditionTrue, "Ready", "")
	usage := g.get(name).Status.Usage
	if usage.Keys != 3 || usage.Leases != 2 || usage.Bytes.Value() != 3*int64(len("/bounded/k0v")) || usage.ObservedAt.IsZero() {
		t.Errorf("%+v", usage)
	}
	if told := drain(recorder); strings.Count(told, "Warning Exceeded the tenant stores 3 keys of 3") != 1 {
		t.Errorf("Events:\n%s", told)
	}
	// Another quota is told at once, though nobody has counted again.
	g.patch(name, `{"spec":{"quota":{"keys":10,"leases":10}}}`)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionFalse, "WithinQuota", "")
	if args := g.args(name); !slices.Contains(args, "--quota-keys=10") || !slices.Contains(args, "--quota-leases=10") {
		t.Errorf("%v", args)
	}
	g.patch(name, `{"spec":{"quota":{"keys":3}}}`)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionTrue, "Exceeded", "3 keys of 3; proxies")
	if _, err := c.Delete(t.Context(), "k0"); err != nil {
		t.Errorf("a tenant at its quota cannot delete: %v", err)
	}
	g.measured(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionFalse, "WithinQuota", "")
	if _, err := c.Put(t.Context(), "again", "v"); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// full brings a tenant to each of its bounds, and one step further.
func (g *stage) full(c *clientv3.Client) {
	g.t.Helper()
	ctx := g.t.Context()
	for i := range 3 {
		must.Get(c.Put(ctx, fmt.Sprintf("k%d", i), "v")).Or(g.t)
	}
	if _, err := c.Put(ctx, "k3", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		g.t.Errorf("a key too many: %v", err)
	}
	if _, err := c.Put(ctx, "k0", strings.Repeat("v", 1<<20)); !errors.Is(err, rpctypes.ErrNoSpace) {
		g.t.Errorf("bytes too many: %v", err)
	}
	for range 2 {
		must.Get(c.Grant(ctx, 600)).Or(g.t)
	}
	if _, err := c.Grant(ctx, 600); err == nil || !strings.Contains(err.Error(), rpctypes.ErrTooManyRequests.Error()+`: the tenant's budget "leases"`) {
		g.t.Errorf("a lease too many: %v", err)
	}
	first := c.Watch(ctx, "k0", clientv3.WithCreatedNotify())
	if answer := <-first; answer.Err() != nil || !answer.Created {
		g.t.Fatalf("%+v", answer)
	}
	if answer := <-c.Watch(ctx, "k1", clientv3.WithCreatedNotify()); !answer.Canceled || !strings.Contains(answer.Err().Error(), "too many requests") {
		g.t.Errorf("a watch too many: %+v", answer)
	}
}

// drain is what was told so far, a line for each Event.
func drain(recorder *events.FakeRecorder) string {
	out := ""
	for {
		select {
		case line := <-recorder.Events:
			out += line + "\n"
		default:
			return out
		}
	}
}

// What was counted of an EtcdStorage is not taken for that of another of its name.
func TestAnotherOfTheSameNameIsCountedAnew(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	spec := "{quota: {keys: 1}, deletionPolicy: Delete}"
	g.storage("again", spec)
	g.sync("again")
	g.put("/again/a")
	g.measured("again")
	g.expect("again", v1alpha1.ConditionQuotaExceeded, metav1.ConditionTrue, "Exceeded", "1 keys of 1")
	g.delete("again")
	g.storage("again", spec)
	g.sync("again")
	g.expect("again", v1alpha1.ConditionQuotaExceeded, metav1.ConditionUnknown, "NotMeasured", "")
	g.delete("again")
	g.sync("again") // nothing is there any more
	if len(g.r.usage) != 0 {
		t.Errorf("%+v", g.r.usage)
	}
}

// A tenant that sets no bound of bytes has the operator's, in its proxies, its conditions and its status; one that sets its own keeps it, and one of
// which the operator's was taken away has none.
func TestADefaultQuotaHoldsWhereNoneIsSet(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.r.Settings.QuotaBytes = 1 << 20
	for name, c := range map[string]struct{ spec, flag, limit string }{
		"unset": {"{}", "--quota-bytes=1048576", "1Mi"}, "other": {"{quota: {keys: 5}}", "--quota-bytes=1048576", "1Mi"}, "own": {"{quota: {bytes: 2Mi}}", "--quota-bytes=2097152", ""},
	} {
		name = "default-" + name
		g.storage(name, c.spec)
		g.sync(name)
		g.measured(name)
		limit := ""
		if usage := g.get(name).Status.Usage; usage == nil {
			t.Errorf("%s was not counted", name)
		} else if usage.BytesLimit != nil {
			limit = usage.BytesLimit.String()
		}
		if args := g.args(name); !slices.Contains(args, c.flag) || limit != c.limit {
			t.Errorf("%s: limit %q, flags %q", name, limit, args)
		}
	}
	const name = "default-unset"
	must.Get(g.root.Put(t.Context(), "/"+name+"/key", strings.Repeat("x", 1_100_000))).Or(t)
	g.measured(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionTrue, "Exceeded", "bytes of 1Mi; proxies refuse writes that need space")
	g.r.Settings.QuotaBytes = 0
	g.measured(name)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionQuotaExceeded, metav1.ConditionFalse, "WithinQuota", "")
	if usage := g.get(name).Status.Usage; usage.BytesLimit != nil {
		t.Errorf("the limit is still %s", usage.BytesLimit)
	}
}
