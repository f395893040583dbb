// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector/app"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/test/objects"
)

const reflectorsComponent = "calico-route-reflector-operator"

// reflectorsScenarios are values of the route reflectors' operator that must work.
func reflectorsScenarios() map[string]string {
	return map[string]string{
		"defaults":         `calicoRouteReflectorOperator: {enabled: true}`,
		"without the kind": `calicoRouteReflectorOperator: {enabled: true, crds: {install: false}}`,
		"etcdv3":           `calicoRouteReflectorOperator: {enabled: true, crds: {install: false}, datastore: etcdv3, etcd: {configMap: calico-config}}`,
		"etcdv3, named": `
calicoRouteReflectorOperator:
  enabled: true
  datastore: etcdv3
  etcd: {endpoints: ["https://192.0.2.10:2379", "https://192.0.2.11:2379"], secret: certificates, certKey: "", keyKey: ""}
  hostNetwork: false
  networkPolicy: {enabled: true, etcdPorts: [4001], etcdCIDRs: [192.0.2.10/32]}`,
		"the kind goes": `calicoRouteReflectorOperator: {enabled: true, crds: {keep: false}}`,
		"everything": `
imagePullSecrets: [{name: registry}]
calicoRouteReflectorOperator:
  enabled: true
  mode: report
  crds: {keep: false}
  hostNetwork: false
  ports: {metrics: 8443, health: 8081}
  apiServer: {host: 192.0.2.1, port: 7443}
  extraArgs: [--settle-period=10s, -v=2]
  extraEnv: [{name: GOMEMLIMIT, value: 400MiB}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
  image:
    repository: registry.example:5000/mooring/calico-route-reflector-operator
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
    apiServerCIDRs: [192.0.2.0/24]
    metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]`,
		"defaults of the options": `
calicoRouteReflectorOperator:
  enabled: true
  metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}
  networkPolicy: {enabled: true}`,
	}
}

// TestReflectorsAreSafeWithAllValues: no value takes a security context away, grants more, or moves an object to another namespace.
func TestReflectorsAreSafeWithAllValues(t *testing.T) {
	t.Parallel()
	for name, values := range reflectorsScenarios() {
		all := checkSafety(t, name, values, namespace)
		d := objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0]
		if err := objects.ParseFlags(t, objects.Sure(app.NewCommand), d.Spec.Template.Spec.Containers[0].Args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReflectorsValuesHaveEffects looks for each value of the scenario "everything" in what it renders.
func TestReflectorsValuesHaveEffects(t *testing.T) {
	t.Parallel()
	content := rendered(t, render(t, namespace, reflectorsScenarios()["everything"]),
		`"imagePullSecrets":[{"name":"registry"}]`, `"--mode=report"`, `"--settle-period=10s"`, `"-v=2"`, `"--metrics-cert-path=/metrics-certificate"`,
		`{"name":"GOMEMLIMIT","value":"400MiB"}`, `"fieldPath":"spec.nodeName"`,
		`"image":"registry.example:5000/mooring/calico-route-reflector-operator@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`,
		`"replicas":3`, `"cpu":"1"`, `"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"tolerations":[{"operator":"Exists"}]`,
		`"key":"disk"`, `"team":"network"`, `"example.com/note":"any text, also: this"`,
		`"name":"prometheus-k8s","namespace":"monitoring"`, `"secretName":"metrics-certificate"`, `"interval":"1m"`, `"release":"prometheus"`,
		`"serverName":"calico-route-reflector-operator-metrics.mooring-system.svc"`, `"cidr":"192.0.2.0/24"`, `"port":6443`,
		`"kubernetes.io/metadata.name":"monitoring"`, `{"name":"KUBERNETES_SERVICE_HOST","value":"192.0.2.1"}`, `{"name":"KUBERNETES_SERVICE_PORT","value":"7443"}`,
		`"--metrics-bind-address=:8443"`, `"--health-probe-bind-address=:8081"`, `"maxSurge":1`)
	for _, absent := range []string{"priorityClassName", "helm.sh/resource-policy", `"port":443`, "hostNetwork", "podAntiAffinity"} {
		if strings.Contains(content, absent) {
			t.Errorf("rendered: %s", absent)
		}
	}
	if bindings := objects.OfKind[rbacv1.ClusterRoleBinding](t, render(t, namespace, reflectorsScenarios()["defaults"]), "ClusterRoleBinding"); len(bindings) != 2 {
		t.Errorf("without readers there are %d bindings", len(bindings))
	}
}

// TestReflectorsNeedNoPodNetwork: what restores routes between pods runs without them, whatever taint its machine has, and never twice on
// one machine, whose ports it has.
func TestReflectorsNeedNoPodNetwork(t *testing.T) {
	t.Parallel()
	mine := `
calicoRouteReflectorOperator:
  enabled: true
  networkPolicy: {enabled: true}
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {matchLabels: {team: network}}}]`
	for name, values := range map[string]string{"defaults": reflectorsScenarios()["defaults"], "an affinity of one's own": mine} {
		all := render(t, namespace, values)
		d := objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0]
		pod := d.Spec.Template.Spec
		if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault || len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
			t.Errorf("%s: host network %v, DNS policy %s, tolerations %v", name, pod.HostNetwork, pod.DNSPolicy, pod.Tolerations)
		}
		if surge := d.Spec.Strategy.RollingUpdate.MaxSurge; surge.IntValue() != 0 {
			t.Errorf("%s: a new pod waits for the ports of the old one, with maxSurge %s", name, surge)
		}
		terms := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if last := terms[len(terms)-1]; last.TopologyKey != corev1.LabelHostname || !maps.Equal(last.LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
			t.Errorf("%s: two pods may share a machine: %v", name, terms)
		}
		if slices.ContainsFunc(all, func(u *unstructured.Unstructured) bool { return u.GetKind() == "NetworkPolicy" }) {
			t.Errorf("%s: there is a NetworkPolicy, which applies to no pod on its machine's network", name)
		}
	}
}

