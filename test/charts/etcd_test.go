// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
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
	"github.com/mooring-dev/mooring/internal/testkit"
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
	content, err := json.Marshal(byName(render(t, etcdNamespace, etcdScenarios()["everything"])))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"imagePullSecrets":[{"name":"registry"}]`, `"--etcd-proxy-image-pull-secrets=registry"`, `"--core-user-rotation=24h"`, `"-v=2"`, `"--metrics-cert-path=/metrics-certificate"`,
		`"--etcd-core-url=https://192.0.2.10:2379,https://[2001:db8::1]:2379"`, `"--etcd-core-ca-configmap=core-ca"`, `"--etcd-core-certs-secret=core-client"`,
		`"--etcd-core-admin-secret=core-admin"`, `"--core-tenant-users=off"`,
		`"--etcd-proxy-image=registry.example:5000/mooring/etcd-storage-proxy@sha256:abcdef0123456789`,
		`{"name":"GOMEMLIMIT","value":"400MiB"}`, `"fieldPath":"spec.nodeName"`,
		`"image":"registry.example:5000/mooring/etcd-storage-operator@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`,
		`"replicas":3`, `"cpu":"1"`, `"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"tolerations":[{"operator":"Exists"}]`,
		`"key":"disk"`, `"team":"storage"`, `"example.com/note":"any text, also: this"`,
		`"name":"prometheus-k8s","namespace":"monitoring"`, `"secretName":"metrics-certificate"`, `"interval":"1m"`, `"release":"prometheus"`,
		`"serverName":"etcd-storage-operator-metrics.kube-apiserver-storage.svc"`, `"cidr":"192.0.2.0/24"`, `"port":6443`, `"cidr":"192.0.2.10/32"`, `"port":12379`,
		`"kubernetes.io/metadata.name":"monitoring"`,
	} {
		if !strings.Contains(string(content), want) {
			t.Errorf("not rendered: %s", want)
		}
	}
	for _, absent := range []string{"priorityClassName", "helm.sh/resource-policy", `"port":443`, `"port":2379`} {
		if strings.Contains(string(content), absent) {
			t.Errorf("rendered: %s", absent)
		}
	}
	if bindings := objects.OfKind[rbacv1.ClusterRoleBinding](t, render(t, etcdNamespace, etcdScenarios()["defaults"]), "ClusterRoleBinding"); len(bindings) != 1 {
		t.Errorf("without readers there are %d bindings", len(bindings))
	}
}

// TestEtcdOperatorsKindIsTheGeneratedOne: what the chart installs is what controller-gen wrote, with labels, and the annotation by which
// Helm keeps it.
func TestEtcdOperatorsKindIsTheGeneratedOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.Root(t), "config", "crd", "bases", v1alpha1.GroupVersion.Group+"_etcdstorages.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(content), "---\n")
	for name, keep := range map[string]bool{"defaults": true, "the kind goes": false} {
		want := objects.Parse(t, path, []byte(body))[0]
		want.SetLabels(map[string]string{"app.kubernetes.io/name": etcdComponent, "app.kubernetes.io/part-of": "mooring"})
		if keep {
			annotations := want.GetAnnotations()
			annotations["helm.sh/resource-policy"] = "keep"
			want.SetAnnotations(annotations)
		}
		have := byName(render(t, etcdNamespace, etcdScenarios()[name]))["CustomResourceDefinition /"+want.GetName()]
		if have == nil {
			t.Fatalf("%s: there is no CRD", name)
		}
		withoutHelmsLabels(t, have)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: run make manifests (- config/crd, + chart):\n%s", name, diff)
		}
	}
	if found := byName(render(t, etcdNamespace, etcdScenarios()["without the kind"])); found["CustomResourceDefinition /etcdstorages."+v1alpha1.GroupVersion.Group] != nil {
		t.Error("crds.install false installs the kind")
	}
}

