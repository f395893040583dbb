// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	"github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/leftovers"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/shutdowns"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	cloudComponent = "digitalocean-cloud-controller-manager"
	// cloudNamespace is the one namespace that the cloud component may be installed in.
	cloudNamespace = "kube-system"
)

// cloudScenarios are values of the cloud component that must work.
func cloudScenarios() map[string]string {
	return map[string]string{
		"defaults":               `digitaloceanCloudControllerManager: {enabled: true}`,
		"without out-of-service": `digitaloceanCloudControllerManager: {enabled: true, outOfService: {enabled: false}}`,
		"environment":            `digitaloceanCloudControllerManager: {enabled: true, token: {from: environment}, outOfService: {enabled: false}}`,
		"startup taint":          `digitaloceanCloudControllerManager: {enabled: true, volumeStartupTaint: true}`,
		"everything": `
imagePullSecrets: [{name: registry}]
digitaloceanCloudControllerManager:
  enabled: true
  mode: report
  region: nyc1
  clusterID: 5a1f0c9e-0000-4000-8000-000000000000
  vpcID: 7b2e1d8f-0000-4000-8000-000000000000
  defaultLoadBalancerType: REGIONAL
  apiRateLimitQPS: 2.5
  firewall: {name: public, tags: ["k8s:worker", web]}
  nodeLabelsFromTags: {"team:sub": sub, env: example.com/env}
  outOfService: {gracePeriod: 45s}
  token: {secret: tokens, key: cloud}
  extraArgs: [--concurrent-service-syncs=5, -v=2]
  extraEnv: [{name: METRICS_ADDR, value: "127.0.0.1:9100"}, {name: HTTPS_PROXY, valueFrom: {configMapKeyRef: {name: proxy, key: url}}}]
  image:
    repository: registry.example:5000/mooring/digitalocean-cloud-controller-manager
    digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    pullPolicy: Always
  replicas: 3
  resources: {limits: {memory: 1Gi, cpu: "1"}}
  priorityClassName: ""
  nodeSelector: {node-role.kubernetes.io/control-plane: ""}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]
  tolerations: [{operator: Exists}]
  podLabels: {team: network}
  podAnnotations: {example.com/note: "any text, also: this"}
  metrics:
    readers: [{namespace: monitoring, name: prometheus-k8s}]
    serviceMonitor: {enabled: true, interval: 1m, labels: {release: prometheus}}
    prometheusRule: {enabled: true, labels: {release: prometheus}}`,
		"defaults of the options": `
digitaloceanCloudControllerManager: {enabled: true, metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}}`,
	}
}

// TestCloudIsSafeWithAllValues: no value takes a security context away, grants more, or moves an object to another namespace.
func TestCloudIsSafeWithAllValues(t *testing.T) {
	t.Parallel()
	for name, values := range cloudScenarios() {
		all := render(t, cloudNamespace, values)
		if judged := objects.CheckPods(t, name, all); judged != 1 {
			t.Errorf("%s: %d Deployments", name, judged)
		}
		objects.CheckRoles(t, name, cloudNamespace, all)
		for _, u := range all {
			want := cloudNamespace
			switch {
			case strings.HasPrefix(u.GetKind(), "ClusterRole"), strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy"):
				want = ""
			case strings.HasPrefix(u.GetKind(), "Role") && u.GetNamespace() == corev1.NamespaceNodeLease && name != "without out-of-service":
				want = corev1.NamespaceNodeLease // kubelets' Leases are there
			}
			if u.GetNamespace() != want {
				t.Errorf("%s: %s %s is in %q", name, u.GetKind(), u.GetName(), u.GetNamespace())
			}
		}
		d := objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0]
		if err := objects.ParseFlags(t, app.NewCommand, d.Spec.Template.Spec.Containers[0].Args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := d.Spec.Selector.MatchLabels; !maps.Equal(got, map[string]string{"app": cloudComponent}) {
			t.Errorf("%s: the selector is %v, which could not be applied over the upstream project's", name, got)
		}
	}
}