// TestReflectorsEtcd: endpoints, certificates and the way to them are rendered, and of rights on Calico's kinds in the API server none.
func TestReflectorsEtcd(t *testing.T) {
	t.Parallel()
	content := rendered(t, render(t, namespace, reflectorsScenarios()["etcdv3, named"]),
		`{"name":"DATASTORE_TYPE","value":"etcdv3"}`, `{"name":"ETCD_ENDPOINTS","value":"https://192.0.2.10:2379,https://192.0.2.11:2379"}`,
		`{"name":"ETCD_CA_CERT_FILE","value":"/calico-secrets/etcd-ca"}`, `"secretName":"certificates"`, `"cidr":"192.0.2.10/32"`, `"port":4001`,
		`"resourceNames":["kube-system"]`)
	for _, absent := range []string{"ETCD_CERT_FILE", "bgppeers\"]", `"patch"],"resources":["nodes"]`} {
		if strings.Contains(content, absent) {
			t.Errorf("rendered: %s", absent)
		}
	}
}

// TestReflectorsKindIsTheGeneratedOne: what the chart installs is what controller-gen wrote.
func TestReflectorsKindIsTheGeneratedOne(t *testing.T) {
	t.Parallel()
	checkKind(t, namespace, reflectorsComponent, "routereflectortopologies", v1alpha1.GroupVersion.Group, reflectorsScenarios())
}

// TestReflectorsRefusals returns which values are refused, and what is said then.
func TestReflectorsRefusals(t *testing.T) {
	t.Parallel()
	const on = "calicoRouteReflectorOperator: {enabled: true, "
	const etcd = on + "datastore: etcdv3, etcd: "
	const at = "at '/calicoRouteReflectorOperator/"
	checkRefusals(t, namespace, map[string]refusal{
		"enabled as text":    {`calicoRouteReflectorOperator: {enabled: "yes"}`, at + "enabled': got string, want boolean"},
		"a topology":         {on + "topology: {}}", "at '/calicoRouteReflectorOperator': additional properties 'topology' not allowed"},
		"keep as text":       {on + `crds: {keep: "no"}}`, at + "crds/keep': got string, want boolean"},
		"an unknown CRD":     {on + "crds: {enabled: true}}", at + "crds': additional properties 'enabled' not allowed"},
		"no replicas":        {on + "replicas: 0}", at + "replicas': minimum: got 0, want 1"},
		"a tag with a colon": {on + `image: {tag: "x:y"}}`, at + "image/tag': 'x:y' does not match pattern"},
		"a port too high":    {on + "networkPolicy: {apiServerPorts: [70000]}}", at + "networkPolicy/apiServerPorts/0': maximum: got 70,000, want 65,535"},
		"a port of no etcd":  {on + "networkPolicy: {etcdPorts: [70000]}}", at + "networkPolicy/etcdPorts/0': maximum: got 70,000, want 65,535"},
		"another datastore":  {on + "datastore: kdd}", at + "datastore': value must be one of 'etcdv3', 'kubernetes'"},
		"no endpoints":       {on + "datastore: etcdv3}", at + "etcd/endpoints': minItems: got 0, want 1"},
		"a contradiction":    {on + "etcd: {configMap: calico-config}}", "calicoRouteReflectorOperator.etcd names an etcd: set datastore to etcdv3, or remove the etcd"},
		"an older version's": {on + "etcd: null}", "calicoRouteReflectorOperator.etcd is missing: these are the values of an earlier version of the chart"},
		"two sources":        {etcd + `{endpoints: ["https://a:2379"], configMap: b}}`, "both name an etcd: remove one of them"},
		"http and https":     {etcd + `{endpoints: ["https://a:2379", "http://b:2379"]}}`, "calicoRouteReflectorOperator.etcd.endpoints mixes http and https"},
		"half a certificate": {etcd + `{endpoints: ["https://a:2379"], keyKey: ""}}`, "only one of certKey and keyKey is set"},
		"the datastore's flag": {on + "extraArgs: [--datastore-type=kubernetes]}",
			"--datastore-type is not for here: set calicoRouteReflectorOperator.datastore"},
		"half a reader":       {on + "metrics: {readers: [{name: prometheus}]}}", at + "metrics/readers/0': missing property 'namespace'"},
		"a flag with a value": {on + "extraArgs: [--metrics-cert-path=/x]}", "calicoRouteReflectorOperator.extraArgs: --metrics-cert-path is not for here: set calicoRouteReflectorOperator.metrics.certificateSecret"},
		"a flag that would break": {on + "extraArgs: ['--leader-election-id=x']}",
			"calicoRouteReflectorOperator.extraArgs: --leader-election-id is not for here: the Role allows one Lease"},
		"two on one port":           {on + "ports: {metrics: 9178}}", "calicoRouteReflectorOperator.ports: metrics and health are both 9178: give them two ports"},
		"a port of root's":          {on + "ports: {metrics: 443}}", at + "ports/metrics': minimum: got 443, want 1,024"},
		"a URL as host":             {on + "apiServer: {host: 'https://192.0.2.1'}}", at + "apiServer/host': 'https://192.0.2.1' does not match pattern"},
		"an older version's budget": {on + "podDisruptionBudget: null}", "podDisruptionBudget of calico-route-reflector-operator is missing: these are the values of an earlier version of the chart"},
		"an older version's ports":  {on + "ports: null}", "calicoRouteReflectorOperator.ports is missing: these are the values of an earlier version of the chart"},
		"an argument":               {on + "extraArgs: [plan]}", at + "extraArgs/0': 'plan' does not match pattern"},
	})
}

