// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/nodesync/app"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// TestLint runs helm lint, warnings counting as errors.
func TestLint(t *testing.T) {
	t.Parallel()
	lint := func(name, ns, values string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, complaint, err := helm(t, values, "lint", "--strict", "--namespace", ns, chart); err != nil {
				t.Errorf("helm lint: %v\n%s%s", err, out, complaint)
			}
		})
	}
	for name, values := range scenarios() {
		lint(name, namespace, values)
	}
	for name, values := range cloudScenarios() {
		lint("cloud, "+name, cloudNamespace, values)
	}
	for name, values := range reflectorsScenarios() {
		lint("route reflectors, "+name, namespace, values)
	}
	for name, values := range etcdScenarios() {
		lint("etcd storage, "+name, etcdNamespace, values)
	}
	for name, values := range admissionScenarios() {
		lint("admission, "+name, cloudNamespace, values)
	}
}

// TestChartRendersWhatConfigRenders renders both ways to install and finds no difference but the labels that Helm's users expect.
func TestChartRendersWhatConfigRenders(t *testing.T) {
	t.Parallel()
	compare := func(folder, ns, values string) {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			out, complaint, err := run(t, "kustomize", "build", "../../config/"+folder)
			if err != nil {
				t.Fatalf("kustomize build: %v\n%s", err, complaint)
			}
			want := byName(objects.Parse(t, "kustomize build", []byte(out)))
			have := byName(render(t, ns, values))
			delete(want, "Namespace /"+ns) // Helm wants it to be there
			if ns == cloudNamespace {      // TestAdmissionRendersWhatConfigRenders compares them
				maps.DeleteFunc(have, func(name string, _ *unstructured.Unstructured) bool {
					return strings.HasPrefix(name, "ValidatingAdmissionPolicy")
				})
			}
			for _, u := range have {
				withoutHelmsLabels(t, u)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("charts/mooring and config/ differ; change both (- config, + chart):\n%s", diff)
			}
		})
	}
	for _, datastore := range []string{"etcdv3", "kubernetes"} {
		compare(component+"/overlays/"+datastore, namespace, scenarios()[datastore])
	}
	compare(cloudComponent+"/base", cloudNamespace, cloudScenarios()["environment"])
	compare(cloudComponent+"/overlays/token-file", cloudNamespace, cloudScenarios()["without out-of-service"])
	compare(cloudComponent+"/overlays/out-of-service", cloudNamespace, cloudScenarios()["defaults"])
	compare(cloudComponent+"/overlays/startup-taint", cloudNamespace, cloudScenarios()["startup taint"])
	compare(volumesComponent+"/base", cloudNamespace, volumesScenarios()["defaults"])
	compare(reflectorsComponent+"/overlays/kubernetes", namespace, reflectorsScenarios()["without the kind"])
	compare(reflectorsComponent+"/overlays/etcdv3", namespace, reflectorsScenarios()["etcdv3"])
	compare(etcdComponent+"/base", etcdNamespace, etcdScenarios()["without the kind"])
}

// withoutHelmsLabels takes off the labels that Helm's users expect, each of which must be there.
func withoutHelmsLabels(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	labels := u.GetLabels()
	for _, helms := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
		if labels[helms] == "" {
			t.Errorf("%s %s lacks the label %s", u.GetKind(), u.GetName(), helms)
		}
		delete(labels, helms)
	}
	u.SetLabels(labels)
}

