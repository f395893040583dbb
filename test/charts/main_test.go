// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	chart     = "../../charts/mooring"
	namespace = "mooring-system"
	component = "calico-node-sync"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// tool returns the path of a pinned tool, or skips the test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(testkit.Root(t), "bin", name)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		testkit.Skip(t, "it needs bin/%s: run `make bin/%s`", name, name)
	}
	return path
}

// run runs a tool with nothing of our environment and returns what it wrote to its standard output and its standard error.
func run(t *testing.T, name string, args ...string) (out, complaint string, err error) {
	t.Helper()
	return runWith(t, "", name, args...)
}

// runWith is run with a standard input.
func runWith(t *testing.T, input, name string, args ...string) (out, complaint string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	var stdout, stderr bytes.Buffer
	cmd.Stdin = strings.NewReader(input)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// helm runs Helm with the values (YAML).
func helm(t *testing.T, values string, args ...string) (out, complaint string, err error) {
	t.Helper()
	return runWith(t, values, "helm", append(args, "--values", "-")...)
}

// render returns what the chart makes of the values in a namespace; a refusal ends the test.
func render(t *testing.T, ns, values string) []*unstructured.Unstructured {
	t.Helper()
	out, complaint, err := helm(t, values, "template", "mooring", chart, "--namespace", ns)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, complaint)
	}
	return objects.Parse(t, "helm template", []byte(out))
}

// read parses a YAML file strictly.
func read[T any](t *testing.T, path string) T {
	t.Helper()
	content := must.Get(os.ReadFile(path)).Or(t)
	var out T
	if err := yaml.UnmarshalStrict(content, &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

// scenarios are values that must work; what is said about all rendered objects is said about these.
func scenarios() map[string]string {
	return map[string]string{
		"nothing": "",
		"kubernetes": `
calicoNodeSync: {enabled: true, datastore: kubernetes}`,
		"etcdv3": `
calicoNodeSync: {enabled: true, datastore: etcdv3, etcd: {configMap: calico-config}}`,
		"etcdv3 without TLS": `
calicoNodeSync: {enabled: true, datastore: etcdv3, etcd: {endpoints: ["http://192.0.2.10:2379"]}}`,
		"everything": `
global: {somebody: elses}
imagePullSecrets: [{name: registry}]
dashboards: {enabled: true, labels: {dashboard: "yes"}, annotations: {grafana_folder: Mooring}}
calicoNodeSync:
  enabled: true
  datastore: etcdv3
  etcd:
    endpoints: ["https://192.0.2.10:2379", "https://[2001:db8::1]:2379"]
    secret: certificates
    caKey: ca.crt
    certKey: tls.crt
    keyKey: tls.key
  mode: report
  gracePeriod: 1h30m
  journal: {retention: 24h, maxEntries: 50}
  extraArgs: [--nodes-per-round=10, -v=2]
  extraEnv:
    - {name: ETCD_USERNAME, value: mooring}
    - {name: ETCD_PASSWORD, valueFrom: {secretKeyRef: {name: etcd, key: password}}}
  image:
    repository: registry.example:5000/mooring/calico-node-sync
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
  podLabels: {team: network}
  podAnnotations: {example.com/note: "any text, also: this"}
  metrics:
    readers: [{namespace: monitoring, name: prometheus-k8s}]
    certificateSecret: metrics-certificate
    serviceMonitor: {enabled: true, interval: 1m, labels: {release: prometheus}}
    prometheusRule: {enabled: true, labels: {release: prometheus}}
  networkPolicy:
    enabled: true
    apiServerPorts: [6443]
    apiServerCIDRs: [192.0.2.0/24, "2001:db8::/64"]
    etcdCIDRs: [192.0.2.10/32]
    metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]`,
		"journal on a volume": `
calicoNodeSync:
  enabled: true
  datastore: kubernetes
  journal: {mode: folder, folder: {size: 5Gi, storageClass: shared}}`,
		"journal on somebody's volume": `
calicoNodeSync:
  enabled: true
  datastore: etcdv3
  etcd: {configMap: calico-config}
  replicas: 1
  journal: {mode: folder, folder: {existingClaim: archive, accessMode: ReadWriteOnce}}`,
		"no journal": `
calicoNodeSync: {enabled: true, datastore: kubernetes, journal: {mode: none}}`,
		"defaults of the options": `
calicoNodeSync:
  enabled: true
  datastore: kubernetes
  metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}
  networkPolicy: {enabled: true}`,
	}
}

// checkSafety renders values of one component into a namespace of its own and judges every object: security contexts, rights, the namespace it is in,
// and that none names the usual namespace.
func checkSafety(t *testing.T, scenario, values, usual string) []*unstructured.Unstructured {
	t.Helper()
	all := render(t, "elsewhere", values)
	if judged := objects.CheckPods(t, scenario, all); judged != 1 {
		t.Errorf("%s: %d Deployments", scenario, judged)
	}
	objects.CheckRoles(t, scenario, "elsewhere", all)
	for _, u := range all {
		clusterWide := strings.HasPrefix(u.GetKind(), "ClusterRole") || strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") ||
			u.GetKind() == "CustomResourceDefinition"
		if want := map[bool]string{false: "elsewhere"}[clusterWide]; u.GetNamespace() != want {
			t.Errorf("%s: %s %s is in %q", scenario, u.GetKind(), u.GetName(), u.GetNamespace())
		}
		content := must.Get(json.Marshal(u)).Or(t)
		if strings.Contains(string(content), usual) {
			t.Errorf("%s: %s %s names %s", scenario, u.GetKind(), u.GetName(), usual)
		}
	}
	return all
}

// rendered returns objects as one JSON text, and looks for texts in it.
func rendered(t *testing.T, all []*unstructured.Unstructured, wants ...string) string {
	t.Helper()
	content := must.Get(json.Marshal(byName(all))).Or(t)
	for _, want := range wants {
		if !strings.Contains(string(content), want) {
			t.Errorf("not rendered: %s", want)
		}
	}
	return string(content)
}

// A refusal is values that the chart must not render, and what is said then.
type refusal struct{ values, want string }

// checkRefusals renders each into a namespace.
func checkRefusals(t *testing.T, ns string, all map[string]refusal) {
	t.Helper()
	for name, tc := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, complaint, err := helm(t, tc.values, "template", "mooring", chart, "--namespace", ns)
			if err == nil {
				t.Fatalf("accepted:\n%s", out)
			}
			if !strings.Contains(complaint, tc.want) {
				t.Errorf("want %q in:\n%s", tc.want, complaint)
			}
		})
	}
}