// TestCloudValuesHaveEffects looks for each value of the scenario "everything" in what it renders.
func TestCloudValuesHaveEffects(t *testing.T) {
	t.Parallel()
	content := rendered(t, render(t, cloudNamespace, cloudScenarios()["everything"]),
		`"imagePullSecrets":[{"name":"registry"}]`, `"--mode=report"`,
		`{"name":"REGION","value":"nyc1"}`, `{"name":"DO_CLUSTER_ID","value":"5a1f0c9e-0000-4000-8000-000000000000"}`,
		`{"name":"DO_CLUSTER_VPC_ID","value":"7b2e1d8f-0000-4000-8000-000000000000"}`, `{"name":"DEFAULT_LB_TYPE","value":"REGIONAL"}`,
		`{"name":"DO_API_RATE_LIMIT_QPS","value":"2.5"}`,
		`{"name":"PUBLIC_ACCESS_FIREWALL_NAME","value":"public"}`, `{"name":"PUBLIC_ACCESS_FIREWALL_TAGS","value":"k8s:worker,web"}`,
		`{"name":"DO_NODE_LABELS_FROM_TAGS","value":"env=example.com/env,team:sub=sub"}`, `{"name":"METRICS_ADDR","value":"127.0.0.1:9100"}`, `"configMapKeyRef":{"key":"url","name":"proxy"}`,
		`"--token-file=/var/run/secrets/digitalocean/cloud"`, `"secretName":"tokens"`, `"items":[{"key":"cloud","path":"cloud"}]`,
		`"--concurrent-service-syncs=5"`, `"-v=2"`, `"--out-of-service-taint=true"`, `"--out-of-service-grace-period=45s"`,
		`"image":"registry.example:5000/mooring/digitalocean-cloud-controller-manager@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`,
		`"replicas":3`, `"cpu":"1"`, `"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"tolerations":[{"operator":"Exists"}]`,
		`"key":"disk"`, `"podAntiAffinity":`, `"team":"network"`, `"example.com/note":"any text, also: this"`,
		`"name":"prometheus-k8s","namespace":"monitoring"`, `"interval":"1m"`, `"release":"prometheus"`)
	for _, absent := range []string{"priorityClassName", "DO_ACCESS_TOKEN"} {
		if strings.Contains(content, absent) {
			t.Errorf("rendered: %s", absent)
		}
	}
	unset := must.Get(json.Marshal(byName(render(t, cloudNamespace, cloudScenarios()["defaults"])))).Or(t)
	for _, absent := range []string{"PUBLIC_ACCESS_FIREWALL", "DO_NODE_LABELS"} {
		if strings.Contains(string(unset), absent) {
			t.Errorf("rendered by default: %s", absent)
		}
	}
	readers := objects.OfKind[rbacv1.ClusterRoleBinding](t, render(t, cloudNamespace, cloudScenarios()["defaults"]), "ClusterRoleBinding")
	if len(readers) != 1 {
		t.Errorf("without readers there are %d bindings", len(readers))
	}
}