// byName indexes objects by kind, namespace and name.
func byName(all []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	out := make(map[string]*unstructured.Unstructured, len(all))
	for _, u := range all {
		out[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = u
	}
	return out
}

// TestNothingRunsUnasked: the chart's defaults install no object at all.
func TestNothingRunsUnasked(t *testing.T) {
	t.Parallel()
	if all := render(t, namespace, ""); len(all) > 0 {
		t.Errorf("the defaults install %s", names(all))
	}
}

// names lists objects for messages and comparisons, in order.
func names(all []*unstructured.Unstructured) []string {
	var out []string
	for _, u := range all {
		out = append(out, u.GetKind()+" "+u.GetName())
	}
	slices.Sort(out)
	return out
}

// TestPodsMeetTheRestrictedStandard holds for all values: no value can take the security contexts away.
func TestPodsMeetTheRestrictedStandard(t *testing.T) {
	t.Parallel()
	for name, values := range scenarios() {
		if judged := objects.CheckPods(t, name, render(t, namespace, values)); judged != 1 && name != "nothing" {
			t.Errorf("%s: %d Deployments", name, judged)
		}
	}
}

// TestRolesAreLeastPrivilege also checks that a datastore's rights come with that datastore only.
func TestRolesAreLeastPrivilege(t *testing.T) {
	t.Parallel()
	for name, values := range scenarios() {
		all := render(t, namespace, values)
		objects.CheckRoles(t, name, namespace, all)
		calico := slices.Contains(names(all), "ClusterRole mooring-calico-node-sync-datastore")
		if wants := strings.Contains(values, "datastore: kubernetes"); calico != wants {
			t.Errorf("%s: rights on crd.projectcalico.org: %v, want %v", name, calico, wants)
		}
	}
}

// TestNamespaceIsTheReleases finds no object and no subject in another namespace than the release's, but for the right to read kubelets' Leases, which are
// where Kubernetes has them.
func TestNamespaceIsTheReleases(t *testing.T) {
	t.Parallel()
	clusterWide := []string{"ClusterRole", "ClusterRoleBinding"}
	for name, values := range scenarios() {
		for _, u := range render(t, "elsewhere", values) {
			leases := u.GetNamespace() == "kube-node-lease" && strings.HasPrefix(u.GetKind(), "Role")
			if want := map[bool]string{false: "elsewhere"}[slices.Contains(clusterWide, u.GetKind())]; u.GetNamespace() != want && !leases {
				t.Errorf("%s: %s %s is in %q", name, u.GetKind(), u.GetName(), u.GetNamespace())
			}
			content := must.Get(json.Marshal(u)).Or(t)
			if strings.Contains(string(content), namespace) {
				t.Errorf("%s: %s %s names %s", name, u.GetKind(), u.GetName(), namespace)
			}
			if !strings.HasSuffix(u.GetKind(), "Binding") || u.GetName() == "mooring-calico-node-sync-metrics-reader" {
				continue
			}
			for _, subject := range objects.As[rbacv1.ClusterRoleBinding](t, u).Subjects {
				if subject.Namespace != "elsewhere" {
					t.Errorf("%s: %s %s binds %v", name, u.GetKind(), u.GetName(), subject)
				}
			}
		}
	}
}

// TestBinaryKnowsItsArguments parses the arguments with the flags of the program, and its environment must name a datastore.
func TestBinaryKnowsItsArguments(t *testing.T) {
	t.Parallel()
	for name, values := range scenarios() {
		for _, d := range objects.OfKind[appsv1.Deployment](t, render(t, namespace, values), "Deployment") {
			if err := objects.ParseFlags(t, objects.Sure(app.NewCommand), d.Spec.Template.Spec.Containers[0].Args); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestEveryValueHasAnEffect looks for each value of the scenario "everything" in what it renders.
func TestEveryValueHasAnEffect(t *testing.T) {
	t.Parallel()
	content := rendered(t, render(t, namespace, scenarios()["everything"]),
		`"imagePullSecrets":[{"name":"registry"}]`,
		`{"name":"ETCD_ENDPOINTS","value":"https://192.0.2.10:2379,https://[2001:db8::1]:2379"}`,
		`{"name":"ETCD_CA_CERT_FILE","value":"/calico-secrets/ca.crt"}`,
		`{"name":"ETCD_CERT_FILE","value":"/calico-secrets/tls.crt"}`,
		`{"name":"ETCD_KEY_FILE","value":"/calico-secrets/tls.key"}`,
		`"secretName":"certificates"`,
		`"--mode=report"`, `"--grace-period=1h30m"`, `"--journal=configmaps"`, `"--journal-retention=24h"`, `"--journal-max-entries=50"`, `"--nodes-per-round=10"`, `"-v=2"`, `"--metrics-cert-path=/metrics-certificate"`,
		`{"name":"ETCD_USERNAME","value":"mooring"}`, `"secretKeyRef":{"key":"password","name":"etcd"}`,
		`"image":"registry.example:5000/mooring/calico-node-sync@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`,
		`"replicas":3`, `"cpu":"1"`, `"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"tolerations":[{"operator":"Exists"}]`,
		`"key":"disk"`, `"team":"network"`, `"example.com/note":"any text, also: this"`,
		`"name":"prometheus-k8s","namespace":"monitoring"`, `"secretName":"metrics-certificate"`, `"interval":"1m"`, `"release":"prometheus"`,
		`"dashboard":"yes"`, `"grafana_dashboard":"1"`, `"grafana_folder":"Mooring"`,
		`"serverName":"calico-node-sync-metrics.mooring-system.svc"`, `"cidr":"2001:db8::/64"`, `"cidr":"192.0.2.10/32"`)
	if strings.Contains(content, "priorityClassName") {
		t.Error(`priorityClassName: "" still renders one`)
	}
}

// TestJournalHasItsPlace: in ConfigMaps it comes with the rights that it needs, on a volume with the volume, and never with both.
func TestJournalHasItsPlace(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		args  []string
		claim string // the volume's
		made  string // the size of the claim that is made
		prune bool   // the right to list and delete ConfigMaps
	}{
		"kubernetes":                   {[]string{"--journal=configmaps", "--journal-retention=720h", "--journal-max-entries=500"}, "", "", true},
		"journal on a volume":          {[]string{"--journal=folder", "--journal-dir=/journal"}, "calico-node-sync-journal", "5Gi", false},
		"journal on somebody's volume": {[]string{"--journal=folder", "--journal-dir=/journal"}, "archive", "", false},
		"no journal":                   {[]string{"--journal=none"}, "", "", false},
	} {
		all := render(t, namespace, scenarios()[name])
		pod := objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0].Spec.Template.Spec
		var args []string
		for _, arg := range pod.Containers[0].Args {
			if strings.HasPrefix(arg, "--journal") {
				args = append(args, arg)
			}
		}
		if !slices.Equal(args, want.args) {
			t.Errorf("%s: arguments %q, want %q", name, args, want.args)
		}
		claim := ""
		for _, v := range pod.Volumes {
			if v.PersistentVolumeClaim != nil {
				claim = v.PersistentVolumeClaim.ClaimName
			}
		}
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/journal" && !m.ReadOnly })
		if claim != want.claim || mounted != (claim != "") {
			t.Errorf("%s: claim %q, mounted: %v", name, claim, mounted)
		}
		made := ""
		for _, c := range objects.OfKind[corev1.PersistentVolumeClaim](t, all, "PersistentVolumeClaim") {
			made = c.Spec.Resources.Requests.Storage().String()
			if c.Annotations["helm.sh/resource-policy"] != "keep" || *c.Spec.StorageClassName != "shared" {
				t.Errorf("%s: the claim is %+v", name, c)
			}
		}
		if made != want.made {
			t.Errorf("%s: a claim of %q is made, want %q", name, made, want.made)
		}
		roles := objects.OfKind[rbacv1.Role](t, all, "Role")
		role := roles[slices.IndexFunc(roles, func(r *rbacv1.Role) bool { return r.Namespace != "kube-node-lease" })]
		prune := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "configmaps") && slices.Contains(r.Verbs, "delete")
		})
		if prune != want.prune {
			t.Errorf("%s: it may delete ConfigMaps: %v", name, prune)
		}
	}
}