// checkNotes looks for a text in what Helm prints after an install of each scenario, which must be short.
func checkNotes(t *testing.T, ns string, scenarios, wants map[string]string) {
	t.Helper()
	for name, want := range wants {
		out, complaint, err := helm(t, scenarios[name], "install", "mooring", chart, "--namespace", ns, "--dry-run=client")
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, complaint)
		}
		_, notes, ok := strings.Cut(out, "\nNOTES:\n")
		if strings.Contains(notes, "Nothing is installed") && name != "nothing" {
			t.Errorf("%s: the notes say that nothing is installed:\n%s", name, notes)
		}
		if lines := strings.Count(notes, "\n"); !ok || !strings.Contains(notes, want) || lines > 12 {
			t.Errorf("%s: want %q in at most 12 lines, have %d:\n%s", name, want, lines, notes)
		}
	}
}

// checkKind compares the CustomResourceDefinition that the chart installs with the generated one, but for labels and the annotation by which Helm keeps
// it, and installs none if none is wanted.
func checkKind(t *testing.T, ns, component, plural, group string, scenarios map[string]string) {
	t.Helper()
	path := filepath.Join(testkit.Root(t), "config", "crd", "bases", group+"_"+plural+".yaml")
	content := must.Get(os.ReadFile(path)).Or(t)
	_, body, _ := strings.Cut(string(content), "---\n")
	for name, keep := range map[string]bool{"defaults": true, "the kind goes": false} {
		want := objects.Parse(t, path, []byte(body))[0]
		want.SetLabels(map[string]string{"app.kubernetes.io/name": component, "app.kubernetes.io/part-of": "mooring"})
		if keep {
			annotations := want.GetAnnotations()
			annotations["helm.sh/resource-policy"] = "keep"
			want.SetAnnotations(annotations)
		}
		have := byName(render(t, ns, scenarios[name]))["CustomResourceDefinition /"+want.GetName()]
		if have == nil {
			t.Fatalf("%s: there is no CRD", name)
		}
		withoutHelmsLabels(t, have)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: run make manifests (- config/crd, + chart):\n%s", name, diff)
		}
	}
	if byName(render(t, ns, scenarios["without the kind"]))["CustomResourceDefinition /"+plural+"."+group] != nil {
		t.Error("crds.install false installs the kind")
	}
}
