// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"os"
	"os/exec"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
	"github.com/mooring-dev/mooring/test/objects"
)

// deploymentIn returns the one Deployment of a file.
func deploymentIn(t *testing.T, all []*unstructured.Unstructured) *appsv1.Deployment {
	t.Helper()
	found := objects.OfKind[appsv1.Deployment](t, all, "Deployment")
	if len(found) != 1 {
		t.Fatalf("%d Deployments", len(found))
	}
	return found[0]
}

// TestReleaseHasThePredecessorsShape: what users and their patches name in the upstream project's release file is named the same
// here. The selector above all: it can never be changed in a Deployment, so that another one could not be applied over the upstream project's.
func TestReleaseHasThePredecessorsShape(t *testing.T) {
	t.Parallel()
	all := files(t)[release]
	for _, want := range upstream.CloudControllerManager() {
		if !slices.ContainsFunc(all, func(u *unstructured.Unstructured) bool {
			return u.GetKind() == want.GetKind() && u.GetNamespace() == want.GetNamespace() && u.GetName() == want.GetName()
		}) {
			t.Errorf("%s %s is missing", want.GetKind(), want.GetName())
		}
	}
	d := deploymentIn(t, all)
	if s := d.Spec.Selector.MatchLabels; len(d.Spec.Selector.MatchExpressions) > 0 || len(s) != 1 || s["app"] != cloudName {
		t.Errorf("the selector is %+v", d.Spec.Selector)
	}
	pod := d.Spec.Template.Spec
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault || pod.ServiceAccountName != "cloud-controller-manager" || pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("the pod has hostNetwork %v, dnsPolicy %s, account %s, priority %s", pod.HostNetwork, pod.DNSPolicy, pod.ServiceAccountName, pod.PriorityClassName)
	}
	for _, taint := range []corev1.Taint{
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "CriticalAddonsOnly", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/master", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
	} {
		if !slices.ContainsFunc(pod.Tolerations, func(tol corev1.Toleration) bool { return tolerates(tol, taint) }) {
			t.Errorf("the pod does not tolerate %s", taint.ToString())
		}
	}
	container := pod.Containers[0]
	if len(pod.Containers) != 1 || container.Name != cloudName || len(container.Env) != 1 || container.Env[0].Name != "DO_ACCESS_TOKEN" {
		t.Fatalf("containers %+v", pod.Containers)
	}
	if ref := container.Env[0].ValueFrom.SecretKeyRef; ref.Name != "digitalocean" || ref.Key != "access-token" {
		t.Errorf("the token is from %+v", ref)
	}
}

func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	return t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value) && (t.Effect == "" || t.Effect == taint.Effect)
}

// TestLeasesAreTheProgramsOwn: the two Leases that the Role names are those that the program uses.
func TestLeasesAreTheProgramsOwn(t *testing.T) {
	t.Parallel()
	var election string
	objects.WithCommand(t, app.NewCommand, func(c *cobra.Command) {
		election = c.Flags().Lookup("leader-elect-resource-name").DefValue
		if ns := c.Flags().Lookup("leader-elect-resource-namespace").DefValue; ns != machines.RecordNamespace {
			t.Errorf("leader election is in %s, the record in %s", ns, machines.RecordNamespace)
		}
	})
	for name, all := range files(t) {
		for _, role := range objects.OfKind[rbacv1.Role](t, all, "Role") {
			if role.Name != cloudName || role.Namespace == "kube-node-lease" {
				continue
			}
			if got := role.Rules[1].ResourceNames; !slices.Equal(got, []string{election, machines.RecordName}) {
				t.Errorf("%s: the Role names the Leases %v, the program uses %s and %s", name, got, election, machines.RecordName)
			}
		}
	}
}

