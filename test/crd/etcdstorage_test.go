// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// storages returns a client of a cluster that serves EtcdStorage.
func storages(t *testing.T) client.Client {
	t.Helper()
	return serve(t, "etcdstorages", v1alpha1.AddToScheme)
}

// storage is an EtcdStorage as a user writes it.
func storage(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return written(t, v1alpha1.GroupVersion, "EtcdStorage", name, spec)
}

// oldSpec is a spec as users of etcdproxy-controller wrote it.
const oldSpec = `{caCertConfigMap: [{name: etcd-serving-ca, namespace: team-a}], clientCertSecret: [{name: etcd-client-cert, namespace: team-a}],
 signingCertificateValidity: 730h, servingCertificateValidity: 730h, clientCertificateValidity: 730h}`

// What SetDefaults fills in for readers of files is what the API server fills in. Beyond that are two validities, which are those of the
// operator and no longer than that of a CA.
func TestEtcdStorageDefaultsAreTheAPIServers(t *testing.T) {
	t.Parallel()
	c := storages(t)
	for name, spec := range map[string]string{
		"empty": "{}", "old": oldSpec, "some": "{quota: {bytes: 1Gi}, topologySpread: {keys: []}, networkPolicy: {enabled: false}, replicas: 1}",
		"short": "{signingCertificateValidity: 1h}", "issuer": "{issuerRef: {name: ca}}", "other-issuer": "{issuerRef: {name: ca, kind: ClusterIssuer, group: other.io}}",
	} {
		created := storage(t, "defaults-"+name, spec)
		must.Do(t, c.Create(t.Context(), created))
		var want, got v1alpha1.EtcdStorage
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(created.Object, &want))
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(storage(t, "x", spec).Object, &got))
		v1alpha1.SetDefaults(&got)
		if _, set, _ := unstructured.NestedString(created.Object, "spec", "servingCertificateValidity"); !set {
			if leaf := got.Spec.ServingCertificateValidity; leaf != got.Spec.ClientCertificateValidity || leaf.Duration != min(2160*time.Hour, got.Spec.SigningCertificateValidity.Duration) {
				t.Errorf("%s: %+v", name, got.Spec)
			}
			v1alpha1.SetDefaults(&want)
		}
		if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A program that leaves everything out gets the defaults as well.
func TestATypedEtcdStorageGetsTheDefaults(t *testing.T) {
	t.Parallel()
	c := storages(t)
	created := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: "typed"}}
	v1alpha1.SetDefaults(created)
	created.Spec.Replicas, created.Spec.Priority, created.Spec.TopologySpread.Keys = 0, 0, nil
	must.Do(t, c.Create(t.Context(), created))
	var want v1alpha1.EtcdStorage
	v1alpha1.SetDefaults(&want)
	if diff := cmp.Diff(want.Spec, created.Spec); diff != "" {
		t.Error(diff)
	}
}