// TestEtcdOperatorRefusals returns which values are refused, and what is said then.
func TestEtcdOperatorRefusals(t *testing.T) {
	t.Parallel()
	const on = `etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379"]}, `
	const at = "at '/etcdStorageOperator/"
	for name, tc := range map[string]struct{ namespace, values, want string }{
		"no core":             {etcdNamespace, "etcdStorageOperator: {enabled: true}", at + "core/urls': minItems: got 0, want 1"},
		"a core in plaintext": {etcdNamespace, `etcdStorageOperator: {enabled: true, core: {urls: ["http://a:2379"]}}`, at + "core/urls/0': 'http://a:2379' does not match pattern '^https://"},
		"two cores in one":    {etcdNamespace, `etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379,https://b:2379"]}}`, at + "core/urls/0'"},
		"no Secret":           {etcdNamespace, `etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379"], certsSecret: ""}}`, at + "core/certsSecret': minLength: got 0, want 1"},
		"users by a boolean":  {etcdNamespace, `etcdStorageOperator: {enabled: true, core: {urls: ["https://a:2379"], tenantUsers: false}}`, at + "core/tenantUsers': value must be one of 'auto', 'off'"},
		"a tenant":            {etcdNamespace, on + "tenants: []}", "at '/etcdStorageOperator': additional properties 'tenants' not allowed"},
		"enabled as text":     {etcdNamespace, `etcdStorageOperator: {enabled: "yes"}`, at + "enabled': got string, want boolean"},
		"keep as text":        {etcdNamespace, on + `crds: {keep: "no"}}`, at + "crds/keep': got string, want boolean"},
		"no replicas":         {etcdNamespace, on + "replicas: 0}", at + "replicas': minimum: got 0, want 1"},
		"a tag with a colon":  {etcdNamespace, on + `image: {tag: "x:y"}}`, at + "image/tag': 'x:y' does not match pattern"},
		"a proxy's policy":    {etcdNamespace, on + "proxyImage: {pullPolicy: Always}}", at + "proxyImage': additional properties 'pullPolicy' not allowed"},
		"a port too high":     {etcdNamespace, on + "networkPolicy: {etcdPorts: [70000]}}", at + "networkPolicy/etcdPorts/0': maximum: got 70,000, want 65,535"},
		"half a reader":       {etcdNamespace, on + "metrics: {readers: [{name: prometheus}]}}", at + "metrics/readers/0': missing property 'namespace'"},
		"a flag with a value": {etcdNamespace, on + "extraArgs: [--etcd-core-url=https://x]}", "etcdStorageOperator.extraArgs: --etcd-core-url is not for here: set etcdStorageOperator.core.urls"},
		"another namespace":   {etcdNamespace, on + "extraArgs: [--namespace=x]}", "etcdStorageOperator.extraArgs: --namespace is not for here: it is the release's"},
		"an argument":         {etcdNamespace, on + "extraArgs: [serve]}", at + "extraArgs/0': 'serve' does not match pattern"},
		"everybody's Secrets": {"kube-system", on + "}", "etcdStorageOperator is not for namespace kube-system: it has rights on all Secrets of its namespace"},
		"by default":          {"default", on + "}", "Give it a release of its own in a namespace of its own, such as kube-apiserver-storage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, complaint, err := helm(t, tc.values, "template", "mooring", chart, "--namespace", tc.namespace)
			if err == nil {
				t.Fatalf("accepted:\n%s", out)
			}
			if !strings.Contains(complaint, tc.want) {
				t.Errorf("want %q in:\n%s", tc.want, complaint)
			}
		})
	}
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
	for name, want := range map[string]string{
		"defaults": "ConfigMap etcd-coreserving-ca, Secret etcd-coreserving-cert\n", "the kind goes": "delete the EtcdStorages and wait until they are gone",
		"everything": "Secret core-client, Secret core-admin", "defaults of the options": "Prometheus will be refused (403)",
	} {
		out, complaint, err := helm(t, etcdScenarios()[name], "install", "mooring", chart, "--namespace", etcdNamespace, "--dry-run=client")
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, complaint)
		}
		_, notes, ok := strings.Cut(out, "\nNOTES:\n")
		if lines := strings.Count(notes, "\n"); !ok || !strings.Contains(notes, want) || strings.Contains(notes, "Nothing is installed") || lines > 12 {
			t.Errorf("%s: want %q in at most 12 lines, have %d:\n%s", name, want, lines, notes)
		}
	}
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
	page, err := os.ReadFile("../../docs/components/etcd-storage-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
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
