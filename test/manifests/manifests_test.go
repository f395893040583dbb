// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/pod-security-admission/api"

	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	docloud "github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operatorapp"
	"github.com/mooring-dev/mooring/internal/nodesync/app"
	reflectors "github.com/mooring-dev/mooring/internal/routereflector/app"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	// namespace is where everything is installed but the cloud component and etcd storage.
	namespace = "mooring-system"
	// cloudName is the cloud component, which lives in kube-system as its upstream project does.
	cloudName = "digitalocean-cloud-controller-manager"
	// volumesName is the driver of block storage, in kube-system as its predecessor.
	volumesName = "digitalocean-csi-driver"
	// reflectorsName is the route reflectors' operator.
	reflectorsName = "calico-route-reflector-operator"
	// etcdName is the operator of etcd storage, which lives in a namespace of its own, that of its predecessor.
	etcdName, etcdNamespace = "etcd-storage-operator", "kube-apiserver-storage"
	// admissionName is the cloud component's webhook.
	admissionName = cloudName + "-admission-server"
)

// home returns the namespace of what is in a file.
func home(file string) string {
	switch {
	case strings.Contains(file, cloudName), strings.Contains(file, volumesName):
		return metav1.NamespaceSystem
	case strings.Contains(file, etcdName):
		return etcdNamespace
	}
	return namespace
}

// files returns the rendered manifests, and the samples that go with them, by name.
func files(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	found := map[string][]*unstructured.Unstructured{}
	for _, pattern := range []string{"../../dist/*.yaml", "../../releases/*/*.yml", "../../config/*/samples/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no files match %s (%v): run make manifests", pattern, err)
		}
		for _, path := range paths {
			content := must.Get(os.ReadFile(path)).Or(t)
			found[strings.TrimPrefix(path, "../../")] = objects.Parse(t, path, content)
		}
	}
	return found
}

// TestPodsMeetTheRestrictedStandard asks the code that the API server itself runs.
func TestPodsMeetTheRestrictedStandard(t *testing.T) {
	t.Parallel()
	seen := 0
	for name, all := range files(t) {
		seen += objects.CheckPods(t, name, all)
	}
	if seen == 0 {
		t.Error("no Deployment was judged")
	}
	// The judge must be able to say no.
	bad := corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	if objects.Unrestricted(t, &metav1.ObjectMeta{}, &bad) == "" {
		t.Error("the evaluator allows a pod on the host's network")
	}
}

// TestNamespacesEnforceAStandard keeps the label by which the API server refuses any other pod there: the restricted one, but in the namespace where
// the route reflectors' operator is on its machine's network, and which calico-node-sync shares.
func TestNamespacesEnforceAStandard(t *testing.T) {
	t.Parallel()
	for name, all := range files(t) {
		if !strings.HasPrefix(name, "dist/") || home(name) == metav1.NamespaceSystem {
			continue
		}
		want := api.LevelRestricted
		if home(name) == "mooring-system" {
			want = api.LevelPrivileged
		}
		spaces := objects.OfKind[corev1.Namespace](t, all, "Namespace")
		if len(spaces) != 1 || spaces[0].Name != home(name) || spaces[0].Labels[api.EnforceLevelLabel] != string(want) {
			t.Errorf("%s: want the namespace %s with %s=%s, have %v", name, home(name), api.EnforceLevelLabel, want, spaces)
		}
	}
}

// TestDeploymentsRunAsPromised holds what the docs promise about the pods.
func TestDeploymentsRunAsPromised(t *testing.T) {
	t.Parallel()
	for name, all := range files(t) {
		for _, d := range objects.OfKind[appsv1.Deployment](t, all, "Deployment") {
			pod := d.Spec.Template.Spec
			container := pod.Containers[0]
			elects := slices.ContainsFunc(container.Args, func(a string) bool { return a == "--leader-elect" || a == "--leader-elect=true" })
			// Every replica of a webhook serves; there is nothing to lead.
			if d.Spec.Replicas == nil || *d.Spec.Replicas < 2 || elects == (d.Name == admissionName) {
				t.Errorf("%s: %s needs two replicas and leader election", name, d.Name)
			}
			if pod.HostPID || pod.HostIPC {
				t.Errorf("%s: %s uses the host's namespaces", name, d.Name)
			}
			if container.LivenessProbe == nil || container.ReadinessProbe == nil {
				t.Errorf("%s: %s has no probes", name, d.Name)
			}
			if container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s: %s has no memory request or limit", name, d.Name)
			}
			names := func(e corev1.EnvVar) bool { return e.Name == "DATASTORE_TYPE" && e.Value != "" }
			// The others have none.
			if !slices.Contains([]string{cloudName, admissionName, etcdName}, d.Name) && !slices.ContainsFunc(container.Env, names) {
				t.Errorf("%s: %s names no datastore", name, d.Name)
			}
			for _, m := range container.VolumeMounts {
				if !m.ReadOnly {
					t.Errorf("%s: %s mounts %s writable", name, d.Name, m.Name)
				}
			}
		}
		for _, s := range objects.OfKind[corev1.Secret](t, all, "Secret") {
			if !strings.HasPrefix(name, "config/") {
				t.Errorf("%s holds the Secret %s: applying it again would overwrite somebody's certificates or token", name, s.Name)
			}
		}
	}
}

