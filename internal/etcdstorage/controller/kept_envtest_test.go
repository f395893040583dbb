// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// ordered is what was read without the times and the revision of the reading, and in one order; without the EtcdStorages
// of other tests, which change meanwhile.
func ordered(w operator.World) operator.World {
	w.Now, w.Core.Revision, w.Others = time.Time{}, 0, nil
	w.Objects = slices.SortedFunc(slices.Values(w.Objects), func(a, b operator.Object) int {
		name := func(o operator.Object) string {
			out, _, _ := unstructured.NestedString(o.Content, "metadata", "name")
			return o.Kind + " " + out
		}
		return cmp.Compare(name(a), name(b))
	})
	return w
}

// What a reconcile keeps after it has made a tenant, with a user in the core, is what another process would read.
func TestWhatIsKeptIsWhatIsRead(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.enableAuth()
	g.r.Timing.Settle = 15 * time.Second
	name := "read-before"
	g.storage(name, toTenant(g.tenant(), ""))
	for range 2 {
		g.sync(name)
		kept, fresh := g.r.kept[name], must.Get(g.r.read(t.Context(), name)).Or(t)
		if kept == nil {
			t.Fatal("nothing is kept")
		}
		must.Do(t, g.r.take(kept, kept.object))
		if got, want := ordered(kept.world), ordered(fresh.world); !reflect.DeepEqual(got, want) {
			t.Errorf("kept is\n%+v\nand read\n%+v", got, want)
		}
		g.deployed(name)
	}
}

// What a reconcile has read is used for a while by those after it, but for the operator's own objects that have changed
// since; what is not watched is read again when a glance finds another version, and when the while is over.
func TestHowLongWhatWasReadIsUsed(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.r.Timing.Settle = 15 * time.Second
	name, ns := "settling", g.tenant()
	g.storage(name, toTenant(ns, ""))
	g.sync(name)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "etcd-" + name, Namespace: g.namespace}}
	must.Do(t, g.admin.Delete(t.Context(), service))
	g.sync(name)
	must.Do(t, g.admin.Get(t.Context(), client.ObjectKeyFromObject(service), service))

	spoil := func() {
		t.Helper()
		ca := g.configMap(ns, "ca")
		ca.Data["serving-ca.crt"] = "spoiled"
		must.Do(t, g.admin.Update(t.Context(), ca))
	}
	spoiled := func() bool { return g.configMap(ns, "ca").Data["serving-ca.crt"] == "spoiled" }
	seen, _ := g.r.glanceOnce(t.Context(), nil)
	g.clock.Step(time.Second)
	g.sync(name)
	spoil()
	if g.sync(name); !spoiled() {
		t.Error("a destination is read again at once")
	}
	g.r.glance(t.Context(), seen)
	if g.sync(name); spoiled() {
		t.Error("a destination is not read again after a glance")
	}
	spoil()
	g.clock.Step(15 * time.Second)
	if g.sync(name); spoiled() {
		t.Error("a destination is not read again after the while")
	}
	g.patch(name, `{"spec":{"replicas":5}}`)
	g.sync(name)
	if got := g.get(name).Status.Proxies; got != "0/5" {
		t.Errorf("another spec is not read: %s", got)
	}
}
