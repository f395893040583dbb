// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operatorapp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	etcdComponent = "etcd-storage-operator"
	// etcdNamespace is that of etcdproxy-controller, and the default of the operator's flag.
	etcdNamespace = "kube-apiserver-storage"
)

// etcdScenarios are values of the etcd storage operator that must work.
func etcdScenarios() map[string]string {
	return map[string]string{
		"defaults":         `etcdStorageOperator: {enabled: true, core: {urls: ["https://etcd.etcd-core.svc:2379"]}}`,
		"without the kind": `etcdStorageOperator: {enabled: true, core: {urls: ["https://etcd.etcd-core.svc:2379"]}, crds: {install: false}}`,
		"the kind goes":    `etcdStorageOperator: {enabled: true, core: {urls: ["https://etcd.etcd-core.svc:2379"]}, crds: {keep: false}}`,
		"everything": `
imagePullSecrets: [{name: registry}]
etcdStorageOperator:
  enabled: true
  mode: report
  crds: {keep: false}
  core:
    urls: ["https://192.0.2.10:2379", "https://[2001:db8::1]:2379"]
    caConfigMap: core-ca
    certsSecret: core-client
    adminSecret: core-admin
    tenantUsers: "off"
  proxyImage:
    repository: registry.example:5000/mooring/etcd-storage-proxy
    digest: sha256:abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789
  extraArgs: [--core-user-rotation=24h, -v=2]
  extraEnv: [{name: GOMEMLIMIT, value: 400MiB}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
  image:
    repository: registry.example:5000/mooring/etcd-storage-operator
    digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    pullPolicy: Always
  replicas: 3
  resources: {limits: {memory: 1Gi, cpu: "1"}}
  priorityClassName: ""
  nodeSelector: {node-role.kubernetes.io/control-plane: ""}
  tolerations: [{operator: Exists}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]
  podLabels: {team: storage}
  podAnnotations: {example.com/note: "any text, also: this"}
  metrics:
    readers: [{namespace: monitoring, name: prometheus-k8s}]
    certificateSecret: metrics-certificate
    serviceMonitor: {enabled: true, interval: 1m, labels: {release: prometheus}}
    prometheusRule: {enabled: true, labels: {release: prometheus}}
  networkPolicy:
    enabled: true
    apiServerPorts: [6443]
    apiServerCIDRs: [192.0.2.0/24]
    etcdPorts: [12379]
    etcdCIDRs: [192.0.2.10/32]
    metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]`,
		"defaults of the options": `
etcdStorageOperator:
  enabled: true
  core: {urls: ["https://etcd.etcd-core.svc:2379"]}
  metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}
  networkPolicy: {enabled: true}`,
	}
}

// TestEtcdOperatorIsSafeWithAllValues: no value takes a security context away, grants more, or moves an object to another namespace; the
// program works in the namespace in which it is, and only there has it rights on Secrets.
func TestEtcdOperatorIsSafeWithAllValues(t *testing.T) {
	t.Parallel()
	for name, values := range etcdScenarios() {
		all := checkSafety(t, name, values, etcdNamespace)
		for _, role := range objects.OfKind[rbacv1.ClusterRole](t, all, "ClusterRole") {
			for _, rule := range role.Rules {
				if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "configmaps") {
					t.Errorf("%s: ClusterRole %s has rights on %v", name, role.Name, rule.Resources)
				}
			}
		}
		d := objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0]
		args := d.Spec.Template.Spec.Containers[0].Args
		if err := objects.ParseFlags(t, objects.Sure(operatorapp.NewCommand), args); err != nil || !slices.Contains(args, "--namespace=elsewhere") {
			t.Errorf("%s: %v in %v", name, err, args)
		}
	}
}