// TestTokenFileIsTheSecretAsAFile: the token of the overlay comes from the same Secret and key as the variable, by the file that the flag names.
func TestTokenFileIsTheSecretAsAFile(t *testing.T) {
	t.Parallel()
	all := files(t)
	pod := deploymentIn(t, all["dist/"+cloudName+"-token-file.yaml"]).Spec.Template.Spec
	container := pod.Containers[0]
	if len(container.Env) != 0 {
		t.Errorf("variables %+v: with a file and a variable the program refuses to start", container.Env)
	}
	volume, mount := pod.Volumes[0], container.VolumeMounts[0]
	secret := objects.OfKind[corev1.Secret](t, all["config/"+cloudName+"/samples/token.yaml"], "Secret")[0]
	item := volume.Secret.Items[0]
	if volume.Secret.SecretName != secret.Name || secret.Namespace != metav1.NamespaceSystem || secret.StringData[item.Key] == "" || *volume.Secret.DefaultMode != 0o440 {
		t.Errorf("the volume is %+v, the sample %s/%s", volume.Secret, secret.Namespace, secret.Name)
	}
	if want := "--token-file=" + mount.MountPath + "/" + item.Path; volume.Name != mount.Name || !slices.Contains(container.Args, want) {
		t.Errorf("arguments %q, want %s", container.Args, want)
	}
}

// TestSampleClustersBuild builds the overlays that users are shown, and finds that the variables they set are the program's.
func TestSampleClustersBuild(t *testing.T) {
	t.Parallel()
	kustomize := filepath.Join(testkit.Root(t), "bin", "kustomize")
	if _, err := os.Stat(kustomize); err != nil {
		testkit.Skip(t, "it needs bin/kustomize: run `make bin/kustomize`")
	}
	cluster := []string{"DO_CLUSTER_ID", "DO_CLUSTER_VPC_ID", "REGION"}
	for sample, want := range map[string][]string{
		"cluster":  cluster,
		"firewall": append([]string{"DO_NODE_LABELS_FROM_TAGS", "PUBLIC_ACCESS_FIREWALL_NAME", "PUBLIC_ACCESS_FIREWALL_TAGS"}, cluster...),
	} {
		out, err := exec.CommandContext(t.Context(), kustomize, "build", "../../config/"+cloudName+"/samples/"+sample).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", sample, err, out)
		}
		container := deploymentIn(t, objects.Parse(t, "samples/"+sample, out)).Spec.Template.Spec.Containers[0]
		var names []string
		for _, e := range container.Env {
			names = append(names, e.Name)
			if e.Name == "DO_NODE_LABELS_FROM_TAGS" {
				if labels, err := instance.ParseTagLabels(e.Value); err != nil || len(labels) == 0 {
					t.Errorf("%s: labels %v, %v", sample, labels, err)
				}
			}
		}
		slices.Sort(names)
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("%s: variables %v, want %v", sample, names, want)
		}
		if !strings.HasPrefix(container.Image, "registry.example/") {
			t.Errorf("%s: image %s", sample, container.Image)
		}
	}
}

// predecessorsDeployment is the Deployment of the upstream project's release file.
func predecessorsDeployment(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	all := upstream.CloudControllerManager()
	return all[slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })]
}

// TestReleaseGoesOverThePredecessorAndBack applies our file over the upstream project's Deployment on a real API server, and the upstream
// project's again: neither is refused, and nothing of the one stays in the other.
func TestReleaseGoesOverThePredecessorAndBack(t *testing.T) {
	t.Parallel()
	server, ctx := objects.ConnectTo(t, controlplane.New(t)), t.Context()
	pod := func() corev1.PodSpec {
		d := &appsv1.Deployment{}
		must.Do(t, server.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: cloudName}, d))
		return d.Spec.Template.Spec
	}
	must.Do(t, server.Apply(ctx, predecessorsDeployment(t)))
	for _, u := range files(t)[release] {
		if err := server.Apply(ctx, u); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	if ours := pod().Containers[0]; len(ours.Command) > 0 || ours.LivenessProbe == nil || len(ours.Env) != 1 {
		t.Errorf("after ours: %+v", ours)
	}
	must.Do(t, server.Apply(ctx, predecessorsDeployment(t)))
	if theirs := pod(); len(theirs.Containers[0].Command) != 2 || len(theirs.Containers[0].Args) > 0 || theirs.Containers[0].LivenessProbe != nil || theirs.Affinity != nil {
		t.Errorf("after theirs: %+v", theirs)
	}
}
