// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// TestServerAcceptsEveryObject has a real kube-apiserver judge, in dry run, what every scenario renders, with strict field validation, and
// the pods by the admission of a namespace that enforces the restricted standard. The Prometheus Operator's two kinds are served with
// the fields that its API reference gives them (testdata/monitoring-crds.yaml holds those that we may use), and cert-manager's likewise.
func TestServerAcceptsEveryObject(t *testing.T) {
	t.Parallel()
	tool(t, "helm")
	server := objects.Connect(t)
	serveForeignKinds(t, server)
	makePrivileged(t, server, namespace) // for the route reflectors' operator; TestGoldenRenders judges the pods of the others there
	makeNamespace(t, server, etcdNamespace)
	server.DefaultAccount(t, cloudNamespace)
	all := map[string][]*unstructured.Unstructured{}
	for name, values := range scenarios() {
		all[name] = render(t, namespace, values)
	}
	for name, values := range cloudScenarios() {
		all["cloud, "+name] = render(t, cloudNamespace, values)
	}
	for name, values := range volumesScenarios() {
		all["volumes, "+name] = render(t, cloudNamespace, values)
	}
	for name, values := range reflectorsScenarios() {
		all["route reflectors, "+name] = render(t, namespace, values)
	}
	for name, values := range etcdScenarios() {
		all["etcd storage, "+name] = render(t, etcdNamespace, values)
	}
	for name, values := range admissionScenarios() {
		all["admission, "+name] = render(t, cloudNamespace, values)
	}
	for _, set := range valueSets(t) {
		all["value set "+set.name] = render(t, set.namespace, set.values)
	}
	for _, u := range slices.Concat(all["kubernetes"], all["cloud, defaults"], all["volumes, defaults"], all["route reflectors, defaults"], all["etcd storage, defaults"],
		all["value set everything-in-one-namespace"]) {
		if u.GetKind() == "ServiceAccount" {
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		server.DryRun(t, name, all[name])
	}
	if heard := server.Warnings(); len(heard) > 0 {
		t.Errorf("the API server warns: %q", heard)
	}
}

// awaitKind waits until the API server serves a CRD.
func awaitKind(t *testing.T, server *objects.Server, name string) {
	t.Helper()
	testkit.Eventually(t, "the kind "+name, func() string {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		if err := server.Client.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
			return err.Error()
		}
		for _, c := range objects.As[apiextensionsv1.CustomResourceDefinition](t, crd).Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return ""
			}
		}
		return "it is not established"
	})
}

// makeNamespace makes a namespace that enforces the restricted standard.
func makeNamespace(t *testing.T, server *objects.Server, name string) {
	t.Helper()
	makeNamespaceOf(t, server, name, api.LevelRestricted)
}

// makePrivileged makes a namespace whose pods may be on their machine's network.
func makePrivileged(t *testing.T, server *objects.Server, name string) {
	t.Helper()
	makeNamespaceOf(t, server, name, api.LevelPrivileged)
}

func makeNamespaceOf(t *testing.T, server *objects.Server, name string, level api.Level) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		api.EnforceLevelLabel: string(level), api.WarnLevelLabel: string(level),
	}}}
	if err := server.Client.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// TestReleaseComesAndGoes installs, changes and removes a release with Helm itself: changing the datastore takes the other's rights
// away, a second release is refused, and nothing is left at the end.
func TestReleaseComesAndGoes(t *testing.T) {
	t.Parallel()
	tool(t, "helm")
	server := objects.Connect(t)
	const ns = "helm-release"
	makeNamespace(t, server, ns)
	kubeconfig := controlplane.Shared(t).Kubeconfig
	do := func(values string, args ...string) (string, error) {
		out, complaint, err := helm(t, values, append(args, "--namespace", ns, "--kubeconfig", kubeconfig)...)
		return out + complaint, err
	}
	must := func(values string, args ...string) {
		t.Helper()
		if out, err := do(values, args...); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	must(scenarios()["kubernetes"], "install", "first", chart)
	rights := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mooring-calico-node-sync-datastore"}}
	if err := server.Client.Get(t.Context(), client.ObjectKeyFromObject(rights), rights); err != nil {
		t.Errorf("with the kubernetes datastore: %v", err)
	}
	if out, err := do(scenarios()["kubernetes"], "install", "second", chart); err == nil || !strings.Contains(out, "first") {
		t.Errorf("a second release alongside the first: %v\n%s", err, out)
	}
	must(scenarios()["etcdv3"], "upgrade", "first", chart)
	if err := server.Client.Get(t.Context(), client.ObjectKeyFromObject(rights), rights); !apierrors.IsNotFound(err) {
		t.Errorf("with etcdv3 the rights on Calico's kinds are still there: %v", err)
	}
	deployment := &appsv1.Deployment{}
	if err := server.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: component}, deployment); err != nil {
		t.Fatal(err)
	}
	if env := deployment.Spec.Template.Spec.Containers[0].Env; len(env) != 5 || env[0].Value != "etcdv3" {
		t.Errorf("the upgraded pod's environment is %v", env)
	}
	if out, complaint, err := run(t, "helm", "uninstall", "first", "--namespace", ns, "--kubeconfig", kubeconfig, "--wait=hookOnly",
		"--cascade=background"); err != nil {
		t.Fatalf("helm uninstall: %v\n%s%s", err, out, complaint)
	}
	for _, u := range render(t, ns, scenarios()["etcdv3"]) {
		if err := server.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); !apierrors.IsNotFound(err) {
			t.Errorf("after helm uninstall, %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}