// TestEtcdOperatorValuesHaveEffects looks for each value of the scenario "everything" in what it renders.
func TestEtcdOperatorValuesHaveEffects(t *testing.T) {
	t.Parallel()
	content := rendered(t, render(t, etcdNamespace, etcdScenarios()["everything"]),
		`"imagePullSecrets":[{"name":"registry"}]`, `"--mode=report"`, `"--etcd-proxy-image-pull-secrets=registry"`, `"--core-user-rotation=24h"`, `"-v=2"`, `"--metrics-cert-path=/metrics-certificate"`,
		`"--etcd-core-url=https://192.0.2.10:2379,https://[2001:db8::1]:2379"`, `"--etcd-core-ca-configmap=core-ca"`, `"--etcd-core-certs-secret=core-client"`,
		`"--etcd-core-admin-secret=core-admin"`, `"--core-tenant-users=off"`,
		`"--etcd-proxy-image=registry.example:5000/mooring/etcd-storage-proxy@sha256:abcdef0123456789`,
		`{"name":"GOMEMLIMIT","value":"400MiB"}`, `"fieldPath":"spec.nodeName"`,
		`"image":"registry.example:5000/mooring/etcd-storage-operator@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`,
		`"replicas":3`, `"cpu":"1"`, `"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"tolerations":[{"operator":"Exists"}]`,
		`"key":"disk"`, `"team":"storage"`, `"example.com/note":"any text, also: this"`,
		`"name":"prometheus-k8s","namespace":"monitoring"`, `"secretName":"metrics-certificate"`, `"interval":"1m"`, `"release":"prometheus"`,
		`"serverName":"etcd-storage-operator-metrics.kube-apiserver-storage.svc"`, `"cidr":"192.0.2.0/24"`, `"port":6443`, `"cidr":"192.0.2.10/32"`, `"port":12379`,
		`"kubernetes.io/metadata.name":"monitoring"`)
	for _, absent := range []string{"priorityClassName", "helm.sh/resource-policy", `"port":443`, `"port":2379`} {
		if strings.Contains(content, absent) {
			t.Errorf("rendered: %s", absent)
		}
	}
	if bindings := objects.OfKind[rbacv1.ClusterRoleBinding](t, render(t, etcdNamespace, etcdScenarios()["defaults"]), "ClusterRoleBinding"); len(bindings) != 1 {
		t.Errorf("without readers there are %d bindings", len(bindings))
	}
}

// TestEtcdOperatorsKindIsTheGeneratedOne: what the chart installs is what controller-gen wrote.
func TestEtcdOperatorsKindIsTheGeneratedOne(t *testing.T) {
	t.Parallel()
	checkKind(t, etcdNamespace, etcdComponent, "etcdstorages", v1alpha1.GroupVersion.Group, etcdScenarios())
}

// TestEtcdOperatorRefusals returns which values are refused, and what is said then.
func TestEtcdOperatorRefusals(t *testing.T) {
	t.Parallel()
	const on = `etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379"]}, `
	const at = "at '/etcdStorageOperator/"
	checkRefusals(t, etcdNamespace, map[string]refusal{
		"no core":             {"etcdStorageOperator: {enabled: true}", at + "core/urls': minItems: got 0, want 1"},
		"a core in plaintext": {`etcdStorageOperator: {enabled: true, core: {urls: ["http://a:2379"]}}`, at + "core/urls/0': 'http://a:2379' does not match pattern '^https://"},
		"two cores in one":    {`etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379,https://b:2379"]}}`, at + "core/urls/0'"},
		"no Secret":           {`etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379"], certsSecret: ""}}`, at + "core/certsSecret': minLength: got 0, want 1"},
		"users by a boolean":  {`etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379"], tenantUsers: false}}`, at + "core/tenantUsers': value must be one of 'auto', 'off'"},
		"a tenant":            {on + "tenants: []}", "at '/etcdStorageOperator': additional properties 'tenants' not allowed"},
		"enabled as text":     {`etcdStorageOperator: {enabled: "yes"}`, at + "enabled': got string, want boolean"},
		"keep as text":        {on + `crds: {keep: "no"}}`, at + "crds/keep': got string, want boolean"},
		"no replicas":         {on + "replicas: 0}", at + "replicas': minimum: got 0, want 1"},
		"a tag with a colon":  {on + `image: {tag: "x:y"}}`, at + "image/tag': 'x:y' does not match pattern"},
		"a proxy's policy":    {on + "proxyImage: {pullPolicy: Always}}", at + "proxyImage': additional properties 'pullPolicy' not allowed"},
		"a port too high":     {on + "networkPolicy: {etcdPorts: [70000]}}", at + "networkPolicy/etcdPorts/0': maximum: got 70,000, want 65,535"},
		"half a reader":       {on + "metrics: {readers: [{name: prometheus}]}}", at + "metrics/readers/0': missing property 'namespace'"},
		"a flag with a value": {on + "extraArgs: [--etcd-core-url=https://x]}", "etcdStorageOperator.extraArgs: --etcd-core-url is not for here: set etcdStorageOperator.core.urls"},
		"another namespace":   {on + "extraArgs: [--namespace=x]}", "etcdStorageOperator.extraArgs: --namespace is not for here: it is the release's"},
		"an argument":         {on + "extraArgs: [serve]}", at + "extraArgs/0': 'serve' does not match pattern"},
	})
	checkRefusals(t, "kube-system", map[string]refusal{
		"everybody's Secrets": {on + "}", "etcdStorageOperator is not for namespace kube-system: it has rights on all Secrets of its namespace"},
	})
	checkRefusals(t, "default", map[string]refusal{
		"by default": {on + "}", "Give it a release of its own in a namespace of its own, such as kube-apiserver-storage"},
	})
}

