// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
	"github.com/mooring-dev/mooring/internal/testkit/calicobird"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// templateFolder is a folder with the templates of the newest Calico that is patched.
func templateFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	all := calicobird.Versions(t)
	for _, v := range []calicobird.Version{all[0], all[4]} {
		if err := os.WriteFile(filepath.Join(dir, v.File), []byte(v.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// From a folder, without a cluster: the comments word for word, and the ConfigMap.
func TestBIRDTemplatesOffline(t *testing.T) {
	t.Parallel()
	dir := templateFolder(t)
	for installer, namespace := range map[string]string{"operator": "tigera-operator", "manifest": "kube-system"} {
		code, out, errs := run(t, []string{"bird-templates", "--from", dir, "--installed-by", installer})
		if code != 0 || errs != "" {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		comments, _, _ := strings.Cut(out, "apiVersion:")
		golden(t, "bird-templates-"+installer, comments)
		var got corev1.ConfigMap
		if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Name != birdtemplates.ConfigMap || got.Namespace != namespace || len(got.Data) != 2 {
			t.Errorf("it is %s/%s with %d files", got.Namespace, got.Name, len(got.Data))
		}
		for file, text := range got.Data {
			if state, err := birdtemplates.StateOf(file, text); err != nil || state != birdtemplates.Patched {
				t.Errorf("%s is %s, %v", file, state, err)
			}
		}
	}
}

func TestBIRDTemplatesRefusals(t *testing.T) {
	t.Parallel()
	foreign := templateFolder(t)
	if err := os.WriteFile(filepath.Join(foreign, birdtemplates.IPv6File), []byte("router id 1.2.3.4;\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"another version": {[]string{"--from", foreign, "--installed-by", "manifest"}, "patching the templates of folder " + foreign + `: bird6.cfg.template: expected "# Template for all ` +
			`BGP clients / template bgp bgp_template {" in the file; Mooring patches the templates of Calico 3.29 to 3.31 only`},
		"an empty folder":      {[]string{"--from", empty, "--installed-by", "manifest"}, "folder " + empty + " has no bird.cfg.template: both files of the image are needed"},
		"an unknown installer": {[]string{"--from", empty, "--installed-by", "helm"}, `--installed-by "helm" is unknown: use operator or manifest`},
		"check of a folder":    {[]string{"--from", empty, "--check"}, "--check looks at the cluster: it takes neither --from nor --installed-by"},
	} {
		code, out, errs := run(t, append([]string{"bird-templates"}, test.args...))
		if code != command.ExitError || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%s: exit code %d, %q, %q; want %q", name, code, out, errs, test.want)
		}
	}
}

// quoted is what stands in single quotes in a command.
var quoted = regexp.MustCompile(`patch daemonset calico-node -p '([^']*)'`)

// calicoNode makes Calico's DaemonSet as its manifest does, as far as it matters here.
func calicoNode(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	labels := map[string]string{"k8s-app": "calico-node"}
	const set = "calico-node"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: set}}
	if _, err := cluster.Client.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	object := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: set, Namespace: "kube-system"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: set, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: set, Image: "calico/node:v3.31.0"}},
				},
			},
		},
	}
	if _, err := cluster.Client.AppsV1().DaemonSets(object.Namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// calicoNodePod makes the pod of a node from the DaemonSet as it is, as its controller does.
func calicoNodePod(t *testing.T, cluster *controlplane.Cluster, node string) {
	t.Helper()
	set, err := cluster.Client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "calico-node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := cluster.Client.CoreV1().Pods(set.Namespace)
	now := int64(0)
	err = pods.Delete(t.Context(), "calico-node-"+node, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "calico-node-" + node, Labels: set.Spec.Template.Labels}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName = node
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The patch is rolled out node by node by the commands that the comments have, and --check and the doctor follow.
func TestBIRDTemplatesRollOut(t *testing.T) { //nolint:paralleltest // the kinds are cluster-scoped
	cluster := controlplane.New(t)
	cluster.InstallCalicoCRDs(t)
	check := []string{"bird-templates", "--check", "--kubeconfig", cluster.Kubeconfig}
	if code, _, errs := run(t, check); code != 1 || !strings.Contains(errs, "no namespace has a DaemonSet calico-node") {
		t.Errorf("exit code %d without Calico: %s", code, errs)
	}
	nodes, _, _ := handMade()
	for _, n := range nodes[:2] {
		if _, err := cluster.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	calicoNode(t, cluster)
	calicoNodePod(t, cluster, "n0")
	calicoNodePod(t, cluster, "n1")
	doctor := []string{"doctor", "rr", "--kubeconfig", cluster.Kubeconfig}
	expect(t, 2, "", check, "There is no ConfigMap kube-system/bird-templates.\n", "n0     no         there is no ConfigMap kube-system/bird-templates")
	expect(t, 2, "", doctor, "note     bird-templates: Calico's own BIRD templates are in force on all nodes\n")
	printing := []string{"bird-templates", "--kubeconfig", cluster.Kubeconfig}
	if code, _, errs := run(t, printing); code != 1 || !strings.Contains(errs, "there is no ConfigMap kube-system/bird-templates: copy the templates out of a calico-node pod") {
		t.Errorf("exit code %d without templates: %s", code, errs)
	}

	_, printed, _ := run(t, append(printing, "--from", templateFolder(t)))
	mustKubectl(t, cluster, printed, "apply", "--server-side", "-f", "-")
	commands := quoted.FindAllStringSubmatch(printed, -1)
	if len(commands) != 2 {
		t.Fatalf("the comments have %d patches, want one and one to undo it:\n%.2000s", len(commands), printed)
	}
	mustKubectl(t, cluster, "", "-n", "kube-system", "patch", "daemonset", "calico-node", "-p", commands[0][1])
	expect(t, 2, "", check, "ConfigMap kube-system/bird-templates, sha256 ", "n1     no         the pod does not mount bird.cfg.template of the ConfigMap\n")
	calicoNodePod(t, cluster, "n0")
	expect(t, 2, "", check, "n0     yes        -\n", "n1     no ")
	expect(t, 2, "", doctor, "warning  bird-templates: patched BIRD templates are not in force on 1 of 2 nodes: the pod does not mount bird.cfg.template of the ConfigMap (n1)\n")
	calicoNodePod(t, cluster, "n1")
	expect(t, 0, "", check, "n1     yes        -\n")
	expect(t, 2, "", doctor, "ok       bird-templates: patched BIRD templates are in force on 2 nodes (kube-system/bird-templates, sha256 ")
	// Printed again, from the cluster, it is the same.
	if _, again, _ := run(t, printing); again != printed {
		t.Errorf("printed from the ConfigMap it differs: %d bytes and %d", len(again), len(printed))
	}
	mustKubectl(t, cluster, "", "-n", "kube-system", "patch", "daemonset", "calico-node", "-p", commands[1][1])
	calicoNodePod(t, cluster, "n0")
	expect(t, 2, "", check, "n0     no         the pod does not mount bird.cfg.template of the ConfigMap\n")
}