// Every rule of the kind: what it accepts, what it rejects, and in which words.
func TestEtcdStorageRules(t *testing.T) {
	t.Parallel()
	c := storages(t)
	for i, rule := range []struct{ accepted, rejected, message string }{
		{"{servingCertificateValidity: 26280h}", "{servingCertificateValidity: 26281h}", "spec.servingCertificateValidity: must not be longer than spec.signingCertificateValidity, since a certificate ends with its CA"},
		{oldSpec, "{signingCertificateValidity: 730h, servingCertificateValidity: 730h, clientCertificateValidity: 731h}", "spec.clientCertificateValidity: must not be longer than spec.signingCertificateValidity"},
		{"{signingCertificateValidity: 262800h}", "{signingCertificateValidity: 262801h}", "spec.signingCertificateValidity: must be from 10m to 262800h"},
		{"{servingCertificateValidity: 10m}", "{servingCertificateValidity: 9m59s}", "spec.servingCertificateValidity: must be from 10m to 87600h"},
		{"{clientCertificateValidity: 1h30m}", "{clientCertificateValidity: 0h}", "spec.clientCertificateValidity: must be from 10m to 87600h"},
		{"{clientCertificateValidity: 1.5h}", "{clientCertificateValidity: .h}", "spec.clientCertificateValidity: must be from 10m to 87600h, in units up to h, such as 730h or 1h30m"},
		{"{signingCertificateValidity: 1h}", "{signingCertificateValidity: h}", "spec.signingCertificateValidity: must be from 10m to 262800h, in units up to h, such as 8760h or 1h30m"},
		{"{issuerRef: {name: ca}}", "{issuerRef: {name: ca}, servingCertificateValidity: 90d}", "spec.servingCertificateValidity: must be from 10m to 87600h, in units up to h, such as 730h or 1h30m"},
		{"{signingCertificateValidity: 2160h30m}", "{signingCertificateValidity: 8760hgarbage}", "spec.signingCertificateValidity: must be from 10m to 262800h, in units up to h, such as 8760h or 1h30m"},
		{"{servingCertificateValidity: 1h}", "{servingCertificateValidity: -1h}", "spec.servingCertificateValidity: must be from 10m to 87600h"},
		{"{prefix: /team-a/}", "{prefix: /team-a}", "spec.prefix: must begin and end with '/' and have letters, digits, '.', '_' and '-' between, such as /team-a/"},
		{"{prefix: /a/b.c/D_e/}", "{prefix: /}", "spec.prefix: must begin and end with '/'"},
		{"{prefix: /registry-2/}", "{prefix: //}", "spec.prefix: must begin and end with '/'"},
		{"{prefix: /a.etcd.mooring.dev/}", "{prefix: /.etcd.mooring.dev/a/}", "spec.prefix: /.etcd.mooring.dev/ belongs to the proxies themselves; choose another one, such as /team-a/"},
		{"{prefix: /a/..b/.c./}", "{prefix: /../team-a/}", "spec.prefix: '.' and '..' are no names in it; choose another one, such as /team-a/"},
		{"{prefix: /a.../}", "{prefix: /a/./}", "spec.prefix: '.' and '..' are no names in it"},
		{"{signingCertificateValidity: 1h}", "{signingCertificateValidity: 1h, clientCertificateValidity: 2h}", "spec.clientCertificateValidity: must not be longer than spec.signingCertificateValidity"},
		{"{deletionPolicy: Delete}", "{deletionPolicy: Forget}", `supported values: "Retain", "Delete"`},
		{"{quota: {bytes: 1Mi}}", "{quota: {bytes: 1023Ki}}", "spec.quota.bytes: must be at least 1Mi"},
		{"{quota: {bytes: 1048576}}", "{quota: {bytes: 1048575}}", "spec.quota.bytes: must be at least 1Mi"},
		{"{quota: {unitsPerSecond: 10}}", "{quota: {unitsPerSecond: 0}}", "spec.quota.unitsPerSecond in body should be greater than or equal to 1"},
		{"{quota: {keys: 1, leases: 1, watches: 1}}", "{quota: {keys: 0}}", "spec.quota.keys in body should be greater than or equal to 1"},
		{"{quota: {leases: 5}}", "{quota: {leases: 0}}", "spec.quota.leases in body should be greater than or equal to 1"},
		{"{quota: {watches: 5}}", "{quota: {watches: 0}}", "spec.quota.watches in body should be greater than or equal to 1"},
		{"{priority: 100}", "{priority: 101}", "spec.priority in body should be less than or equal to 100"},
		{"{compaction: {mode: PerReplica}}", "{compaction: {mode: Core}}", `supported values: "Shared", "PerReplica"`},
		{"{replicas: 32}", "{replicas: 33}", "spec.replicas in body should be less than or equal to 32"},
		{"{replicas: 1}", "{replicas: 0}", "spec.replicas in body should be greater than or equal to 1"},
		{"{memory: {request: 16Mi, limit: 64Mi}}", "{memory: {request: 15Mi}}", "spec.memory.request: must be at least 16Mi"},
		{"{memory: {limit: 1Gi, request: 1Gi}}", "{memory: {limit: 63Mi, request: 32Mi}}", "spec.memory.limit: must be at least 64Mi"},
		{"{memory: {limit: 64Mi}}", "{memory: {request: 257Mi}}", "spec.memory.request: must not be more than spec.memory.limit, which is 256Mi by default"},
		{"{memory: {request: 300Mi, limit: 1Gi}}", "{memory: {request: 2Gi, limit: 1Gi}}", "spec.memory.request: must not be more than spec.memory.limit"},
		{"{topologySpread: {keys: [rack], whenUnsatisfiable: DoNotSchedule}}", "{topologySpread: {keys: [rack, rack]}}", `Duplicate value: "rack"`},
		{"{networkPolicy: {enabled: false}}", "{networkPolicy: {enabled: false, clientNamespaces: [a]}}", "spec.networkPolicy: with enabled false the other fields mean nothing; drop them"},
		{"{topologySpread: {keys: [topology.kubernetes.io/zone, rack]}}", "{topologySpread: {keys: ['not a label!']}}", "spec.topologySpread.keys: must be names of node labels, such as topology.kubernetes.io/zone"},
		{"{networkPolicy: {clientCIDRs: [10.0.0.0/8, 'fd00::/64']}}", "{networkPolicy: {clientCIDRs: [10.0.0.0]}}", "spec.networkPolicy.clientCIDRs: must be networks, such as 10.0.0.0/8"},
		{"{networkPolicy: {clientNamespaces: [a]}}", "{networkPolicy: {clientNamespaces: [A]}}", "spec.networkPolicy.clientNamespaces[0] in body should match"},
		{"{caCertConfigMap: [{name: a.b, namespace: c}]}", "{caCertConfigMap: [{name: a, namespace: c.d}]}", "spec.caCertConfigMap[0].namespace in body should match"},
		{"{caCertConfigMap: [{name: a, namespace: c}, {name: a, namespace: d}]}", "{caCertConfigMap: [{name: a, namespace: c}, {name: a, namespace: c}]}", "Duplicate value"},
		{"{issuerRef: {name: ca}}", "{issuerRef: {name: ca, kind: Vault}}", "spec.issuerRef.kind: must be Issuer or ClusterIssuer, unless spec.issuerRef.group is that of another kind of issuers"},
		{"{issuerRef: {name: ca, kind: Pool, group: issuers.example}}", "{issuerRef: {name: ca, kind: Pool, group: cert-manager.io}}", "spec.issuerRef.kind: must be Issuer or ClusterIssuer"},
		{"{issuerRef: {name: ca.b, kind: ClusterIssuer}}", "{issuerRef: {kind: ClusterIssuer}}", "spec.issuerRef.name: Required value"},
		{"{issuerRef: {name: ca, group: a.b}}", "{issuerRef: {name: CA}}", "spec.issuerRef.name in body should match"},
		{"{issuerRef: {name: ca, kind: X, group: a.b}}", "{issuerRef: {name: ca, kind: x-y, group: a.b}}", "spec.issuerRef.kind in body should match"},
		{"{issuerRef: {name: ca, group: a}}", "{issuerRef: {name: ca, group: A}}", "spec.issuerRef.group in body should match"},
		{"{issuerRef: {name: ca}, signingCertificateValidity: 1h, servingCertificateValidity: 1h, clientCertificateValidity: 1h}",
			"{issuerRef: {name: ca}, signingCertificateValidity: 59m, servingCertificateValidity: 59m, clientCertificateValidity: 59m}",
			"spec.signingCertificateValidity: must be at least 1h with spec.issuerRef, since cert-manager issues none that are shorter"},
		{"{clientCertSecret: [{name: a, namespace: c}]}", "{clientCertSecret: [{name: A_, namespace: c}]}", "spec.clientCertSecret[0].name in body should match"},
	} {
		name := fmt.Sprintf("rule-%d", i)
		if err := c.Create(t.Context(), storage(t, name+"-a", rule.accepted), client.DryRunAll); err != nil {
			t.Errorf("%s: %v", rule.accepted, err)
		}
		err := c.Create(t.Context(), storage(t, name+"-r", rule.rejected), client.DryRunAll)
		if err == nil || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), rule.message) {
			t.Errorf("%s: %v, want\n%s", rule.rejected, err, rule.message)
		}
		if err != nil && strings.Contains(err.Error(), "evaluating rule") {
			t.Errorf("%s: what the API server says alongside the sentence is for authors of rules: %v", rule.rejected, err)
		}
	}
	for name, message := range map[string]string{
		strings.Repeat("x", 58): "", "1-a": "",
		strings.Repeat("x", 59): "metadata.name: at most 58 characters, since the Service is called etcd-<name>",
		"a.b":                   "metadata.name: only lower case letters, digits and '-', since the Service is called etcd-<name>",
	} {
		err := c.Create(t.Context(), storage(t, name, "{}"), client.DryRunAll)
		if (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
			t.Errorf("name %s: %v, want %q", name, err, message)
		}
	}
}

// A prefix is for good, since the data would stay behind. That it is written out does not change it.
func TestThePrefixIsForGood(t *testing.T) {
	t.Parallel()
	c := storages(t)
	want := "spec.prefix: cannot be changed, since the data would stay behind; create another EtcdStorage and copy the data"
	for name, change := range map[string]struct {
		spec, to string
		refused  bool
	}{
		"prefix-set": {"{}", "/other/", true}, "prefix-changed": {"{prefix: /one/}", "/two/", true}, "prefix-dropped": {"{prefix: /one/}", "", true},
		"prefix-written": {"{}", "/prefix-written/", false}, "prefix-default-dropped": {"{prefix: /prefix-default-dropped/}", "", false},
	} {
		o := storage(t, name, change.spec)
		must.Do(t, c.Create(t.Context(), o))
		unstructured.RemoveNestedField(o.Object, "spec", "prefix")
		if change.to != "" {
			must.Do(t, unstructured.SetNestedField(o.Object, change.to, "spec", "prefix"))
		}
		err := c.Update(t.Context(), o)
		if change.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
