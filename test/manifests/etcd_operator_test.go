// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const operatorBase = "config/etcd-storage-operator/base"

func operatorObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testkit.Binary(t, "kustomize"), "build", "../../"+operatorBase).Output()
	must.Do(t, err)
	return objects.Parse(t, operatorBase, out)
}

// Its pods meet the restricted standard, and it works in the namespace in which it is. That its flags are the program's is tested with the
// others' (dist/).
func TestEtcdOperatorIsHardened(t *testing.T) {
	t.Parallel()
	all := operatorObjects(t)
	if objects.CheckPods(t, operatorBase, all) != 1 {
		t.Error("no Deployment was judged")
	}
	d := objects.OfKind[appsv1.Deployment](t, all, "Deployment")[0]
	if !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--namespace="+d.Namespace) || d.Namespace != etcdNamespace {
		t.Errorf("it is in namespace %s and works in another", d.Namespace)
	}
}

// The script behind make deploy brings the kind and the program, refuses to take either away while there is an EtcdStorage, whose finalizer
// nobody would take off then, and leaves the namespace with the core's credentials.
func TestEtcdOperatorIsDeployedAndTakenBack(t *testing.T) {
	t.Parallel()
	s := newShell(t, controlplane.New(t))
	const script = "KUBECTL=kubectl COMPONENT=" + etcdName + " IMG=registry.example/x:1 hack/deploy.sh "
	crd := "etcdstorages." + v1alpha1.GroupVersion.Group
	s.must(script + "deploy")
	testkit.Eventually(t, "the kind to be served", func() string {
		if out, code := s.run(s.root, "kubectl get ets"); code != 0 {
			return "kubectl get ets: " + out
		}
		return ""
	})
	out := s.must("kubectl -n " + etcdNamespace + " get deployment " + etcdName + " -o jsonpath='{.spec.template.spec.containers[0].image}'")
	if out != "registry.example/x:1" {
		t.Errorf("image %q", out)
	}
	s.must("kubectl -n " + etcdNamespace + " create secret generic etcd-coreserving-cert")
	s.must("printf 'apiVersion: " + v1alpha1.GroupVersion.String() + "\nkind: EtcdStorage\nmetadata: {name: team-a}\n' | kubectl apply -f -")
	for _, deed := range []string{"undeploy", "uninstall"} {
		out, code := s.run(s.root, script+deed)
		if code == 0 || !strings.Contains(out, "/team-a: delete it first, with etcd-storage-operator running") {
			t.Errorf("%s while there is an EtcdStorage: exit code %d\n%s", deed, code, out)
		}
	}
	s.must("kubectl delete ets team-a")
	s.must(script + "undeploy; kubectl get crd " + crd + "; kubectl -n " + etcdNamespace + " get secret etcd-coreserving-cert")
	s.must("kubectl -n " + etcdNamespace + " get deployment -o name | { ! grep " + etcdName + "; }")
	s.must(script + "uninstall; kubectl get crd -o name | { ! grep etcdstorages; }")
}