// TestReflectorsNotes keeps what Helm prints after an install short and to the point.
func TestReflectorsNotes(t *testing.T) {
	t.Parallel()
	checkNotes(t, namespace, reflectorsScenarios(), map[string]string{
		"defaults": "It writes nothing until there is a RouteReflectorTopology", "the kind goes": "delete the topologies and wait until they are gone",
		"defaults of the options": "Prometheus will be refused (403)",
	})
}

// TestReflectorsMetricsAreThoseOfThePage: the page lists just the metrics that the component registers, and alerts name none but those. That
// the program serves them is what the run of it shows (test/manifests).
func TestReflectorsMetricsAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	registered := &describer{names: map[string]bool{}}
	controller.NewMetrics(registered)
	documented := reflectorsAlerted().documentedMetrics(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(registered.names)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("docs/components/%s.md (- registered, + documented):\n%s", reflectorsComponent, diff)
	}
}

// TestReflectorsReleaseKeepsTheKind removes a release with Helm itself: the kind stays, and with it whatever topologies there are. The same
// release comes back over it, another one without it; with crds.keep false it goes.
func TestReflectorsReleaseKeepsTheKind(t *testing.T) {
	t.Parallel()
	tool(t, "helm")
	cluster := controlplane.New(t)
	server := objects.ConnectTo(t, cluster)
	const ns = "helm-reflectors"
	makeNamespace(t, server, ns)
	if out, complaint, err := helm(t, reflectorsScenarios()["defaults"], "install", "first", chart, "--namespace", ns, "--kubeconfig", cluster.Kubeconfig); err == nil ||
		!strings.Contains(complaint, "namespace "+ns+" enforces the Pod Security Standard restricted") {
		t.Errorf("a namespace whose pods may not be on their machine's network: %v\n%s%s", err, out, complaint)
	}
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, api.EnforceLevelLabel, api.LevelPrivileged)
	if err := server.Client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch(types.MergePatchType, label)); err != nil {
		t.Fatal(err)
	}
	do := func(values string, args ...string) (string, error) {
		args = append(args, "--namespace", ns, "--kubeconfig", cluster.Kubeconfig)
		out, complaint, err := helm(t, values, args...)
		return out + complaint, err
	}
	must := func(values string, args ...string) {
		t.Helper()
		if out, err := do(values, args...); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	uninstall := func(release string) {
		t.Helper()
		out, complaint, err := run(t, "helm", "uninstall", release, "--namespace", ns, "--kubeconfig", cluster.Kubeconfig, "--wait=hookOnly", "--cascade=background")
		if err != nil {
			t.Fatalf("helm uninstall: %v\n%s%s", err, out, complaint)
		}
	}
	there := func() bool {
		t.Helper()
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		err := server.Client.Get(t.Context(), client.ObjectKey{Name: "routereflectortopologies." + v1alpha1.GroupVersion.Group}, crd)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil && crd.GetDeletionTimestamp() == nil
	}
	values := reflectorsScenarios()
	must(values["defaults"], "install", "first", chart)
	uninstall("first")
	if !there() {
		t.Fatal("the kind has gone with the release")
	}
	if out, err := do(values["defaults"], "install", "second", chart); err == nil || !strings.Contains(out, "first") {
		t.Errorf("another release takes the kind over: %v\n%s", err, out)
	}
	must(values["without the kind"], "install", "second", chart)
	uninstall("second")
	must(values["defaults"], "install", "third", chart, "--take-ownership")
	uninstall("third")
	must(values["defaults"], "install", "first", chart, "--take-ownership")
	must(values["the kind goes"], "upgrade", "first", chart)
	uninstall("first")
	if there() {
		t.Error("with crds.keep false the kind is still there")
	}
}