// TestEtcdSampleFitsTheOverlay compares the names and keys that the pods ask for with those that the sample gives.
func TestEtcdSampleFitsTheOverlay(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"calico-node-sync", reflectorsName} {
		t.Run(component, func(t *testing.T) {
			t.Parallel()
			etcdSampleFits(t, component)
		})
	}
}

func etcdSampleFits(t *testing.T, component string) {
	t.Helper()
	all := files(t)
	sample := all["config/"+component+"/samples/etcdv3.yaml"]
	config := objects.OfKind[corev1.ConfigMap](t, sample, "ConfigMap")[0]
	secret := objects.OfKind[corev1.Secret](t, sample, "Secret")[0]
	deployment := objects.OfKind[appsv1.Deployment](t, all["dist/"+component+"-etcdv3.yaml"], "Deployment")[0]
	container := deployment.Spec.Template.Spec.Containers[0]
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			continue
		}
		ref := e.ValueFrom.ConfigMapKeyRef
		if ref == nil || ref.Name != config.Name || config.Data[ref.Key] == "" {
			t.Errorf("%s comes from %+v, which the sample does not give", e.Name, e.ValueFrom)
		}
	}
	volume := deployment.Spec.Template.Spec.Volumes[0]
	if volume.Secret == nil || volume.Secret.SecretName != secret.Name {
		t.Fatalf("the volume is %+v; the sample's Secret is %s", volume, secret.Name)
	}
	for _, key := range []string{"etcd_ca", "etcd_cert", "etcd_key"} {
		file, ok := strings.CutPrefix(config.Data[key], container.VolumeMounts[0].MountPath+"/")
		if _, held := secret.StringData[file]; !ok || !held {
			t.Errorf("%s is %q, which is not a file of the mounted Secret", key, config.Data[key])
		}
	}
}

// TestRolesAreLeastPrivilege states what no role of ours may ever grant, whatever is added to config/.
func TestRolesAreLeastPrivilege(t *testing.T) {
	t.Parallel()
	for name, all := range files(t) {
		objects.CheckRoles(t, name, home(name), all)
	}
}

// TestExcessiveFindsGreed shows that the judge of roles can say no.
func TestExcessiveFindsGreed(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]rbacv1.PolicyRule{
		"all verbs":          {APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"*"}},
		"all resources":      {APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"get"}},
		"secrets":            {APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		"a write on nodes":   {APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		"a node's status":    {APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"update"}},
		"a deletion of pods": {APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}},
	} {
		if len(objects.Excessive(rule)) == 0 {
			t.Errorf("%s passes", name)
		}
	}
}

// TestBinaryKnowsItsArguments parses the arguments of each pod with the flags of the binary in it.
func TestBinaryKnowsItsArguments(t *testing.T) {
	t.Parallel()
	binaries := map[string]func() (*cobra.Command, error){
		"calico-node-sync": objects.Sure(app.NewCommand),
		cloudName:          docloud.NewCommand,
		reflectorsName:     objects.Sure(reflectors.NewCommand),
		admissionName:      objects.Sure(admissionapp.NewCommand),
		etcdName:           objects.Sure(operatorapp.NewCommand),
	}
	for name, all := range files(t) {
		for _, d := range objects.OfKind[appsv1.Deployment](t, all, "Deployment") {
			newCommand, ok := binaries[d.Name]
			if !ok {
				t.Errorf("%s: this test does not know the binary of %s", name, d.Name)
				continue
			}
			if err := objects.ParseFlags(t, newCommand, d.Spec.Template.Spec.Containers[0].Args); err != nil {
				t.Errorf("%s: %s: %v", name, d.Name, err)
			}
		}
	}
}