// TestNetworkPolicyOpensWhatIsNeeded: with the kubernetes datastore there is no way to an etcd, and with none given everyone is a peer.
func TestNetworkPolicyOpensWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"everything":              {"53", "53", "6443 to 192.0.2.0/24 2001:db8::/64", "2379 to 192.0.2.10/32"},
		"defaults of the options": {"53", "53", "443", "6443"},
	} {
		policies := objects.OfKind[networkingv1.NetworkPolicy](t, render(t, namespace, scenarios()[name]), "NetworkPolicy")
		if len(policies) != 1 {
			t.Fatalf("%s: %d NetworkPolicies", name, len(policies))
		}
		var have []string
		for _, rule := range policies[0].Spec.Egress {
			to := ""
			for _, peer := range rule.To {
				to += " " + peer.IPBlock.CIDR
			}
			for _, port := range rule.Ports {
				text := port.Port.String()
				if to != "" {
					text += " to" + to
				}
				have = append(have, text)
			}
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: egress (- want, + have):\n%s", name, diff)
		}
		if len(policies[0].Spec.Ingress) != 2 || len(policies[0].Spec.PolicyTypes) != 2 {
			t.Errorf("%s: %+v", name, policies[0].Spec)
		}
	}
}

// TestNotes keeps what Helm prints after an install short and to the point.
func TestNotes(t *testing.T) {
	t.Parallel()
	checkNotes(t, namespace, scenarios(), map[string]string{
		"nothing": "no component is enabled", "kubernetes": "calico-node-sync (kubernetes, --mode=enforce)",
		"everything": "Nothing is written until calicoNodeSync.mode is enforce", "defaults of the options": "Prometheus will be refused (403)",
	})
}
