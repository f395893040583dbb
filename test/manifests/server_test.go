// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync/app"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// manager is the field manager of these tests.
const manager = client.FieldOwner("manifests-test")

// warnings collects what the API server warns about, as kubectl would print it.
type warnings struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// connect returns a client of the package's control plane and the warnings that it will receive.
func connect(t *testing.T) (client.Client, *warnings) {
	t.Helper()
	config := rest.CopyConfig(testkit.ControlPlane(t).Config)
	heard := &warnings{}
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, heard
}

// apply sends the object as kubectl apply --server-side does, with every field checked.
func apply(ctx context.Context, c client.Client, u *unstructured.Unstructured, options ...client.ApplyOption) error {
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	return strict.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), append(options, manager, client.ForceOwnership)...)
}

// TestServerAcceptsEveryObject applies every file to a real kube-apiserver in dry run, the namespace and accounts first and for real since
// the rest needs them, and creates, in dry run too, a pod from each template, which the namespace's own admission judges.
func TestServerAcceptsEveryObject(t *testing.T) {
	t.Parallel()
	c, heard := connect(t)
	all := files(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, u := range all[name] {
			if kind := u.GetKind(); kind == "Namespace" || kind == "ServiceAccount" {
				if err := apply(t.Context(), c, u); err != nil {
					t.Fatalf("%s: applying %s %s: %v", name, kind, u.GetName(), err)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, u := range all[name] {
			if err := apply(t.Context(), c, u, client.DryRunAll); err != nil {
				t.Errorf("%s: dry run of %s %s: %v", name, u.GetKind(), u.GetName(), err)
			}
		}
		for _, d := range ofKind[appsv1.Deployment](t, all[name], "Deployment") {
			admitPod(t, c, name, d)
		}
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if len(heard.text) > 0 {
		t.Errorf("the API server warns: %q", heard.text)
	}
}

// admitPod waits for the priority classes that a new API server makes itself, then creates the template's pod in dry run.
func admitPod(t *testing.T, c client.Client, name string, d *appsv1.Deployment) {
	t.Helper()
	testkit.Eventually(t, name+": admission of the pod of "+d.Name, func() string {
		pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
		pod.GenerateName, pod.Namespace = d.Name+"-", namespace
		if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestAccountMayDoItsWorkAndNoMore asks the API server's own authorizer, with the roles applied.
func TestAccountMayDoItsWorkAndNoMore(t *testing.T) {
	t.Parallel()
	c, _ := connect(t)
	for _, file := range []string{"dist/calico-node-sync-etcdv3.yaml", "dist/calico-node-sync-kubernetes.yaml"} {
		for _, u := range files(t)[file] {
			switch u.GetKind() {
			case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
				if err := apply(t.Context(), c, u); err != nil {
					t.Fatalf("%s: applying %s %s: %v", file, u.GetKind(), u.GetName(), err)
				}
			}
		}
	}
	lease := app.NewCommand().Flags().Lookup("leader-election-id").DefValue
	const calico = "crd.projectcalico.org"
	may := func(allowed bool, group, resource, ns, name string, verbs ...string) {
		for _, verb := range verbs {
			attributes := authorizationv1.ResourceAttributes{Group: group, Resource: resource, Namespace: ns, Name: name, Verb: verb}
			judge(t, c, attributes, allowed)
		}
	}
	read := []string{"get", "list", "watch"}
	write := []string{"create", "update", "patch", "delete", "deletecollection"}
	may(true, "", "nodes", "", "", read...)
	may(true, "", "pods", "", "", "get", "list")
	may(true, "", "namespaces", "", "kube-system", "get")
	may(true, "coordination.k8s.io", "leases", namespace, "", "create")
	may(true, "", "configmaps", namespace, "", "create")
	may(true, "", "configmaps", namespace, controller.StateName, "get", "update")
	may(true, "coordination.k8s.io", "leases", namespace, lease, "get", "update", "patch")
	may(true, calico, "clusterinformations", "", "default", "get")
	may(true, calico, "blockaffinities", "", "", "get", "list", "update", "delete")
	may(true, calico, "ipamblocks", "", "", "get", "list", "update", "delete")
	may(true, calico, "ipamhandles", "", "", "get", "update", "delete")
	may(true, "authentication.k8s.io", "tokenreviews", "", "", "create")
	// From here on the roles are known to be in force, so a no is a no and not a cache that lags.
	may(false, "", "nodes", "", "", write...)
	may(false, "", "pods", "", "", append([]string{"watch"}, write...)...)
	may(false, "", "secrets", namespace, "calico-etcd-secrets", append(read, write...)...)
	may(false, "", "secrets", "kube-system", "", read...)
	may(false, "", "configmaps", namespace, "", append(read, "update", "patch", "delete", "deletecollection")...)
	may(false, "", "configmaps", "kube-system", "", append(read, write...)...)
	may(false, "", "configmaps", namespace, controller.StateName, "patch", "delete")
	may(false, "", "events", "default", "", write...)
	may(false, "", "namespaces", "", "default", "get")
	may(false, "coordination.k8s.io", "leases", namespace, "another", "get", "update", "patch", "delete")
	may(false, "coordination.k8s.io", "leases", "kube-node-lease", "", "create", "get", "update")
	may(false, "rbac.authorization.k8s.io", "clusterroles", "", "", append(read, write...)...)
	may(false, calico, "clusterinformations", "", "default", write...)
	may(false, calico, "ippools", "", "", write...)
	may(false, calico, "ipamblocks", "", "", "create", "deletecollection")
}

// judge waits until the answer is the expected one when that is a yes, and asks once when it is a no.
func judge(t *testing.T, c client.Client, attributes authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	ask := func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":calico-node-sync",
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		err := c.Create(t.Context(), review)
		return review.Status.Allowed, err
	}
	if allowed {
		testkit.Eventually(t, "the right to "+attributes.Verb+" "+attributes.Resource, func() string {
			if yes, err := ask(); err != nil {
				return err.Error()
			} else if !yes {
				return "refused: " + attributes.String()
			}
			return ""
		})
		return
	}
	if yes, err := ask(); err != nil || yes {
		t.Errorf("calico-node-sync may %s %s %s in %q (%v)", attributes.Verb, attributes.Resource, attributes.Name, attributes.Namespace, err)
	}
}
