// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// A certificate that expires while its EtcdStorage waits for its turn makes Ready False without a reconcile, once; the reconcile that renews it makes it True.
func TestAnExpiredCertificateIsReported(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	name := "expiring"
	g.storage(name, "{servingCertificateValidity: 10m}")
	g.sync(name)
	g.deployed(name)
	g.sync(name)
	recorder := events.NewFakeRecorder(10)
	g.r.Events = recorder
	g.r.reportExpired(t.Context())
	g.expect(name, "Ready", metav1.ConditionTrue, "Ready", "")
	g.clock.Step(11 * time.Minute)
	for range 2 {
		g.r.reportExpired(t.Context())
		g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, "Expired", "the serving certificate expired at ")
		g.expect(name, "Ready", metav1.ConditionFalse, "Expired", "the serving certificate expired at ")
	}
	if got := drain(recorder); strings.Count(got, "Warning Expired the serving certificate expired at ") != 1 {
		t.Errorf("Events: %q", got)
	}
	g.sync(name)
	g.expect(name, "Ready", metav1.ConditionTrue, "Ready", "")
}
