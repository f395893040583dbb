// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// In mode report the operator logs the steps of its plan, with their reasons, and writes nothing: neither objects nor the
// core, nor the status of EtcdStorages.
func TestReportWritesNothing(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.storage("changed-tenant", "{replicas: 1}")
	g.sync("changed-tenant")
	g.patch("changed-tenant", `{"spec":{"replicas":2}}`)
	secrets := g.count(&corev1.SecretList{})
	var said []string
	o := g.r.Options
	o.Mode, o.Log = outputs.Report, funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{})
	g.r = New(o)
	if r := g.r.Timing; r.History+r.Upkeep > 0 {
		t.Errorf("the core would be compacted and defragmented: %+v", r)
	}
	const names = "changed-tenant new-tenant"
	was := map[string]string{}
	g.storage("new-tenant", "{replicas: 1}")
	for name := range strings.FieldsSeq(names) {
		was[name] = g.get(name).ResourceVersion
	}
	core := must.Get(g.root.Get(t.Context(), "x")).Or(t).Header.Revision
	for range 3 {
		for name := range strings.FieldsSeq(names) {
			if result := g.once(name); result.Wrote || result.Next < time.Second {
				t.Errorf("the round of %s: %+v", name, result)
			}
		}
		_ = g.r.glance(t.Context(), nil)
		g.clock.Step(time.Minute)
	}
	log := strings.Join(said, "\n")
	for _, want := range []string{`"key"="changed-tenant" "would"="Apply Deployment/etcd-changed-tenant`, `"key"="new-tenant" "would"="Hold EtcdStorage/new-tenant`} {
		if strings.Count(log, want) != 1 {
			t.Errorf("want %s once; it said:\n%s", want, log)
		}
	}
	for name := range strings.FieldsSeq(names) {
		if is := g.get(name); is.ResourceVersion != was[name] {
			t.Errorf("the EtcdStorage was written: %+v", is)
		}
	}
	if n := g.count(&corev1.SecretList{}); n != secrets {
		t.Errorf("there are %d Secrets, want %d", n, secrets)
	}
	record := client.ObjectKey{Namespace: g.namespace, Name: coreRecordName}
	if err := g.admin.Get(t.Context(), record, &corev1.ConfigMap{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the record of the core: %v", err)
	}
	if now := must.Get(g.root.Get(t.Context(), "x")).Or(t).Header.Revision; now != core {
		t.Errorf("the core went from revision %d to %d", core, now)
	}
}

// count is how many objects of a kind are in the operator's namespace.
func (g *stage) count(list client.ObjectList) int {
	g.t.Helper()
	must.Do(g.t, g.admin.List(g.t.Context(), list, client.InNamespace(g.namespace)))
	return meta.LenList(list)
}