// TestEtcdOperatorsPolicyOpensWhatIsNeeded: names, the API server and the core out, probes and metrics in.
func TestEtcdOperatorsPolicyOpensWhatIsNeeded(t *testing.T) {
	t.Parallel()
	policies := objects.OfKind[networkingv1.NetworkPolicy](t, render(t, etcdNamespace, etcdScenarios()["defaults of the options"]), "NetworkPolicy")
	if len(policies) != 1 || len(policies[0].Spec.Ingress) != 2 || len(policies[0].Spec.PolicyTypes) != 2 {
		t.Fatalf("%+v", policies)
	}
	var have []string
	for _, rule := range policies[0].Spec.Egress {
		for _, port := range rule.Ports {
			have = append(have, port.Port.String())
		}
	}
	if diff := cmp.Diff([]string{"53", "53", "443", "6443", "2379"}, have); diff != "" {
		t.Errorf("egress (- want, + have):\n%s", diff)
	}
}

// TestEtcdOperatorNotes keeps what Helm prints after an install short and to the point.
func TestEtcdOperatorNotes(t *testing.T) {
	t.Parallel()
	checkNotes(t, etcdNamespace, etcdScenarios(), map[string]string{
		"defaults": "ConfigMap etcd-coreserving-ca, Secret etcd-coreserving-cert\n", "the kind goes": "delete the EtcdStorages and wait until they are gone",
		"everything": "Secret core-client, Secret core-admin", "defaults of the options": "Prometheus will be refused (403)",
	})
}

// etcdAlerted also names metrics that every component of ours has, and some of the proxies, which have a page of their own.
func etcdAlerted() alerted {
	return alerted{etcdComponent, "EtcdStorage", []string{
		"kube_deployment_spec_replicas", "kube_deployment_status_replicas_ready", "mooring_build_info", "leader_election_master_status",
		"mooring_etcdstorage_proxy_refused_total", "mooring_etcdstorage_proxy_boundary_violations_total", "mooring_etcdstorage_proxy_panics_total",
	}}
}

// TestEtcdOperatorMetricsAreThoseOfThePage: the page lists just the metrics that the component registers, and alerts name none but those and
// the proxies', which are on their page.
func TestEtcdOperatorMetricsAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	registered := &describer{names: map[string]bool{}}
	controller.NewMetrics(registered)
	documented := etcdAlerted().documentedMetrics(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(registered.names)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("docs/components/%s.md (- registered, + documented):\n%s", etcdComponent, diff)
	}
	page := must.Get(os.ReadFile("../../docs/components/etcd-storage-proxy.md")).Or(t)
	for _, metric := range etcdAlerted().foreign {
		if strings.HasPrefix(metric, "mooring_etcdstorage_proxy_") && !strings.Contains(string(page), "`"+metric) {
			t.Errorf("%s is not on the proxy's page", metric)
		}
	}
}

// TestEtcdOperatorRunbookSaysWhatToDo: each alert leads to a section of the runbook, each section is led to, and says what to do.
func TestEtcdOperatorRunbookSaysWhatToDo(t *testing.T) {
	t.Parallel()
	runbookSaysWhatToDo(t, etcdAlerted())
}
