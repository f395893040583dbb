// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A core that was restored from a backup is reported on each EtcdStorage until a person confirms the restart of its API servers, also by an operator that was
// not there when the core had its newest revision. An EtcdStorage that is made afterwards is not concerned.
func TestTheCoreWentBack(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	name := "restored"
	g.storage(name, "{}")
	g.sync(name)
	watch := func() {
		t.Helper()
		must.Do(t, g.r.watchCore(t.Context()))
		g.sync(name)
	}
	watch()
	g.expect(name, v1alpha1.ConditionCoreWentBack, metav1.ConditionFalse, "NotSeen", "")
	backup := g.etcd.Backup(t)
	g.put("/restored/lost-1", "/restored/lost-2")
	watch()
	unchanged := g.configMap(g.namespace, coreRecordName).ResourceVersion
	watch()
	if got := g.configMap(g.namespace, coreRecordName).ResourceVersion; got != unchanged {
		t.Error("the record was written though the core has not changed")
	}

	g.etcd.Restore(t, backup)
	g.clock.Step(time.Minute)
	g.r = g.newOperator()
	recorder := events.NewFakeRecorder(10)
	g.r.Events = recorder
	g.sync(name) // which connects the operator, and knows what the one before has kept
	g.expect(name, v1alpha1.ConditionCoreWentBack, metav1.ConditionFalse, "NotSeen", "")
	watch()
	g.expect(name, v1alpha1.ConditionCoreWentBack, metav1.ConditionTrue, "WentBack", "restart the tenant's API servers and their clients, then run: kubectl annotate")
	if got := drain(recorder); !strings.Contains(got, "Warning WentBack the core etcd went back from revision") {
		t.Errorf("Events: %q", got)
	}
	g.put("/restored/1", "/restored/2", "/restored/3") // beyond the revision from before
	watch()
	g.expect(name, v1alpha1.ConditionCoreWentBack, metav1.ConditionTrue, "WentBack", "")
	g.clock.Step(2 * time.Minute)

	g.r = g.newOperator()
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCoreWentBack, metav1.ConditionTrue, "WentBack", "")
	at := g.get(name)
	message := ""
	for _, c := range at.Status.Conditions {
		if c.Type == v1alpha1.ConditionCoreWentBack {
			message = c.Message
		}
	}
	_, value, _ := strings.Cut(message, v1alpha1.RestartedAnnotation+"=")
	was := at.DeepCopy()
	at.Annotations = map[string]string{v1alpha1.RestartedAnnotation: value}
	must.Do(t, g.admin.Patch(t.Context(), at, client.MergeFrom(was)))
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCoreWentBack, metav1.ConditionFalse, "NotSeen", "")
}
