// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The program as it runs in a cluster, from a machine that leaves to its being put back: what it removes is kept in ConfigMaps, and Events on its
// Deployment tell of it. In report mode it does neither.
func TestTheProgramKeepsAndTells(t *testing.T) {
	s := newScene(t, "told", 3)
	namespace := must.Get(s.cluster.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "told-"}}, metav1.CreateOptions{})).Or(t)
	labels := map[string]string{"app": "x"}
	deployment := must.Get(s.cluster.Client.AppsV1().Deployments(namespace.Name).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: controller.DeploymentName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})).Or(t)
	start := func(args ...string) *testkit.Process {
		args = append([]string{
			"--kubeconfig", s.cluster.Kubeconfig, "--leader-elect", "--leader-election-namespace", namespace.Name, "--metrics-bind-address=0",
			"--health-probe-bind-address=0", "--grace-period=1s", "--resync-period=1s", "--round-interval=1s",
		}, args...)
		p := testkit.Start(t, filepath.Join(t.TempDir(), "log"), append(s.env(), asProgram+"=1"), os.Args[0], args...)
		t.Cleanup(p.Stop)
		return p
	}
	reasons := func() []string {
		list := must.Get(s.cluster.Client.CoreV1().Events(namespace.Name).SearchWithContext(t.Context(), scheme.Scheme, deployment)).Or(t)
		var out []string
		for _, event := range list.Items {
			out = append(out, event.Reason)
		}
		slices.Sort(out)
		return out
	}
	reporter := start("--mode=report")
	testkit.Eventually(t, "a round of the reporter", func() string {
		if !strings.Contains(reporter.Output(), "record that this datastore belongs to the cluster") {
			return "it says " + reporter.Output()
		}
		return ""
	})
	reporter.Stop()
	for line := range strings.SplitSeq(reporter.Output(), "\n") {
		if strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("a clean stop is not an error: %s", line)
		}
	}
	if got := reasons(); len(got) > 0 {
		t.Errorf("in report mode: got Events %v", got)
	}
	p := start()
	await := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, "the Events", func() string {
			if got := reasons(); !slices.Equal(got, want) {
				return fmt.Sprintf("got %v, want %v; %s", got, want, p.Output())
			}
			return ""
		})
	}
	await(controller.ReasonClusterRecorded)
	before := s.left("0")
	s.leave("0")
	await(controller.ReasonClusterRecorded, controller.ReasonMachineCleaned)
	if left := s.left("0"); len(left) > 0 {
		t.Errorf("left of the machine: %v", left)
	}
	p.Stop()
	if log := p.Output(); strings.Contains(log, "rejected event") || !strings.Contains(log, "Saving what is removed in ConfigMaps") {
		t.Errorf("its log:\n%s", log)
	}
	if code, out := s.run("restore", "--namespace", namespace.Name, "--list"); code != 0 || !strings.Contains(out, s.name("0")) {
		t.Errorf("restore --list: got exit code %d and %q", code, out)
	}
	if code, out := s.run("restore", "--namespace", namespace.Name, s.name("0")); code != 0 || strings.Count(out, "restored ") < 3 {
		t.Errorf("restore: got exit code %d and %q", code, out)
	}
	back := s.left("0")
	for _, key := range before {
		if !strings.HasPrefix(key, "/calico/ipam/") && !slices.Contains(back, key) {
			t.Errorf("%s is not back", key)
		}
	}
}
