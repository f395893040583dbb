// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const fromIssuer = ", issuerRef: {name: root, kind: ClusterIssuer}, signingCertificateValidity: 24h, servingCertificateValidity: 12h, clientCertificateValidity: 9h"

// From no cert-manager at all to a tenant that is served, and what is said on the way; a Certificate of somebody else is left alone.
func TestAnIssuerOnTheWay(t *testing.T) {
	t.Parallel()
	g := newStage(t, cluster.Own(t, definition(t))) // one that serves no Certificates
	ns, name := g.tenant(), "issued"
	g.storage(name, toTenant(ns, fromIssuer))
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, "CertManagerMissing",
		"spec.issuerRef names ClusterIssuer root, and the API server serves no Certificates of cert-manager.io/v1: install cert-manager, or drop spec.issuerRef")
	g.expect(name, "Ready", metav1.ConditionFalse, "CertManagerMissing", "install cert-manager")
	quiet(t, g, name, ns)

	cm := installCertManager(t, g)
	foreign := &unstructured.Unstructured{}
	foreign.SetGroupVersionKind(certificateKind())
	foreign.SetNamespace(g.namespace)
	foreign.SetName(operator.CAName(name, pki.Client))
	if err := unstructured.SetNestedMap(foreign.Object, map[string]any{"secretName": "x", "issuerRef": map[string]any{"name": "y"}}, "spec"); err != nil {
		t.Fatal(err)
	}
	g.create(foreign)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignObject", "Certificate issued-client-ca, not of this EtcdStorage")
	if err := g.admin.Get(t.Context(), key(foreign), foreign); err != nil || foreign.GetGeneration() != 1 {
		t.Errorf("somebody else's Certificate was changed: %v", err)
	}
	must.Do(t, g.admin.Delete(t.Context(), foreign))

	cm.denied = "no policy approved it"
	g.sync(name)
	cm.work()
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, "IssuerNotReady",
		"ClusterIssuer root has not issued the serving CA: Denied: The certificate request has failed to complete and will be retried: no policy approved it; see: kubectl describe clusterissuer root")
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")
	quiet(t, g, name, ns)

	cm.denied, cm.spoil = "", func(data map[string][]byte) { data[corev1.TLSCertKey] = []byte("x") }
	cm.work()
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, "UnusableCA", "its certificate cannot be used")

	for _, purpose := range []pki.Purpose{pki.Serving, pki.Client} {
		must.Do(t, g.admin.Delete(t.Context(), g.secret(g.namespace, operator.CAName(name, purpose))))
	}
	cm.spoil = nil
	if n := cm.work(); n != 2 {
		t.Errorf("%d CAs were asked for", n)
	}
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	if broken := g.broken(name); len(broken) > 0 || len(g.args(name)) == 0 {
		t.Errorf("%v", broken)
	}
	quiet(t, g, name, ns)
}

// quiet makes sure that another look writes nothing.
func quiet(t *testing.T, g *stage, name, ns string) {
	t.Helper()
	before := g.state(name, ns)
	g.sync(name)
	if after := g.state(name, ns); after != before {
		t.Errorf("a second look writes:\n%s\n%s", before, after)
	}
}

// storiesWithIssuer are those of tenants whose CAs come from cert-manager, which works whenever the operator has come to an end.
func storiesWithIssuer(cm func(*deathStage) *certManager) map[string]story {
	work := func(m *deathStage, _, _ string, _ time.Duration) { cm(m).work() }
	turn := func(m *deathStage, _, _ string, due time.Duration) { m.clock.Step(due); cm(m).work() }
	own := func(m *deathStage, name, _ string, _ time.Duration) { m.patch(name, `{"spec":{"issuerRef":null}}`) }
	other := func(m *deathStage, name, _ string, _ time.Duration) {
		m.patch(name, `{"spec":{"issuerRef":{"name":"root","kind":"ClusterIssuer"}}}`)
	}
	leave := func(m *deathStage, name, _ string, _ time.Duration) {
		must.Do(m.t, m.admin.Delete(m.t.Context(), m.get(name)))
	}
	return map[string]story{
		"renewal": {spec: fromIssuer, acts: slices.Concat([]act{nothing, work}, slices.Repeat([]act{turn}, 11)), end: renewed},
		"there and back": {
			spec: ", signingCertificateValidity: 24h, servingCertificateValidity: 12h, clientCertificateValidity: 9h", settled: true, end: back,
			acts: slices.Concat([]act{other, work}, slices.Repeat([]act{turn}, 4), []act{own}, slices.Repeat([]act{turn}, 5)),
		},
		"deletion": {spec: fromIssuer, acts: []act{nothing, work, leave}, end: func(m *deathStage, name, _ string) {
			for _, ref := range operator.IssuerRefs(name) {
				if m.has(ref) {
					m.t.Errorf("%s is left", ref)
				}
			}
		}},
	}
}

func (m *deathStage) has(ref operator.Ref) bool {
	m.t.Helper()
	o, err := m.r.get(m.t.Context(), gvkOf(ref), m.namespace, ref.Name)
	if err != nil {
		m.t.Error(err)
	}
	return o != nil
}

// renewed: later CAs of the issuer sign, all of them came from it, and the first ones are gone.
func renewed(m *deathStage, name, ns string) {
	m.t.Helper()
	rotated(m, name, ns)
	for _, purpose := range []pki.Purpose{pki.Serving, pki.Client} {
		for _, ca := range m.signersOf(name, purpose) {
			if ca.Origin != "ClusterIssuer.cert-manager.io/root" {
				m.t.Errorf("CA %d of purpose %s comes from %q", ca.Generation, purpose, ca.Origin)
			}
		}
	}
	if c := m.conditions(name); !strings.Contains(c, "CertificatesReady=True") {
		m.t.Error(c)
	}
}

// back: the last CA is the operator's own again, and nothing is left of the issuer.
func back(m *deathStage, name, _ string) {
	m.t.Helper()
	for _, purpose := range []pki.Purpose{pki.Serving, pki.Client} {
		signers := m.signersOf(name, purpose)
		if last := signers[len(signers)-1]; last.Origin != "" || last.Generation < 3 {
			m.t.Errorf("CA %d of purpose %s comes from %q", last.Generation, purpose, last.Origin)
		}
	}
	for _, ref := range operator.IssuerRefs(name) {
		if m.has(ref) {
			m.t.Errorf("%s is left", ref)
		}
	}
}

// The operator dies before and after its writes while cert-manager issues and renews its CAs, and while an issuer comes and goes: at every instant each pair
// that is published validates against the bundles that are.
func TestDeathAtAnyWriteWithAnIssuer(t *testing.T) {
	t.Parallel()
	for name, s := range storiesWithIssuer(func(m *deathStage) *certManager { return &certManager{stage: m.stage} }) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, server(t), stem(name)+"-i", s, func(c *cluster.Cluster) *deathStage {
				m := newDeathStage(t, c, false)
				installCertManager(t, m.stage)
				return m
			})
		})
	}
}
