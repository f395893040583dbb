// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// planted are secrets as people put them into a cluster by mistake.
const (
	plantedToken    = "dop_v1_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	plantedPassword = "correct-horse-battery"
)

// unpacked are the files of an archive.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	zipped := must.Get(gzip.NewReader(must.Get(os.Open(file)).Or(t))).Or(t)
	files := map[string]string{}
	for tape := tar.NewReader(zipped); ; {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Do(t, err)
		files[strings.TrimPrefix(header.Name, "mooring-report/")] = string(must.Get(io.ReadAll(tape)).Or(t))
	}
}

// workload is a Deployment of Mooring's in a namespace, with secrets planted where they do not belong.
func workload(t *testing.T, cluster *controlplane.Cluster, namespace string) {
	t.Helper()
	labels := map[string]string{"app": "planted"}
	_, err := cluster.Client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "planted", Annotations: map[string]string{"note": "password=" + plantedPassword}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "example.com/calico-node-sync:0.1.0", Args: []string{"--etcd-password=" + plantedPassword},
				Env: []corev1.EnvVar{{Name: "DO_ACCESS_TOKEN", Value: "plain-" + plantedPassword}, {Name: "OTHER", Value: plantedToken}, {Name: "LEVEL", Value: "debug"}},
			}}}},
		},
	}, metav1.CreateOptions{})
	must.Do(t, err)
}

// One archive has the state of the components and what commands print, and none of the secrets; what somebody may not read
// is named in it.
func TestReport(t *testing.T) {
	clearEnvironment(t)
	cluster := controlplane.Lend(t)
	namespace := "mooring-system"
	_, err := cluster.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must.Do(t, err)
	workload(t, cluster, namespace)
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	kubeconfig := "--kubeconfig=" + cluster.Kubeconfig
	code, out, problems := run(t, []string{"report", "--file", file, kubeconfig})
	if code != 0 || problems != "" || !strings.HasPrefix(out, "wrote "+file+" with ") {
		t.Fatalf("exit code %d: %s%s", code, out, problems)
	}
	files := unpacked(t, file)
	for name, part := range map[string]string{
		"commands/version.json": `"client"`, "commands/status.json": `"health"`, "commands/doctor.txt": "exit code ",
		"objects/" + namespace + "/deployments.yaml": "name: LEVEL\n          value: debug",
	} {
		if !strings.Contains(files[name], part) {
			t.Errorf("%s lacks %q: %s%s", name, part, files[name], files[strings.TrimSuffix(name, "json")+"txt"])
		}
	}
	for name, text := range files {
		for _, secret := range []string{plantedToken, plantedPassword} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has the secret %s", name, secret)
			}
		}
	}
	if info := must.Get(os.Stat(file)).Or(t); info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %s", info.Mode())
	}
	code, _, problems = run(t, []string{"report", "--file", file, kubeconfig})
	if want := "error: " + file + " exists: delete it, or name another file with --file\n"; code != 1 || problems != want {
		t.Errorf("twice: exit code %d, %q", code, problems)
	}
	other := filepath.Join(t.TempDir(), "other.tar.gz")
	code, out, problems = run(t, []string{"report", "--file", other, kubeconfig, "--as=nobody"})
	if code != 0 || problems != "" || !strings.Contains(out, "left out: nodes: nodes is forbidden: ") {
		t.Errorf("nobody: exit code %d, %s%s", code, out, problems)
	}
	if text := unpacked(t, other)["unread.txt"]; !strings.Contains(text, namespace+"/pods: pods is forbidden: ") {
		t.Errorf("it is not said what is left out: %s", text)
	}
}
