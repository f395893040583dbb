// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// A tenant that the core has no room for is not placed, with one sentence, until there is room; the tenants that have their place keep it, and those that are
// not placed take none.
func TestTheCoreIsNotPromisedTwice(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	g.r.Settings.OvercommitPercent = 100
	const half = "{quota: {bytes: 900Mi}}" // with its history, of the 2 GiB that etcd has by default
	g.storage("first", "{deletionPolicy: Delete, quota: {bytes: 900Mi}}")
	g.sync("first")
	g.expect("first", v1alpha1.ConditionCoreOvercommitted, metav1.ConditionFalse, "Fits", "")
	recorder := events.NewFakeRecorder(20)
	g.r.Events = recorder
	for _, name := range []string{"second", "third"} {
		g.storage(name, half)
		g.sync(name)
		g.expect(name, "Ready", metav1.ConditionFalse, "CoreOvercommitted",
			"with this one the tenants of the core etcd may store and write 2312Mi between two compactions, and its smallest member has a quota of 2Gi")
	}
	g.sync("first")
	g.expect("first", v1alpha1.ConditionCoreOvercommitted, metav1.ConditionFalse, "Fits", "")

	const warning = "Warning CoreOvercommitted "
	if got := drain(recorder); strings.Count(got, warning+"with this one") != 2 {
		t.Errorf("a Warning for each tenant that is refused: %q", got)
	}

	g.r.Settings.OvercommitPercent = 0
	g.sync("second")
	g.expect("second", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	g.sync("first")
	g.expect("first", v1alpha1.ConditionCoreOvercommitted, metav1.ConditionTrue, "CoreOvercommitted", "lower spec.quota.bytes")
	if got := drain(recorder); !strings.Contains(got, warning+"the tenants of the core etcd may store and write 2312Mi") {
		t.Errorf("a Warning that more is promised than there is: %q", got)
	}
	g.r.Settings.OvercommitPercent = 100
	g.sync("second")
	g.expect("second", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "") // it has its place

	g.delete("first")
	g.delete("second")
	g.sync("third")
	g.expect("third", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
}