// TestCloudRefusals returns which values are refused, and what is said then.
func TestCloudRefusals(t *testing.T) {
	t.Parallel()
	const on = "digitaloceanCloudControllerManager: {enabled: true, "
	const at = "at '/digitaloceanCloudControllerManager/"
	checkRefusals(t, cloudNamespace, map[string]refusal{
		"no region":         {on + "region: New York}", at + "region': 'New York' does not match pattern"},
		"no VPC":            {on + "vpcID: default}", at + "vpcID': 'default' does not match pattern"},
		"a tag":             {on + "clusterID: k8s/a}", at + "clusterID': 'k8s/a' does not match pattern"},
		"another type":      {on + "defaultLoadBalancerType: GLOBAL}", at + "defaultLoadBalancerType': value must be one of '', 'REGIONAL', 'REGIONAL_NETWORK'"},
		"a negative rate":   {on + "apiRateLimitQPS: -1}", at + "apiRateLimitQPS': minimum: got -1, want 0"},
		"half a firewall":   {on + "firewall: {name: public}}", "digitaloceanCloudControllerManager.firewall: set name and tags to let a firewall be managed, or neither"},
		"the other half":    {on + "firewall: {tags: [web]}}", "digitaloceanCloudControllerManager.firewall: set name and tags"},
		"no firewall":       {on + "firewall: {name: a b, tags: [web]}}", at + "firewall/name': 'a b' does not match pattern"},
		"two tags in one":   {on + "firewall: {name: a, tags: ['x,y']}}", at + "firewall/tags/0': 'x,y' does not match pattern"},
		"too many tags":     {on + "firewall: {name: a, tags: [a, b, c, d, e, f]}}", at + "firewall/tags': maxItems: got 6, want 5"},
		"Kubernetes' label": {on + "nodeLabelsFromTags: {env: a.k8s.io/env}}", "nodeLabelsFromTags: label a.k8s.io/env is Kubernetes' own"},
		"one label twice":   {on + "nodeLabelsFromTags: {a: x, b: x}}", "nodeLabelsFromTags: label x is made of two tags, a and b"},
		"no label":          {on + "nodeLabelsFromTags: {env: a/b/c}}", at + "nodeLabelsFromTags/env': 'a/b/c' does not match pattern"},
		"no tag":            {on + "nodeLabelsFromTags: {'a=b': x}}", "does not match pattern"},
		"a token":           {on + "token: dop_v1_x}", at + "token': got string, want object"},
		"a token's place":   {on + "token: {from: vault}}", at + "token/from': value must be one of 'file', 'environment'"},
		"no Secret":         {on + `token: {secret: ""}}`, at + "token/secret': minLength: got 0, want 1"},
		"no replicas":       {on + "replicas: 0}", at + "replicas': minimum: got 0, want 1"},
		"an unknown value":  {on + "cluster: x}", "at '/digitaloceanCloudControllerManager': additional properties 'cluster' not allowed"},
		"own anti-affinity": {on + "affinity: {}}", "additional properties 'affinity' not allowed"},
		"a flag with a value": {on + "extraArgs: [--token-file=/x]}",
			"digitaloceanCloudControllerManager.extraArgs: --token-file is not for here: set digitaloceanCloudControllerManager.token"},
		"the tag":                      {on + "extraArgs: [--require-cluster-tag]}", "--require-cluster-tag is not for here: set digitaloceanCloudControllerManager.requireClusterTag"},
		"the taint without its rights": {on + "extraArgs: [--out-of-service-taint]}", "--out-of-service-taint is not for here: set digitaloceanCloudControllerManager.outOfService.enabled"},
		"no grace period":              {on + "outOfService: {gracePeriod: soon}}", at + "outOfService/gracePeriod': 'soon' does not match pattern"},
		"a flag that would break":      {on + "extraArgs: [--secure-port=0]}", "--secure-port is not for here: the probes and the Service expect port 10258"},
		"a variable with a value": {on + "extraEnv: [{name: REGION, value: nyc1}]}",
			"digitaloceanCloudControllerManager.extraEnv: REGION is not for here: set digitaloceanCloudControllerManager.region"},
		"a firewall's name elsewhere": {on + "extraEnv: [{name: PUBLIC_ACCESS_FIREWALL_NAME, value: x}]}", "PUBLIC_ACCESS_FIREWALL_NAME is not for here: set digitaloceanCloudControllerManager.firewall.name"},
		"a token in the values":       {on + "extraEnv: [{name: DO_ACCESS_TOKEN, value: x}]}", "DO_ACCESS_TOKEN is not for here: set digitaloceanCloudControllerManager.token"},
	})
	checkRefusals(t, namespace, map[string]refusal{
		"another namespace": {on + "}", "digitaloceanCloudControllerManager is for the namespace kube-system, where its Leases and DigitalOcean's Secret are, and not for mooring-system"},
	})
}

// TestCloudNotes keeps what Helm prints after an install short and to the point.
func TestCloudNotes(t *testing.T) {
	t.Parallel()
	checkNotes(t, cloudNamespace, cloudScenarios(), map[string]string{
		"defaults": "clusterID is empty", "everything": "with the token of Secret tokens", "defaults of the options": "Prometheus will be refused (403)",
	})
}

// describer takes the descriptions of what is registered with it.
type describer struct{ names map[string]bool }

// Register implements prometheus.Registerer.
func (d *describer) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descriptions)
		close(descriptions)
	}()
	for one := range descriptions {
		d.names[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(one.String())[1]] = true
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (d *describer) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}

// Unregister implements prometheus.Registerer.
func (d *describer) Unregister(prometheus.Collector) bool { return false }

// TestCloudMetricsAreThoseOfThePage: the page lists just the metrics that the component registers, and alerts name none but those. That the program
// registers them is what the run of it shows (test/manifests and internal/docloud/app scrape it).
func TestCloudMetricsAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	registered := &describer{names: map[string]bool{}}
	doapi.NewMetrics(registered)
	balancers.NewMetrics(registered)
	machines.New(nil, machines.NewSnapshot(nil, clock.RealClock{}), machines.DefaultConfig(), clock.RealClock{}, registered)
	firewalls.NewMetrics(registered)
	leftovers.NewMetrics(registered)
	clustertag.NewMetrics(registered)
	shutdowns.NewMetrics(registered)
	admissionapp.NewMetrics(registered)
	registered.MustRegister((&certreload.Reloader{}).Collector("webhook"))
	maps.DeleteFunc(registered.names, func(name string, _ bool) bool { return strings.HasPrefix(name, "firewall_") }) // the upstream project's
	documented := allAlerted()[1].documentedMetrics(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(registered.names)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("docs/components/%s.md (- registered, + documented):\n%s", cloudComponent, diff)
	}
}
